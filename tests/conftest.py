"""Fixtures shared by all tests. Bundled models come through the package's own `fetch`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]

# LAPACK's first call is slow and two cores are shared: no example is a flake for taking long.
settings.register_profile("default", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("default")


def pytest_addoption(parser):
    parser.addoption("--run-site", action="store_true", help="also test the built book")
    parser.addoption("--run-colab", action="store_true", help="also run each notebook alone")


def pytest_collection_modifyitems(config, items):
    reasons = {
        "site": "needs a built book: make book test-site",
        "colab": "installs an environment of its own: make test-colab",
    }
    for folder, reason in reasons.items():
        if not config.getoption(f"--run-{folder}"):
            for item in items:
                if Path(item.path).is_relative_to(ROOT / "tests" / folder):
                    item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def surveys():
    """Surveys of the bundled models, each made once in a session."""
    import scaled_idempotence as si

    made = {}

    def get(name: str):
        if name not in made:
            made[name] = si.survey(si.open_model(name), progress=False)
        return made[name]

    return get


@pytest.fixture(scope="session")
def running_smollm2():
    """The default model, running, with what it did on its default text; loaded once."""
    import scaled_idempotence as si
    from scaled_idempotence.running.text import segments

    model = si.open_model("smollm2-135m")
    running = si.run_model(model)
    return SimpleNamespace(
        model=model,
        running=running,
        segments=segments(running, None, 8, 256),
        activations=si.activations(
            si.open_model(running.module), tokenizer=running.tokenizer, progress=False
        ),
    )


@pytest.fixture
def broken_copy(tmp_path, root):
    """A copy of the parts of the repository that the gates read, to be broken on purpose."""
    target = tmp_path / "copy"
    ignore = shutil.ignore_patterns(".venv", "_build", "executed", "results", "failed", ".git*")
    shutil.copytree(root, target, ignore=ignore)
    return target


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """A cache folder of the test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("SCALED_IDEMPOTENCE_CACHE", str(folder))
    return folder


@pytest.fixture(autouse=True, scope="session")
def offline_hub():
    """No test reaches the hub, whatever a library would like to look up."""
    os.environ["HF_HUB_OFFLINE"] = "1"
