"""What CI does for a fork: a list of models in, a job a model, notebooks and tables out, Pages."""

import json
import shutil
import subprocess

import pytest
import yaml


def workflow(root, name):
    # YAML reads the key `on` as a boolean.
    text = (root / ".github/workflows" / f"{name}.yml").read_text(encoding="utf-8")
    return yaml.safe_load(text.replace("\non:\n", "\n'on':\n"))


def uses(job, action):
    return [step for step in job["steps"] if step.get("uses", "").startswith(f"{action}@")]


def test_the_papermill_workflow_takes_models_and_uploads_what_each_gave(root):
    jobs = workflow(root, "papermill")["jobs"]
    assert "models" in workflow(root, "papermill")["on"]["workflow_dispatch"]["inputs"]
    assert (
        jobs["run"]["strategy"]["matrix"]["model"] == "${{ fromJSON(needs.list.outputs.models) }}"
    )
    (command,) = [step["run"] for step in jobs["run"]["steps"] if "run" in step]
    assert command.startswith('make run MODEL="$MODEL"')
    (upload,) = uses(jobs["run"], "actions/upload-artifact")
    assert {"executed/", "results/"} <= set(upload["with"]["path"].split())
    assert uses(jobs["book"], "actions/download-artifact")
    assert uses(jobs["deploy"], "actions/deploy-pages")


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is on GitHub's runners")
@pytest.mark.parametrize(
    ("text", "models"),
    [
        ("smollm2-135m  minilm-l6 ", ["smollm2-135m", "minilm-l6"]),
        ('org/name a"; rm x', ["org/name", 'a";', "rm", "x"]),
    ],
)
def test_the_list_of_models_is_split_at_blanks(root, tmp_path, text, models):
    (step,) = workflow(root, "papermill")["jobs"]["list"]["steps"]
    output = tmp_path / "output"
    environment = {"MODELS": text, "GITHUB_OUTPUT": str(output), "PATH": "/usr/bin:/bin"}
    subprocess.run(["bash", "-c", step["run"]], env=environment, check=True)
    assert json.loads(output.read_text().removeprefix("models=")) == models


def test_no_expression_is_pasted_into_a_shell(root):
    for path in (root / ".github/workflows").glob("*.yml"):
        for job in workflow(root, path.stem)["jobs"].values():
            for step in job["steps"]:
                assert "${{" not in step.get("run", ""), f"{path.name}: {step['run']}"


def test_every_push_publishes_the_book(root):
    book = workflow(root, "book")
    assert "push" in book["on"]
    assert uses(book["jobs"]["build"], "actions/upload-pages-artifact")
    assert uses(book["jobs"]["deploy"], "actions/deploy-pages")
