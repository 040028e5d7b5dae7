"""A finished table is read if its identity is the same, and made anew if anything of it is not."""

import os
import shutil
import time
from dataclasses import replace

import pandas as pd
import pytest

import scaled_idempotence as si
from scaled_idempotence.compute import identity as identities
from scaled_idempotence.compute import study
from scaled_idempotence.compute.study import Experiment, Plan, differences
from scaled_idempotence.experiments import survey as survey_module
from scaled_idempotence.experiments.survey import survey_layer
from scaled_idempotence.publish.inventory import experiments

MODEL = "minilm-l6"
MODULE = "scaled_idempotence.experiments.survey"


class Counted:
    """An experiment that counts the layers it computes, and may be stopped before one of them."""

    def __init__(self, folder, stop_at=None, code=None, finish=None):
        self.computed = []
        self.stop_at = stop_at
        kind = type("Fixed", (Experiment,), {"code": lambda _: code}) if code else Experiment
        self.experiment = kind(MODULE, self.part, finish=finish)
        self.options = {"results_dir": folder, "progress": False}

    def part(self, layer, **_):
        if layer.index == self.stop_at:
            raise KeyboardInterrupt
        self.computed.append(layer.index)
        return survey_layer(layer)

    def run(self, model=None, parameters=None, **options):
        try:
            return self.experiment.table(
                model or si.open_model(MODEL), parameters, **self.options | options
            )
        except KeyboardInterrupt:
            return None


def test_an_interrupted_run_goes_on_and_gives_the_same_bits(tmp_path):
    whole = Counted(tmp_path / "whole").run()
    cut = Counted(tmp_path / "cut", stop_at=4)
    assert cut.run() is None
    assert cut.computed == [0, 1, 2, 3]
    assert not (tmp_path / "cut" / MODEL / "survey.parquet").exists()
    cut = Counted(tmp_path / "cut")
    table = cut.run()
    assert cut.computed == [4, 5]
    pd.testing.assert_frame_equal(table, whole, check_exact=True)
    again = si.load_result(tmp_path / "cut", MODEL, "survey")
    pd.testing.assert_frame_equal(again, whole, check_exact=True)
    left = {p.name for p in (tmp_path / "cut" / MODEL).iterdir()}
    assert left == {"survey.parquet", ".lock"}


def test_layers_of_other_parameters_or_code_are_not_taken(tmp_path):
    Counted(tmp_path, stop_at=4).run(parameters={"draws": 2})
    for others, options in (({"draws": 3}, {}), ({"draws": 2}, {"code": {"linalg.closure": "x"}})):
        again = Counted(tmp_path, stop_at=4, **options)
        again.run(parameters=others)
        assert again.computed == [0, 1, 2, 3]


@pytest.mark.parametrize("content", [b"", b"PAR1 half a file"])
def test_a_damaged_layer_is_computed_again(tmp_path, content):
    whole = Counted(tmp_path / "whole").run()
    Counted(tmp_path, stop_at=4).run()
    (part,) = (tmp_path / MODEL).glob(".survey-*")
    (part / "0002-survey.parquet").write_bytes(content)
    resumed = Counted(tmp_path)
    table = resumed.run()
    assert resumed.computed == [2, 4, 5]
    pd.testing.assert_frame_equal(table, whole, check_exact=True)


def test_a_finished_table_is_read_and_not_written_again(tmp_path):
    made = Counted(tmp_path).run()
    path = tmp_path / MODEL / "survey.parquet"
    before = path.stat().st_mtime_ns, path.read_bytes()
    again = Counted(tmp_path)
    read = again.run()
    assert again.computed == []
    assert (path.stat().st_mtime_ns, path.read_bytes()) == before
    pd.testing.assert_frame_equal(read, made, check_exact=True)
    assert read.attrs == made.attrs


@pytest.mark.parametrize("change", ["parameters", "norm", "code", "damage", "force"])
def test_whatever_can_change_numbers_makes_the_table_anew(tmp_path, change):
    Counted(tmp_path).run(parameters={"draws": 2})
    model, options, given, code = si.open_model(MODEL), {}, {"draws": 2}, None
    if change == "parameters":
        given = {"draws": 3}
    elif change == "norm":
        model.norm = "other"
        (tmp_path / MODEL).rename(tmp_path / model.label)
    elif change == "code":
        code = {"experiments.survey": "other"}
    elif change == "damage":
        (tmp_path / MODEL / "survey.parquet").write_bytes(b"PAR1")
    else:
        options["force"] = True
    again = Counted(tmp_path, code=code)
    again.run(model, given, **options)
    assert again.computed == [0, 1, 2, 3, 4, 5]


def test_a_forced_run_makes_a_table_once_however_many_pages_ask(tmp_path, monkeypatch):
    Counted(tmp_path).run()
    path = tmp_path / MODEL / "survey.parquet"
    os.utime(path, (time.time() - 60,) * 2)
    monkeypatch.setenv(study.FORCE_VARIABLE, repr(time.time() - 30))
    first, second = Counted(tmp_path), Counted(tmp_path)
    first.run()
    second.run()
    assert (len(first.computed), len(second.computed)) == (6, 0)


