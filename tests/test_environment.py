"""pyproject.toml, constraints.txt and environment.yml say the same, and so does the repository."""

import subprocess
import sys

import pytest

from tests.gates import environment_faults


def test_the_environment_files_agree(root):
    assert environment_faults(root) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("environment.yml", "papermill==", "papermill==1.", "environment.yml has papermill"),
        ("environment.yml", "-c constraints.txt", "-v", "does not apply constraints.txt"),
        ("environment.yml", "python=3.11", "python=3.9", "does not fit >=3.11"),
        ("constraints.txt", "scipy==", "scipy==0.", "is outside pyproject's"),
        ("constraints.txt", "scipy==", "unknown==", "does not pin scipy"),
        ("constraints.txt", "scipy==", "scipy>=", "is not an exact pin"),
        ("pyproject.toml", '"tqdm>=', '"zarr", "tqdm>=', "does not pin zarr"),
        ("pyproject.toml", '"tqdm>=4.66"', "", "pyproject does not ask for"),
    ],
)
def test_the_environment_gate_fails_when_broken(broken_copy, file, old, new, message):
    path = broken_copy / file
    text = path.read_text()
    assert old in text
    # An empty entry is not TOML; what stands before it makes one.
    path.write_text(text.replace(old, new or '"numpy"', 1))
    assert any(message in fault for fault in environment_faults(broken_copy))


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, scaled_idempotence\n"
        "heavy = {'torch', 'pandas', 'transformers', 'matplotlib', 'scipy'} & sys.modules.keys()\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_the_linear_algebra_needs_torch_and_nothing_above_it():
    code = (
        "import sys, pkgutil, importlib, scaled_idempotence.linalg as linalg\n"
        "for one in pkgutil.iter_modules(linalg.__path__):\n"
        "    importlib.import_module(f'scaled_idempotence.linalg.{one.name}')\n"
        "assert 'torch' in sys.modules\n"
        "heavy = {'pandas', 'transformers', 'matplotlib'} & sys.modules.keys()\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_resolves():
    import scaled_idempotence as si

    assert {"open_model", "survey", "closure", "fetch", "LayerFactors"} <= set(si.__all__)
    for name in si.__all__:
        assert getattr(si, name) is not None
        assert getattr(si, name).__doc__
