"""Layers computed by threads, by processes and by a Dask cluster, of which some are killed."""

import contextlib
import os
import random
import signal
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import pandas as pd
import pytest
import torch

import scaled_idempotence as si
import scaled_idempotence.checkpoints.folder
import scaled_idempotence.experiments.attainment  # imported once, by the process that forks
from scaled_idempotence.cli import app
from scaled_idempotence.compute import executors
from scaled_idempotence.compute.study import Experiment
from scaled_idempotence.errors import CheckpointError, ScaledIdempotenceError
from scaled_idempotence.experiments.survey import survey_layer
from scaled_idempotence.publish import batch

MODEL = "minilm-l6"
EXPERIMENTS = {
    "survey": si.survey,
    "cores": si.cores,
    "support": si.support,
    "factorial": si.factorial,
    "orientation": si.orientation,
    "sharing": lambda *args, **options: si.sharing(*args, **options).anchors,
    "attainment": lambda *args, **options: si.attainment(*args, max_steps=3, **options),
    "activations": lambda *args, **options: si.activations(
        *args, n_segments=2, length=16, **options
    ),
    "function": lambda *args, **options: (
        si.function(*args, n_segments=2, length=16, draws=1, single_heads=1, **options).effects
    ),
}


@pytest.fixture
def one_thread():
    """As in a worker, so that sums are made in the same order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(
        2, get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        yield pool


@pytest.fixture
def cluster():
    """Two worker processes of Dask on loopback, each with one thread."""
    distributed = pytest.importorskip("distributed")
    executors.dask_executor.cache_clear()
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(2, timeout=120)
        yield client


def same(table, whole):
    pd.testing.assert_frame_equal(table, whole, check_exact=True)
    assert table.attrs == whole.attrs


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_processes_give_the_same_bits(name, processes, one_thread):
    model = si.open_model(MODEL)
    whole = EXPERIMENTS[name](model, progress=False)
    same(EXPERIMENTS[name](model, progress=False, executor=processes), whole)


def test_threads_share_the_open_model(one_thread):
    for source in (MODEL, "smollm2-135m"):
        model = si.open_model(source)
        with ThreadPoolExecutor(4) as pool:
            same(si.survey(model, progress=False, executor=pool), si.survey(model, progress=False))


def test_a_folder_is_reopened_by_its_absolute_path(tmp_path, monkeypatch, processes, one_thread):
    folder = si.fetch(MODEL)
    (tmp_path / "a-model").symlink_to(folder)
    monkeypatch.chdir(tmp_path)  # where no worker is
    model = si.open_model("a-model", norm="raw")
    same(si.survey(model, progress=False, executor=processes), si.survey(model, progress=False))


def test_a_worker_that_sees_other_weights_is_told(tmp_path, processes):
    model = si.open_model(MODEL)
    model._weights_id = "sha256:0"
    with pytest.raises(CheckpointError, match=r"sees another model .*|expected sha256:0"):
        si.survey(model, progress=False, executor=processes)


def test_a_model_in_memory_cannot_travel(processes):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=8,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
    )
    model = si.open_model(LlamaForCausalLM(config))
    with pytest.raises(CheckpointError, match="save it with save_pretrained"):
        si.survey(model, progress=False, executor=processes)
    with ThreadPoolExecutor(2) as pool:
        assert len(si.survey(model, progress=False, executor=pool)) == 4


def fail_at(layer, which, marker):
    """Kill the worker at one layer, the first time only."""
    if layer.index == which:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            os.kill(os.getpid(), signal.SIGKILL)
    return survey_layer(layer)


FAILING = Experiment("scaled_idempotence.experiments.survey", fail_at)


def test_a_killed_process_loses_no_finished_layer(tmp_path, one_thread):
    model = si.open_model(MODEL)
    whole = si.survey(model, progress=False)
    options = {
        "results_dir": tmp_path,
        "progress": False,
        "parameters": {"which": 3, "marker": str(tmp_path / "killed")},
    }

    def pool():
        return ProcessPoolExecutor(
            1, get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
        )

    with (
        pool() as executor,
        pytest.raises(ScaledIdempotenceError, match=r"3 of 6 parts .* those are kept"),
    ):
        FAILING.table(model, executor=executor, **options)
    with pool() as executor:
        table = FAILING.table(model, executor=executor, **options)
    pd.testing.assert_frame_equal(table, whole, check_exact=True)


def test_dask_gives_the_same_bits_and_survives_a_killed_worker(cluster, tmp_path, one_thread):
    model = si.open_model(MODEL)
    executor = cluster.get_executor()
    for name in ("survey", "orientation", "attainment"):
        whole = EXPERIMENTS[name](model, progress=False)
        same(EXPERIMENTS[name](model, progress=False, executor=executor), whole)

    marker = tmp_path / "killed"
    table = FAILING.table(
        model,
        results_dir=tmp_path / "results",
        progress=False,
        executor=executor,
        parameters={"which": 3, "marker": str(marker)},
    )
    assert marker.exists()
    whole = si.survey(model, progress=False)
    pd.testing.assert_frame_equal(table, whole, check_exact=True)


def test_the_command_takes_a_cluster(cluster, tmp_path, monkeypatch, one_thread):
    from typer.testing import CliRunner

    address = cluster.scheduler.address
    out = tmp_path / "survey.parquet"
    result = CliRunner().invoke(app, ["survey", MODEL, "--dask", address, "--out", str(out)])
    assert result.exit_code == 0, result.output
    whole = si.survey(si.open_model(MODEL), progress=False)
    pd.testing.assert_frame_equal(pd.read_parquet(out), whole, check_exact=True)
    computed = cluster.run_on_scheduler(
        lambda dask_scheduler: [
            entry[0] for entry in dask_scheduler.transition_log if entry[2] == "memory"
        ]
    )
    assert sum("read_and_score" in str(key) for key in computed) == 6
    outcomes = batch.run([MODEL], notebooks=["survey"], out=tmp_path, progress=False, dask=address)
    assert [outcome.status for outcome in outcomes] == ["executed"]
    table = si.load_result(tmp_path / "results", MODEL, "survey")
    pd.testing.assert_frame_equal(table, whole, check_exact=True)
    assert "SCALED_IDEMPOTENCE_DASK" not in os.environ
    executors.dask_executor(address)._client.close()


def test_what_is_missing_for_a_cluster_is_said(monkeypatch):
    executors.dask_executor.cache_clear()
    with pytest.raises(ScaledIdempotenceError, match="no Dask scheduler answers at 'nonsense'"):
        executors.dask_executor("nonsense")
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(ScaledIdempotenceError, match=r"scaled-idempotence\[cluster\]"):
        executors.dask_executor("tcp://127.0.0.1:1")


# --- kill -9 at random points ---------------------------------------------------------------------


def run_in_child(name, folder, started):
    """Run an experiment as a user's process would; the parent kills it at some point."""
    torch.set_num_threads(1)
    model = si.open_model(MODEL)
    # Whatever is imported on the way: else most kills would fall before the first layer.
    si.survey(model, progress=False, results_dir=f"{folder}-warm")
    started.set()
    EXPERIMENTS[name](model, progress=False, results_dir=folder)