def test_what_could_not_be_had_is_tried_again(tmp_path):
    def run(reason):
        counted = Counted(tmp_path)
        model = si.open_model(MODEL)
        remarks = {"measured": not reason, "reason": reason}
        counted.run(model, plan=lambda: Plan.by_layer(model, **remarks))
        return len(counted.computed)

    assert [run(reason) for reason in ("no tokenizer", "no tokenizer", "", "")] == [6, 0, 6, 0]


def test_parts_that_a_killed_run_left_behind_go(tmp_path):
    stopped = Counted(tmp_path, stop_at=4)
    stopped.run()
    (part,) = (tmp_path / MODEL).glob(".survey-*")
    kept = {file.name: file.read_bytes() for file in part.iterdir()}
    Counted(tmp_path).run()
    part.mkdir()
    for name, content in kept.items():
        (part / name).write_bytes(content)
    again = Counted(tmp_path)
    again.run()
    assert again.computed == []
    assert not part.exists()


def test_an_option_that_does_not_exist_is_told():
    with pytest.raises(TypeError, match="reslts_dir"):
        si.survey(si.open_model(MODEL), reslts_dir="results")


# --- code -----------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path, monkeypatch, root):
    """A copy of the package's source that may be edited."""
    source = root / "src" / "scaled_idempotence"
    copy = tmp_path / "scaled_idempotence"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(identities, "_ROOT", copy)

    def edit(file, old, new):
        text = (copy / file).read_text()
        assert old in text
        (copy / file).write_text(text.replace(old, new, 1))
        clear()

    def clear():
        identities._module.cache_clear()
        identities._exports.cache_clear()

    clear()
    yield edit
    monkeypatch.undo()
    clear()


def codes():
    return {experiment.name: experiment.code() for experiment in experiments().values()}


def changed(before):
    after = codes()
    return {name for name, code in after.items() if code != before[name]}


FUTURE = "from __future__ import annotations\n"


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("plots/style.py", FUTURE, f"{FUTURE}COLOUR = 'red'\n"),
        ("claims/scoreboard.py", FUTURE, f"{FUTURE}NOTHING = 1\n"),
        ("publish/batch.py", FUTURE, f"{FUTURE}NOTHING = 1\n"),
        ("cli.py", FUTURE, f"{FUTURE}NOTHING = 1\n"),
        ("linalg/closure.py", '"""', '"""Another sentence. '),
        ("linalg/closure.py", FUTURE, f"# a comment\n{FUTURE}"),
    ],
)
def test_what_makes_no_numbers_changes_no_identity(package, file, old, new):
    before = codes()
    package(file, old, new)
    assert changed(before) == set()


def test_a_constant_changes_the_tables_that_depend_on_it_and_no_others(package):
    before = codes()
    package("experiments/function.py", "HIGHEST_SHARE = 0.05", "HIGHEST_SHARE = 0.06")
    assert changed(before) == {"function"}
    package("linalg/capacity.py", FUTURE, f"{FUTURE}NOTHING = 1\n")
    assert changed(before) >= {"function", "attainment", "trajectory"}
    assert "survey" not in changed(before)


def test_differences_are_named(package):
    before = {"weights": "a", "parameters": {"draws": 3}, "code": codes()["survey"]}
    package("linalg/closure.py", FUTURE, f"{FUTURE}NOTHING = 1\n")
    after = {"weights": "b", "parameters": {"draws": 4, "top": 1}, "code": codes()["survey"]}
    assert differences(before, after) == [
        "weights",
        "parameter draws",
        "parameter top",
        "code of linalg.closure",
    ]


def test_a_notebooks_code_names_the_modules_that_its_page_depends_on():
    source = "import scaled_idempotence as si\nsi.plots.landscape(si.survey(model))"
    assert identities.modules_of(source) == ["experiments.survey", "plots.constructive_search"]
    used = identities.code_of(*identities.modules_of(source))
    assert "linalg.closure" in used
    assert "plots.value_sharing" not in used


@pytest.mark.parametrize(
    ("source", "modules"),
    [
        ("import scaled_idempotence.linalg.closure as c", ["linalg.closure"]),
        ("from scaled_idempotence.linalg import closure", ["linalg.closure"]),
        ("import scaled_idempotence as si\np = si.plots\nsi.plots.set_theme()", None),
        ("import torch\ntorch.nn.Linear", []),
        ("from scaled_idempotence.nothing import at_all", []),
    ],
)
def test_modules_are_found_however_they_are_reached(source, modules):
    expected = ["plots", "plots.style"] if modules is None else modules
    assert identities.modules_of(source) == expected


def test_a_declaration_is_frozen():
    with pytest.raises(AttributeError):
        survey_module.EXPERIMENT.part = None
    assert replace(survey_module.EXPERIMENT, unit="x").unit == "x"
