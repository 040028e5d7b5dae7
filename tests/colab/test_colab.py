"""Each notebook alone, as on Colab: a foreign environment, an empty folder. `make test-colab`."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import papermill
import pytest

from scaled_idempotence.checkpoints.bundled import cache_folder
from scaled_idempotence.publish.notebooks import find_notebooks
from scaled_idempotence.publish.pages import page_faults

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = find_notebooks()
SMALLEST = "minilm-l6"
# What Colab has of its own, as far as the bootstrap cell relies on it.
GIVEN = ("ipykernel", "papermill", "numpy", "torch")
# Where the smallest model does not make a notebook small enough; by stem.
SMALLER: dict[str, dict[str, object]] = {
    "06_training_lineages": {"lineages": "live-mqa", "steps": 4, "max_steps": 2},
}


class Colab:
    """A virtual environment without the package, and the wheel that the bootstrap is to install."""

    def __init__(self, folder: Path):
        self.folder = folder
        # Bytecode is made of what is imported, and not of all that is installed.
        os.environ["PIP_NO_COMPILE"] = "1"
        pip = [sys.executable, "-m", "pip", "--quiet"]
        wheels = folder / "wheels"
        subprocess.run([*pip, "wheel", "--no-deps", "-w", str(wheels), str(ROOT)], check=True)
        (self.wheel,) = wheels.glob("*.whl")
        venv = folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
        self.python = venv / "bin" / "python"
        constraint = str(ROOT / "constraints.txt")
        # pip itself comes along, since the bootstrap calls it.
        install = [*pip, "--python", str(self.python), "install", "-c", constraint, "pip", *GIVEN]
        subprocess.run(install, check=True)
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
        } | {
            "PATH": f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "SCALED_IDEMPOTENCE_SOURCE": str(self.wheel),
            "SCALED_IDEMPOTENCE_CACHE": str(cache_folder()),
            "PIP_CONSTRAINT": constraint,
            "IPYTHONDIR": str(folder / "ipython"),
            "JUPYTER_DATA_DIR": str(folder / "jupyter"),  # no kernel of the user's own
            "MPLCONFIGDIR": str(folder / "matplotlib"),
        }

    def installed(self) -> dict[str, str]:
        """Versions of what the environment holds, and where the package came from."""
        code = (
            "import json; from importlib.metadata import distributions\n"
            "print(json.dumps({d.name.lower(): d.read_text('direct_url.json') or d.version "
            "for d in distributions()}))"
        )
        run = [str(self.python), "-c", code]
        result = subprocess.run(
            run, env=self.environment, capture_output=True, text=True, check=True
        )
        return json.loads(result.stdout)

    def execute(self, source: Path) -> tuple[nbformat.NotebookNode, Path]:
        """Copy a notebook into an empty folder and run it there."""
        folder = self.folder / source.stem
        folder.mkdir()
        shutil.copy(source, folder)
        declared = papermill.inspect_notebook(str(source))
        parameters = {name: SMALLEST for name in ("model", "example") if name in declared}
        parameters |= SMALLER.get(source.stem, {})
        result = subprocess.run(
            [str(self.python), "-m", "papermill", "--no-progress-bar", "-k", "python3",
             "-b", _encoded(parameters), source.name, "out.ipynb"],
            cwd=folder, env=self.environment, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr[-3000:]
        return nbformat.read(folder / "out.ipynb", as_version=4), folder


def _encoded(parameters: dict[str, object]) -> str:
    return base64.b64encode(json.dumps(parameters).encode()).decode()


@pytest.fixture(scope="module")
def colab(tmp_path_factory):
    return Colab(tmp_path_factory.mktemp("colab"))


def test_the_first_notebook_installs_the_package_and_keeps_torch(colab):
    before = colab.installed()
    assert "scaled-idempotence" not in before
    assert "pandas" not in before
    page, folder = colab.execute(NOTEBOOKS[0])
    assert page_faults(page) == []
    assert list(folder.glob(f"results/{SMALLEST}/*.parquet"))
    after = colab.installed()
    assert colab.wheel.name in after["scaled-idempotence"]
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("source", NOTEBOOKS[1:], ids=lambda path: path.stem)
def test_every_notebook_runs_from_its_file_alone(colab, source):
    page, _ = colab.execute(source)
    assert page_faults(page) == []
