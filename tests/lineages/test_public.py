"""Public lineages against the loopback hub, with faults of the kind that public ones have."""

import json

import huggingface_hub
import numpy as np
import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file

import scaled_idempotence as si
from scaled_idempotence.checkpoints import registry
from scaled_idempotence.errors import CheckpointError, FetchError
from scaled_idempotence.lineages import public
from scaled_idempotence.lineages.audit import compare_contents
from scaled_idempotence.lineages.series import spread
from tests.checkpoints import tiny
from tests.checkpoints.test_hub import server, use, waits  # noqa: F401 (fixtures)

REPO = "EleutherAI/pythia-14m"
STEPS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 2000, 3000)


@pytest.fixture(scope="module")
def model():
    return tiny.make("gpt_neox", num_hidden_layers=2)


def files_of(model, seed, folder, **options):
    """Files of the model with other attention weights."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    model.save_pretrained(folder, **options)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def pythia(server, model, tmp_path):  # noqa: F811
    """step0 = step1, and step64 to step512 serve the final weights."""
    contents = {step: files_of(model, step, tmp_path / str(step)) for step in STEPS if step != 1}
    contents[1] = contents[0]
    for step in (64, 128, 512):
        contents[step] = contents[3000]
    for step, files in contents.items():
        server.push(REPO, files, f"step{step}")
    server.push(REPO, contents[3000] | {"README.md": b"x"}, "main")
    server.push(REPO, contents[8] | {"README.md": b"y"}, "some-other-branch")
    server.contents = contents
    return server


def large_bytes(server):  # noqa: F811
    return sum(n for name, n in server.sent.items() if name.endswith((".safetensors", ".bin")))


def test_repeats_are_named_and_left_out(pythia, tmp_path):
    result = si.trajectory(
        REPO, [0, 1, 8, 64, 256, 512, 3000], top=0.25, results_dir=tmp_path, progress=False
    )
    status = result.checkpoints.set_index("revision").status.to_dict()
    assert status == {
        "step0": "used",
        "step1": "duplicate of step0",
        "step8": "used",
        "step64": "impossible repeat of step3000",
        "step256": "used",
        "step512": "impossible repeat of step3000",
        "step3000": "used",
    }
    assert sorted(result.heads.step.unique()) == [0, 8, 256, 3000]
    # What is used is what the branch holds.
    step = result.heads[result.heads.step == 8]
    with_step = si.survey(si.open_model(REPO, revision="step8"), progress=False)
    np.testing.assert_allclose(step.closure, with_step.closure, rtol=1e-12)
    commits = result.checkpoints.set_index("revision").commit
    assert commits["step8"] == pythia.repositories[REPO].refs["step8"]
    written = si.load_result(tmp_path, "all-models", "trajectory_checkpoints")
    assert written.status.tolist() == list(status.values())


def test_nothing_large_is_fetched_to_find_them(pythia):
    lineage = public.public_lineage(REPO, 5)
    assert large_bytes(pythia) == 0
    assert lineage.steps[0] == 0
    assert lineage.steps[-1] == 3000
    # A neighbour has taken the place of whatever is left out.
    assert len(lineage.steps) == 5
    for left in lineage.left_out:
        assert left.checkpoint.step in (1, 64, 128, 512)
        assert "of step" in left.status
    assert not {1, 64, 128, 512} & set(lineage.steps)


def test_repeats_show_without_hashes_of_files_too(pythia):
    """Then the factors themselves are compared, as they were read."""
    pythia.repositories[REPO].without_hashes = True
    result = si.trajectory(REPO, [0, 8, 64, 3000], top=0.25, progress=False)
    assert result.checkpoints.status.tolist() == [
        "used",
        "used",
        "impossible repeat of step3000",
        "used",
    ]


def test_a_single_shard_of_the_final_weights_is_enough(server, model, tmp_path):  # noqa: F811
    for step in (0, 1000, 2000, 3000):
        files = files_of(model, step, tmp_path / str(step), max_shard_size="4KB")
        shards = sorted(name for name in files if name.endswith(".safetensors"))
        assert len(shards) > 1
        if step == 1000:
            mixed = files
        server.push(REPO, files, f"step{step}")
    mixed[shards[0]] = files[shards[0]]
    server.push(REPO, mixed, "step1000")
    server.push(REPO, files, "main")
    lineage = public.public_lineage(REPO, [0, 1000, 2000, 3000])
    assert lineage.steps == [0, 2000, 3000]
    (left,) = lineage.left_out
    assert left.status == f"impossible repeat of step3000 (1 of {len(shards)} parts)"


def test_a_lineage_of_bin_files_works(server, model, tmp_path):  # noqa: F811
    reference = {}
    for step in (0, 1000, 3000):
        files = files_of(model, step, tmp_path / str(step))
        weights = load_file(tmp_path / str(step) / "model.safetensors")
        torch.save(weights, tmp_path / "w")
        reference[step] = tmp_path / str(step)
        pushed = {"config.json": files["config.json"], "pytorch_model.bin": b""}
        pushed["pytorch_model.bin"] = (tmp_path / "w").read_bytes()
        server.push(REPO, pushed, f"step{step}")
        if step == 3000:
            server.push(REPO, pushed, "step2000")
            server.push(REPO, pushed, "main")
    found = si.trajectory(REPO, [0, 1000, 2000, 3000], top=0.25, progress=False)
    assert found.checkpoints.status.tolist() == [
        "used",
        "used",
        "impossible repeat of step3000",
        "used",
    ]
    own = si.trajectory(reference, top=0.25, progress=False)
    np.testing.assert_array_equal(found.heads.closure, own.heads.closure)


def test_without_a_network_what_was_found_is_found_again(pythia, monkeypatch):
    before = public.public_lineage(REPO, 4)
    huggingface_hub.close_session()
    pythia.stop()
    monkeypatch.setattr("scaled_idempotence.checkpoints.hub.client.MAX_RETRIES", 0)
    with pytest.warns(UserWarning, match="for the revisions of EleutherAI/pythia-14m"):
        assert public.public_lineage(REPO, 4) == before
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert public.public_lineage(REPO, 4).steps == before.steps
    with pytest.raises(FetchError):
        public.public_lineage("EleutherAI/pythia-70m", 4)


def test_what_does_not_exist_is_told(pythia):
    with pytest.raises(CheckpointError, match=r"no step 3; it has 14 from 0 to 3000"):
        public.public_lineage(REPO, [3])
    with pytest.raises(CheckpointError, match="someone/model is in no known lineage"):
        si.trajectory("someone/model")
    with pytest.raises(CheckpointError, match="no live lineage 'live-xyz'; there are live-mha"):
        si.trajectory("live-xyz")
    pythia.push("EleutherAI/pythia-31m", {"config.json": b"{}"})
    with pytest.raises(CheckpointError, match="no revision of EleutherAI/pythia-31m is a step"):
        public.steps_of("EleutherAI/pythia-31m")


# The registry's patterns


@pytest.mark.parametrize(
    ("repo", "names", "ordered"),
    [
        (
            "EleutherAI/pythia-2.8b-deduped",
            ["main", "step1000", "step16", "step0", "step143000", "step2000"],
            [(0, "step0"), (16, "step16"), (1000, "step1000"), (2000, "step2000"),
             (143000, "step143000")],
        ),
        (
            "allenai/OLMo-1B-hf",
            ["main", "step20000-tokens84B", "step5000-tokens21B", "step738000-tokens3094B"],
            [(5000, "step5000-tokens21B"), (20000, "step20000-tokens84B"),
             (738000, "step738000-tokens3094B")],
        ),
        (
            "allenai/OLMo-2-1124-7B",
            ["main", "stage1-step150-tokens1B", "step1000-tokens5B", "stage1-step1000-tokens5B",
             "stage2-ingredient1-step500-tokens3B", "stage2-ingredient2-step900-tokens4B",
             "stage2-ingredient1-step1000-tokens5B"],
            [(150, "stage1-step150-tokens1B"), (1000, "stage1-step1000-tokens5B"),
             (1500, "stage2-ingredient1-step500-tokens3B"),
             (2000, "stage2-ingredient1-step1000-tokens5B")],
        ),
        (
            "TinyLlama/tinyLlama-intermediate-checkpoints",
            ["main", "step-720k-token-1510B", "step-10k-token-21B"],
            [(10_000, "step-10k-token-21B"), (720_000, "step-720k-token-1510B")],
        ),
        (
            "HuggingFaceTB/SmolLM3-3B-checkpoints",
            ["stage2-step-3480000", "stage1-step-40000", "lc-4k-to-32k-step-4000", "main",
             "stage1-step-3440000"],
            [(40000, "stage1-step-40000"), (3440000, "stage1-step-3440000"),
             (3480000, "stage2-step-3480000")],
        ),
        ("LLM360/Amber", ["main", "ckpt_358", "ckpt_000"], [(0, "ckpt_000"), (358, "ckpt_358")]),
        (
            "swiss-ai/Apertus-8B-2509",
            ["step50000-tokens210B", "main"],
            [(50000, "step50000-tokens210B")],
        ),
    ],
)  # fmt: skip
def test_revisions_are_put_in_the_order_of_training(repo, names, ordered):
    assert registry.lineage_of(repo).order(names) == ordered


def test_tinyllama_has_a_repository_a_step():
    steps = public.steps_of("tinyllama-1.1b")
    assert steps[-1].source == registry.MODELS["tinyllama-1.1b"].repo
    assert [one.step for one in steps] == sorted(one.step for one in steps)
    assert steps[-1].step == 1_431_000


def test_checkpoints_are_spread_over_log_steps():
    pythia = [0, *(2**n for n in range(10)), *range(1000, 144_000, 1000)]
    chosen = [pythia[places[0]] for places in spread(pythia, 4)]
    assert chosen == [0, 64, 3000, 143000]
    assert [places[0] for places in spread(pythia, 1)] == [len(pythia) - 1]
    assert len({places[0] for places in spread([1, 2, 3], 9)}) == 3
    for k in range(2, 40):
        first = [places[0] for places in spread(pythia, k)]
        assert len(set(first)) == k
        assert {0, len(pythia) - 1} <= set(first)
    with pytest.raises(ValueError, match="at least 1"):
        spread(pythia, 0)


# The comparison


def statuses(*contents, positions=None):
    parts = [dict(enumerate(one)) for one in contents]
    return [verdict.status.split()[0] for verdict in compare_contents(parts, positions)]


def test_what_counts_as_a_repeat():
    assert statuses("ab", "cd", "ef") == ["used"] * 3
    assert statuses("ab", "ab", "cd", "ef") == ["used", "duplicate", "used", "used"]
    assert statuses("ab", "ab", "ab", "ef") == ["used", "duplicate", "duplicate", "used"]
    # Equal, but with steps between that are not looked at: no warmup lasts that long.
    assert statuses("ab", "ab", "ef", positions=[0, 9, 10]) == ["impossible", "impossible", "used"]
    assert statuses("ab", "cd", "ab", "ef") == ["impossible", "used", "impossible", "used"]
    assert statuses("ab", "ax", "cd") == ["impossible", "impossible", "used"]
    assert statuses("ab", "cx", "ef", "yx") == ["used", "impossible", "used", "used"]
    assert statuses("ab", "cd", "cd") == ["used", "impossible", "used"]
    assert statuses("", "", "ab") == ["used"] * 3


def test_cached_answers_are_whole_json(pythia, empty_cache):
    public.public_lineage(REPO, 3)
    kept = list((registry.repo_folder(REPO) / "lineage").iterdir())
    assert len(kept) >= 4
    for path in kept:
        json.loads(path.read_text())
