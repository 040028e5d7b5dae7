"""Live lineages: ordinary checkpoints, the same bits however a run is interrupted."""

import dataclasses
import math
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import scaled_idempotence as si
from scaled_idempotence.errors import ScaledIdempotenceError
from scaled_idempotence.lineages import live, training
from scaled_idempotence.lineages.corpus import read_corpus
from scaled_idempotence.lineages.training import Recipe, checkpoint_folder, finished, train

TINY = Recipe(
    n_layers=2, n_heads=2, n_value_heads=1, d_head=8, d_model=16, d_mlp=32, context=16, batch=2,
    steps=40, warmup=4, seed=3,
)  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was never interrupted."""
    run = tmp_path_factory.mktemp("runs") / "whole"
    train(TINY, run)
    return run


def weights(run):
    return {
        step: load_file(checkpoint_folder(run, step) / "model.safetensors")
        for step in TINY.checkpoints()
    }


def assert_same_run(run, other):
    assert finished(run) == finished(other)
    for step, tensors in weights(run).items():
        for name, tensor in weights(other)[step].items():
            assert torch.equal(tensor, tensors[name]), (step, name)
    assert [path.name for path in sorted(run.iterdir())] == [
        path.name for path in sorted(other.iterdir())
    ]


def test_checkpoints_are_at_log_spaced_steps():
    assert TINY.checkpoints() == [0, 1, 2, 4, 8, 16, 32, 40]
    steps = Recipe(steps=1000).checkpoints()
    assert steps[-3:] == [512, 768, 1000]
    positive = np.array(steps[1:])
    assert (positive[1:] / positive[:-1]).max() <= 2


def test_checkpoints_are_ordinary(whole):
    """transformers opens them, and its forward pass has the loss that the run reported."""
    from transformers import AutoModelForCausalLM

    for step in (0, 40):
        folder = checkpoint_folder(whole, step)
        model = AutoModelForCausalLM.from_pretrained(folder)
        loss = training.held_out_loss(model, TINY, read_corpus().held_out)
        assert loss == pytest.approx(finished(whole)["losses"]["held_out"][str(step)], abs=1e-5)
        opened = si.open_model(folder)
        assert (opened.topology, opened.n_layers, opened.d_head) == ("MQA", 2, 8)
        attention = model.model.layers[1].self_attn
        assert torch.equal(opened[1].V[0].T.float(), attention.v_proj.weight.detach())
        assert torch.equal(opened[1].O[1].float(), attention.o_proj.weight.detach()[:, 8:])


def test_training_trains(whole):
    losses = finished(whole)["losses"]
    assert len(losses["training"]) == TINY.steps
    assert losses["held_out"]["0"] == pytest.approx(math.log(256), abs=0.1)
    assert losses["held_out"]["40"] < losses["held_out"]["0"] - 0.2


def test_the_same_recipe_gives_the_same_bits(whole, tmp_path):
    torch.manual_seed(7)  # nothing of the process' own state matters, and nothing of it is changed
    before = torch.random.get_rng_state()
    threads = torch.get_num_threads()
    train(TINY, tmp_path / "again")
    assert_same_run(tmp_path / "again", whole)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()


def test_another_seed_gives_other_weights(whole, tmp_path):
    train(dataclasses.replace(TINY, seed=4, steps=1), tmp_path / "other")
    other = load_file(checkpoint_folder(tmp_path / "other", 1) / "model.safetensors")
    assert not torch.equal(
        other["model.embed_tokens.weight"], weights(whole)[1]["model.embed_tokens.weight"]
    )


@pytest.mark.parametrize("moments", [[0], [37], [1, 33, 39, 40]])
def test_an_interrupted_run_ends_with_the_same_bits(whole, tmp_path, moments):
    run = tmp_path / "run"
    for moment in moments:

        def stop(step, moment=moment):
            if step == moment:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(TINY, run, stop)
        assert finished(run) is None
    steps = []
    train(TINY, run, steps.append)
    # It goes on from a saved state, and does not begin anew.
    assert steps[0] == max(n for n in [*TINY.checkpoints(), 32] if n <= max(0, moments[-1] - 1))
    assert_same_run(run, whole)


@pytest.mark.parametrize("what", ["save_checkpoint", "_save_state"])
def test_an_interruption_between_the_two_saves_does_no_harm(whole, tmp_path, monkeypatch, what):
    run, calls = tmp_path / "run", []
    save = getattr(training, what)

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 6:
            raise KeyboardInterrupt
        save(*arguments)

    monkeypatch.setattr(training, what, interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(TINY, run)
    monkeypatch.undo()
    train(TINY, run)
    assert_same_run(run, whole)


def test_a_killed_process_leaves_a_run_that_goes_on(whole, tmp_path):
    import json

    run = tmp_path / "run"
    arguments = [json.dumps(dataclasses.asdict(TINY)), str(run)]
    command = [sys.executable, "-m", training.__name__, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.strip() == "19":
                process.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))
                break
    assert finished(run) is None
    assert (run / training.STATE).is_file()
    train(TINY, run)
    assert_same_run(run, whole)


def test_damage_is_noticed(whole, tmp_path):
    import shutil

    run = tmp_path / "run"
    shutil.copytree(whole, run)
    assert finished(run) is not None
    path = checkpoint_folder(run, 8) / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert finished(run) is None
    train(TINY, run)  # the state is gone, so it begins anew
    assert_same_run(run, whole)
    (run / training.LINEAGE).unlink()
    (run / training.STATE).write_bytes(b"no state")
    with pytest.warns(UserWarning, match="is damaged"):
        train(TINY, run)
    assert_same_run(run, whole)


def test_the_text_is_the_standard_library(tmp_path):
    corpus = read_corpus()
    assert len(corpus.training) > 10 * len(corpus.held_out) > 10_000
    text = corpus.training.tobytes()
    assert b"Heap queue algorithm" in text or b"Heap queue algorithm" in corpus.held_out.tobytes()
    with pytest.raises(ScaledIdempotenceError, match="holds 0 modules"):
        read_corpus(tmp_path)


def test_recipes_and_their_identity():
    ids = {
        live.live_recipe(name, steps=steps, scale=scale).run_id(read_corpus())
        for name in live.LIVE
        for steps in (None, 10)
        for scale in (1, 2)
    }
    assert len(ids) == 12
    kinds = [(r.n_heads, r.n_value_heads) for r in live.LIVE.values()]
    assert kinds == [(4, 4), (4, 2), (4, 1)]
    assert len({recipe.seed for recipe in live.LIVE.values()}) == 3
    bigger = live.live_recipe("live-mqa", scale=3)
    assert (bigger.n_heads, bigger.n_value_heads, bigger.d_model) == (12, 1, 384)
    with pytest.raises(ScaledIdempotenceError, match="no live lineage 'live-mla'; there are"):
        live.live_recipe("live-mla")
    with pytest.raises(ScaledIdempotenceError, match="at least 1"):
        live.live_recipe("live-mha", steps=0)


@pytest.fixture
def tiny_lineages(empty_cache, monkeypatch):
    recipes = {
        f"live-{kind}": dataclasses.replace(TINY, n_value_heads=G, seed=G)
        for kind, G in (("mha", 2), ("mqa", 1))
    }
    monkeypatch.setattr(live, "LIVE", recipes)
    return recipes


def test_all_are_trained_in_processes_and_found_again(tiny_lineages, capsys, monkeypatch):
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    runs = si.train_all(list(tiny_lineages))
    assert "80/80" in capsys.readouterr().err.rpartition("\r")[2]
    reference = live.cache_folder() / "in this process"
    train(tiny_lineages["live-mha"], reference)
    assert_same_run(runs["live-mha"], reference)
    monkeypatch.setattr(live, "_start", None)  # nothing is started again
    assert si.train_all(list(tiny_lineages)) == runs
    assert capsys.readouterr().err == ""
    lineage = live.live_lineage("live-mqa")
    assert lineage.steps == TINY.checkpoints()
    assert lineage.checkpoints[-1].loss < lineage.checkpoints[0].loss


def test_an_interrupt_ends_the_processes(tiny_lineages, monkeypatch):
    started = []
    start = live._start

    def spy(*arguments):
        started.append(start(*arguments))
        return started[-1]

    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(live, "_start", spy)
    monkeypatch.setattr(live.queue.Queue, "get", interrupt)
    with pytest.raises(KeyboardInterrupt):
        si.train_all(list(tiny_lineages), progress=False)
    deadline = time.monotonic() + 10
    while any(process.poll() is None for process in started):
        assert time.monotonic() < deadline
    assert len(started) == 2


def test_a_failing_process_is_told(tiny_lineages, monkeypatch):
    broken = {"live-mha": dataclasses.replace(TINY, n_heads=3, n_value_heads=2)}
    monkeypatch.setattr(live, "LIVE", broken)
    with pytest.raises(ScaledIdempotenceError, match="training live-mha ended with code 1"):
        si.train_all(["live-mha"], progress=False)