@pytest.fixture(scope="module")
def forkserver():
    """Processes that start in a moment, from one that has imported everything and done nothing."""
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


@pytest.mark.parametrize("name", ["survey", "attainment"])
def test_kill_9_at_any_point_and_again_gives_the_same_bits(name, forkserver, tmp_path, one_thread):
    table_name = f"{name}.parquet"
    model = si.open_model(MODEL)
    whole = EXPERIMENTS[name](model, progress=False, results_dir=tmp_path / "whole")
    reference = (tmp_path / "whole" / MODEL / table_name).read_bytes()

    def start(folder):
        started = forkserver.Event()
        process = forkserver.Process(target=run_in_child, args=(name, folder, started))
        process.start()
        assert started.wait(120)
        return process

    def seconds(folder):
        process, begun = start(folder), time.monotonic()
        process.join()
        return time.monotonic() - begun

    duration = min(seconds(tmp_path / f"timed{i}") for i in range(2))
    rng = random.Random(0)
    kills = resumed = 0
    for trial in range(60):
        folder = tmp_path / f"{trial}"
        process = start(folder)
        process.join(duration * rng.random())
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL  # else it was sooner done than before
        resumed += bool(list(folder.glob(f"{MODEL}/.{name}-*/*.parquet")))
        same(EXPERIMENTS[name](model, progress=False, results_dir=folder), whole)
        path = folder / MODEL / table_name
        assert path.read_bytes() == reference
        assert {p.name for p in path.parent.iterdir()} == {table_name, ".lock"}
        if kills == 20:
            break
    assert kills == 20
    assert resumed >= 5  # else nothing was tested


def test_two_runs_into_one_folder_end_well(forkserver, tmp_path, one_thread):
    whole = si.survey(si.open_model(MODEL), progress=False)
    for trial in range(3):
        folder = tmp_path / str(trial)
        started = forkserver.Event()  # kept here, since the children look it up when they start
        runs = [
            forkserver.Process(target=run_in_child, args=("survey", folder, started))
            for _ in range(3)
        ]
        for run in runs:
            run.start()
        for run in runs:
            run.join()
        assert [run.exitcode for run in runs] == [0, 0, 0]
        same(si.load_result(folder, MODEL, "survey"), whole)
        assert {p.name for p in (folder / MODEL).iterdir()} == {"survey.parquet", ".lock"}
