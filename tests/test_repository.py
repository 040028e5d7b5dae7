"""One address of the repository, in one place, changed everywhere by one command."""

import importlib.util
import json
import re
import subprocess
import sys


def load(root):
    spec = importlib.util.spec_from_file_location("repository", root / "book/_ext/repository.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tracked(root):
    listing = subprocess.run(
        ["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True
    )
    return listing.stdout.split()


def test_no_file_names_another_address(root):
    """Wherever an address ends in the repository's own name, it is the one of pyproject.toml."""
    repository = load(root)
    address = repository.repository_url(root)
    name = address.rpartition("/")[2]
    named = re.compile(rf"https://github\.com/[\w.-]+/{re.escape(name)}\b")
    seen = 0
    for file in tracked(root):
        path = root / file
        if path.suffix in {".png", ".lock"} or not path.is_file():
            continue
        for found in named.findall(path.read_text(encoding="utf-8")):
            assert found == address, file
            seen += 1
    assert seen >= 4


def test_one_command_changes_it_everywhere(broken_copy):
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=broken_copy, check=True)
    repository = load(broken_copy)
    old = repository.repository_url(broken_copy)
    script = broken_copy / "book/_ext/repository.py"
    new = "https://github.com/someone/fork"
    subprocess.run([sys.executable, script, new], check=True, capture_output=True)
    assert repository.repository_url(broken_copy) == new
    assert repository.files_with(old, broken_copy) == []
    assert new in (broken_copy / "_config.yml").read_text()
    assert new in (broken_copy / "notebooks/01_closure_survey.ipynb").read_text()
    assert subprocess.run([sys.executable, script, "fork"], capture_output=True).returncode == 2


def test_the_readme_tells_what_the_rehearsal_measured(root):
    measured = json.loads((root / "benchmarks/results.json").read_text())["rehearsal"]["models"]
    large = measured["Qwen/Qwen3-235B-A22B"]
    read, whole = (large[key] / 1e9 for key in ("bytes_sent", "checkpoint_bytes"))
    assert f"{read:.1f} of the {whole:.0f} GB of Qwen3-235B" in (root / "README.md").read_text()
