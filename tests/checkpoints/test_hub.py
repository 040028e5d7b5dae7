"""Models on the hub, with the real client and a server of the tests' own."""

import json
import os
import subprocess
import sys
import types

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import scaled_idempotence as si
from scaled_idempotence import cli
from scaled_idempotence.checkpoints import registry
from scaled_idempotence.checkpoints.hub import client as hub_client
from scaled_idempotence.checkpoints.hub import folder, headers, packed, repository
from scaled_idempotence.checkpoints.hub.client import read_range
from scaled_idempotence.checkpoints.hub.folder import Range
from scaled_idempotence.checkpoints.hub.headers import Stored
from scaled_idempotence.checkpoints.reader import TensorSlice
from scaled_idempotence.errors import CheckpointError, FetchError
from scaled_idempotence.publish import batch, execution
from tests.checkpoints import tiny
from tests.checkpoints.hub_server import HubServer
from tests.checkpoints.test_faults import blockwise, quantise

REPO = "someone/tiny-llama"
# Most of it is MLP, as in real models: 0.33 MB of values and outputs in 3.9 MB.
SHAPES = {
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 64,
}


@pytest.fixture
def waits(monkeypatch):
    """Nothing waits; gives the seconds that would have been waited."""
    waited = []
    clock = types.SimpleNamespace(sleep=waited.append)
    monkeypatch.setattr("huggingface_hub.utils._http.time", clock)
    monkeypatch.setattr(hub_client, "time", clock)
    return waited


@pytest.fixture
def server(empty_cache, tmp_path, monkeypatch, waits):
    """A hub that the real client believes to be the hub, and empty caches."""
    with HubServer() as running:
        use(running, monkeypatch)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        # Three tries are enough to see that there are several.
        monkeypatch.setattr(hub_client, "MAX_RETRIES", 3)
        yield running
        huggingface_hub.close_session()


def use(running, monkeypatch):
    # What HF_ENDPOINT sets when the client is imported; a test below sets it in a process.
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", running.endpoint)
    template = running.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The same bf16 model whole and in shards."""
    parent = tmp_path_factory.mktemp("models")
    model = tiny.make("llama", **SHAPES).to(torch.bfloat16)
    model.save_pretrained(parent / "whole")
    model.save_pretrained(parent / "sharded", max_shard_size="1MB")
    assert len(list((parent / "sharded").glob("*.safetensors"))) > 2
    return parent


@pytest.fixture
def whole(folders):
    return folders / "whole"


@pytest.fixture
def sharded(folders):
    return folders / "sharded"


def assert_same(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a.O, b.O)
        assert torch.equal(a.V, b.V)


def kept(cache, model=None):
    """Files of the cache; each must be whole, and hold what the local files hold."""
    files = sorted(p for p in (cache / "hub").rglob("*") if p.is_file())
    for path in files:
        assert not path.name.startswith(".part-"), "a half-written file is left"
        if path.suffix == ".safetensors":
            packed.open_packed(path)
        elif path.suffix == ".json":
            json.loads(path.read_text())
    if model is not None:
        truth = {k: v for f in model.glob("*.safetensors") for k, v in load_file(f).items()}
        for path in files:
            if path.suffix == ".safetensors":
                for name, tensor in load_file(path).items():
                    assert torch.equal(tensor, truth[name]), name
    return [p.name for p in files]


def weight_bytes(server):
    return sum(n for name, n in server.sent.items() if name.endswith(".safetensors"))


# What is read, and how much of it


@pytest.mark.parametrize("kind", ["whole", "sharded"])
@pytest.mark.parametrize("norm", ["raw", "folded"])
def test_factors_are_those_of_the_local_files(server, empty_cache, folders, kind, norm):
    sha = server.push(REPO, folders / kind)
    opened = si.open_model(REPO, norm=norm)
    assert_same(opened, si.open_model(folders / kind, norm=norm))
    assert opened.weights_id == f"commit:{sha}"
    assert opened.name == opened.label.removesuffix("-folded") == "someone--tiny-llama"
    assert kept(empty_cache, folders / kind) == [
        "config.json",
        "headers.json",
        "layer-00000.safetensors",
        "layer-00001.safetensors",
        "main",
    ]


@pytest.mark.parametrize("kind", ["whole", "sharded"])
def test_bytes_sent_are_those_of_values_outputs_and_headers(server, folders, kind):
    server.push(REPO, folders / kind)
    opened = si.open_model(REPO)
    wanted, total = opened.sizes()
    headers = 0
    for path in (folders / kind).glob("*.safetensors"):
        with path.open("rb") as file:
            headers += 8 + int.from_bytes(file.read(8), "little")
    list(opened)
    assert wanted == 2 * 2 * (64 * 256 + 256 * 256)
    assert total > 10 * wanted
    assert wanted < weight_bytes(server) <= 1.05 * wanted + headers
    # Each request asks for a tensor or a header, none for more.
    assert all(r.range for r in server.requests if r.file.endswith(".safetensors"))


def test_opening_and_inspecting_read_headers_only(server, empty_cache, sharded):
    server.push(REPO, sharded)
    opened = si.open_model(REPO)
    read, total = opened.sizes()
    assert opened.dtypes() == ["BF16"]
    assert weight_bytes(server) < 20_000 < read < total
    assert kept(empty_cache) == ["config.json", "headers.json", "main"]
    assert (read, total) == si.open_model(sharded).sizes()


def test_the_second_opening_sends_no_weights(server, whole):
    sha = server.push(REPO, whole)
    first = list(si.open_model(REPO))
    server.forget()
    assert_same(si.open_model(REPO), first)
    assert [r.file for r in server.requests] == ["api"]  # which commit main is now
    server.forget()
    assert_same(si.open_model(REPO, revision=sha), first)
    assert server.requests == []


def test_one_layer_brings_one_layer(server, empty_cache, whole):
    server.push(REPO, whole)
    si.open_model(REPO)[1]
    assert "layer-00001.safetensors" in kept(empty_cache, whole)
    assert "layer-00000.safetensors" not in kept(empty_cache)


def test_gains_are_added_to_a_layer_that_is_there(server, empty_cache, whole):
    server.push(REPO, whole)
    list(si.open_model(REPO))
    server.forget()
    assert_same(si.open_model(REPO, norm="folded"), si.open_model(whole, norm="folded"))
    assert weight_bytes(server) == 2 * 2 * 256  # a gain a layer
    assert_same(si.open_model(REPO), si.open_model(whole))
    kept(empty_cache, whole)


def test_only_the_rows_of_a_fused_tensor_are_read(server, empty_cache, whole):
    """A part of a tensor is a range of bytes, and a neighbour is brought by the same request."""
    server.push(REPO, whole)
    reader, _ = repository.open_hub(REPO)
    name = "layers.1.self_attn.q_proj.weight"
    stored = load_file(whole / "model.safetensors")[name]
    server.forget()
    reader.prefetch([TensorSlice(name, (64, 128)), TensorSlice(name, (128, 160))])
    assert weight_bytes(server) == 96 * 256 * 2
    assert [r.status for r in server.requests] == [302, 206]
    server.forget()
    assert torch.equal(reader.read(name, (64, 128)), stored[64:128].double())
    assert torch.equal(reader.read(name, (128, 160)), stored[128:160].double())
    assert server.requests == []
    assert torch.equal(reader.read(name), stored.double())  # a whole one that was not prefetched
    assert torch.equal(reader.read(name, (0, 1)), stored[:1].double())
    with pytest.raises(ValueError, match=r"rows \(250, 260\) of a tensor of shape \(256, 256\)"):
        reader.read(name, (250, 260))
    assert "layer-00001.safetensors" in kept(empty_cache)


def test_an_interrupted_fetch_goes_on_where_it_stopped(server, empty_cache, whole, monkeypatch):
    server.push(REPO, whole)
    opened = si.open_model(REPO)
    layer_bytes = opened.sizes()[0] // 2
    server.forget()

    def interrupted(*arguments, **options):
        if weight_bytes(server) > layer_bytes:  # in the middle of the second layer
            raise KeyboardInterrupt
        return read_range(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(folder, "read_range", interrupted)
        with pytest.raises(KeyboardInterrupt):
            opened.fetch()
    assert "layer-00000.safetensors" in kept(empty_cache, whole)
    assert "layer-00001.safetensors" not in kept(empty_cache)
    server.forget()
    again = si.open_model(REPO)
    again.fetch()
    assert weight_bytes(server) == layer_bytes
    assert_same(again, si.open_model(whole))


def test_files_that_the_client_has_are_not_fetched_again(server, whole):
    sha = server.push(REPO, whole)
    for file in ("config.json", "model.safetensors"):
        huggingface_hub.hf_hub_download(REPO, file, revision=sha)
    server.forget()
    assert_same(si.open_model(REPO), si.open_model(whole))
    assert [r.file for r in server.requests] == ["api"]


def test_a_token_goes_to_the_hub_and_not_to_where_it_redirects(server, whole, monkeypatch):
    server.push(REPO, whole)
    server.repositories[REPO].token = "hf_secret"
    with pytest.raises(CheckpointError, match=r"no model 'someone/tiny-llama'.*HF_TOKEN"):
        si.open_model(REPO)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    server.forget()
    assert_same(si.open_model(REPO), si.open_model(whole))
    seen = {r.status: r.authorization for r in server.requests if r.file == "model.safetensors"}
    assert seen == {302: "Bearer hf_secret", 206: ""}


# Revisions


def test_revisions_have_their_own_weights_and_labels(server, empty_cache, whole, tmp_path):
    tiny.save("llama", tmp_path / "early")
    early = server.push(REPO, tmp_path / "early", "refs/step 5")
    server.push(REPO, whole)
    opened = si.open_model(REPO, revision="refs/step 5", norm="folded")
    assert opened.label == "someone--tiny-llama@refs--step--5-folded"
    assert opened.revision == "refs/step 5"
    assert_same(opened, si.open_model(tmp_path / "early", norm="folded"))
    assert si.open_model(REPO, revision="main").label == "someone--tiny-llama"
    assert si.open_model(REPO, revision=early).label == f"someone--tiny-llama@{early}"
    assert_same(si.open_model(REPO), si.open_model(whole))


def test_fault_a_commit_that_moves_between_two_reads(
    server, empty_cache, whole, tmp_path, monkeypatch
):
    """The opened model stays at its commit; a new opening has the new one; nothing is mixed."""
    old = server.push(REPO, whole)
    opened = si.open_model(REPO)
    first = opened[0]
    changed = {
        k: v * 2 if v.is_floating_point() else v
        for k, v in load_file(whole / "model.safetensors").items()
    }
    files = {p.name: p.read_bytes() for p in whole.iterdir()}
    save_file(changed, tmp_path / "new.safetensors", metadata={"format": "pt"})
    new = server.push(
        REPO, files | {"model.safetensors": (tmp_path / "new.safetensors").read_bytes()}
    )
    server.forget()
    second = opened[1]
    assert {r.sha for r in server.requests} == {old}
    assert_same([first, second], si.open_model(whole))
    moved = si.open_model(REPO)
    assert (opened.weights_id, moved.weights_id) == (f"commit:{old}", f"commit:{new}")
    assert torch.equal(moved[1].V, 2 * second.V)
    assert_same(si.open_model(REPO, revision=old), si.open_model(whole))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert si.open_model(REPO).weights_id == f"commit:{new}"
    kept(empty_cache)


def test_a_kernel_sees_the_commit_that_run_opened(server, whole, tmp_path, monkeypatch):
    """The branch moves after `run` opened the model and before a notebook opens it."""
    old = server.push(REPO, whole)
    files = {p.name: p.read_bytes() for p in whole.iterdir()}
    seen = []

    def execute(*arguments, **options):
        server.push(REPO, files | {"README.md": b"moved"})
        server.forget()
        seen.append(si.open_model(REPO))
        list(seen[0])
        raise RuntimeError("seen enough")

    monkeypatch.setattr(execution.papermill, "execute_notebook", execute)
    (outcome,) = batch.run([REPO], notebooks=["01"], out=tmp_path / "out", progress=False)
    assert "seen enough" in outcome.message
    assert seen[0].weights_id == f"commit:{old}"
    assert seen[0].label == outcome.model
    assert server.requests == []  # a kernel needs no network
    assert si.open_model(REPO).weights_id != f"commit:{old}"


# Without a network


@pytest.mark.parametrize("how", ["offline", "unreachable"])
def test_without_a_network_the_cache_is_enough(server, whole, monkeypatch, how):
    sha = server.push(REPO, whole)
    local = si.open_model(whole)
    si.open_model(REPO).fetch()
    if how == "offline":
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    else:
        huggingface_hub.close_session()
        server.stop()
    server.forget()
    assert_same(si.open_model(REPO, revision=sha), local)
    # A branch is the commit that it was when last asked.
    if how == "offline":
        assert_same(si.open_model(REPO), local)
    else:
        with pytest.warns(UserWarning, match=f"cannot ask.* going on with {sha}"):
            assert_same(si.open_model(REPO), local)
    with pytest.raises(FetchError, match=r"HF_HUB_OFFLINE forbids|cannot reach http://127"):
        si.open_model(REPO, revision="step5")
    with pytest.raises(FetchError, match=r"HF_HUB_OFFLINE forbids|cannot reach http://127"):
        si.open_model(REPO, revision=sha, norm="folded")[0]  # its gains are not there
    assert server.requests == []


# Refusals, each in a sentence with the way out


def test_a_missing_repository_is_told(server):
    with pytest.raises(CheckpointError, match=r"no model 'someone/typo', or it is private.*HF_TOK"):
        si.open_model("someone/typo")


def test_a_gated_repository_is_told(server, whole):
    server.push(REPO, whole)
    server.repositories[REPO].gated = True
    with pytest.raises(
        FetchError, match=f"is gated: accept its terms at {server.endpoint}/{REPO}, then set HF_TOK"
    ):
        si.open_model(REPO)


def test_a_forbidden_file_is_told(server, empty_cache, whole):
    server.push(REPO, whole)
    server.break_status("model.safetensors", 403, times=9)
    with pytest.raises(FetchError, match=r"refuses model\.safetensors of .* \(403\)"):
        si.open_model(REPO)
    assert kept(empty_cache) == ["main"]


def test_a_missing_revision_is_told_with_those_of_the_lineage(server, whole):
    server.push(REPO, whole)
    with pytest.raises(CheckpointError, match=r"no revision 'step3'. See .*/tree/main"):
        si.open_model(REPO, revision="step3")
    server.push("EleutherAI/pythia-70m", whole)
    with pytest.raises(CheckpointError, match=r"no revision 'step3'\. Its revisions are step0, "):
        si.open_model("EleutherAI/pythia-70m", revision="step3")


@pytest.mark.parametrize("shard_size", ["5GB", "1MB"])
def test_bin_only_repositories_are_downloaded_whole(
    server, whole, tmp_path, monkeypatch, shard_size
):
    """No part of a pickle can be read from afar; it goes to the client's own cache."""
    weights = load_file(whole / "model.safetensors")
    files = {"config.json": (whole / "config.json").read_bytes(), "README.md": b"old"}
    halves = [dict(list(weights.items())[n::2]) for n in range(2)]
    if shard_size == "5GB":
        torch.save(weights, tmp_path / "w")
        files["pytorch_model.bin"] = (tmp_path / "w").read_bytes()
    else:
        file_of = {}
        for n, half in enumerate(halves):
            torch.save(half, tmp_path / "w")
            files[f"pytorch_model-{n}.bin"] = (tmp_path / "w").read_bytes()
            file_of |= dict.fromkeys(half, f"pytorch_model-{n}.bin")
        files["pytorch_model.bin.index.json"] = json.dumps({"weight_map": file_of}).encode()
    sha = server.push(REPO, files)
    assert_same(si.open_model(REPO), si.open_model(whole))
    assert si.open_model(REPO).weights_id == f"commit:{sha}"
    assert "README.md" not in server.sent
    server.forget()
    assert_same(si.open_model(REPO), si.open_model(whole))
    assert not any(name.endswith(".bin") for name in server.sent)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    server.forget()
    for revision in (sha, None):
        assert_same(si.open_model(REPO, revision=revision), si.open_model(whole))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "another"))
    with pytest.raises(FetchError, match="is not in the cache, and the hub cannot be asked"):
        si.open_model(REPO)
    assert server.requests == []


def test_fused_values_are_read_without_queries_and_keys(server, empty_cache, tmp_path):
    model = tiny.make("phi3", num_attention_heads=8, num_key_value_heads=2)
    model.save_pretrained(tmp_path / "m")
    server.push(REPO, tmp_path / "m")
    opened = si.open_model(REPO)
    (values, outputs), *_ = zip(*[iter(opened.slices())] * 2, strict=True)
    assert values.rows is not None
    assert outputs.rows is None
    server.forget()
    assert_same(opened, si.open_model(tmp_path / "m"))
    wanted = opened.sizes()[0]
    first, last = values.rows
    assert wanted == len(opened) * 4 * opened.d_model * ((last - first) + 8 * opened.d_head)
    assert weight_bytes(server) == wanted
    kept(empty_cache)


def test_scales_come_with_fp8_weights(server, empty_cache, tmp_path):
    tiny.save("llama", tmp_path / "m")
    weights = load_file(tmp_path / "m" / "model.safetensors")
    for name in [n for n in weights if n.endswith("_proj.weight")]:
        scale = weights[name].abs().amax(1, keepdim=True) / 400
        weights[name] = (weights[name] / scale).to(torch.float8_e4m3fn)
        weights[name.replace("weight", "weight_scale")] = scale
    save_file(weights, tmp_path / "m" / "model.safetensors", metadata={"format": "pt"})
    server.push(REPO, tmp_path / "m")
    opened = si.open_model(REPO)
    opened.fetch()
    server.forget()
    assert_same(opened, si.open_model(tmp_path / "m"))
    assert server.requests == []
    kept(empty_cache)


# Of fused weights the rows of the values, whatever their type; interleaved ones are read whole.
FUSED = {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2}


def test_only_the_value_rows_of_a_fused_weight_are_read(server, tmp_path):
    tiny.make("phi3", **FUSED).save_pretrained(tmp_path / "m")
    server.push(REPO, tmp_path / "m")
    opened = si.open_model(REPO)
    server.sent.clear()
    opened.fetch(progress=False)
    wanted = 2 * 4 * (128 * 256 + 256 * 256)
    assert opened.sizes()[0] == wanted
    assert wanted <= weight_bytes(server) <= 1.05 * wanted
    assert_same(opened, si.open_model(tmp_path / "m"))
    server.sent.clear()
    assert_same(si.open_model(REPO), si.open_model(tmp_path / "m"))
    assert weight_bytes(server) == 0


@pytest.mark.parametrize("name", ["falcon-40b", "gpt2", "deepseek_v3", "qwen3_next", "albert"])
def test_other_layouts_are_those_of_the_local_files(server, tmp_path, name):
    tiny.save(name, tmp_path / "m")
    server.push(REPO, tmp_path / "m")
    options = {"norm": "folded"}
    opened, local = si.open_model(REPO, **options), si.open_model(tmp_path / "m", **options)
    assert opened.layers == local.layers
    assert_same(opened, local)


def test_fp8_rows_come_with_their_scales(server, tmp_path):
    tiny.make("phi3", **FUSED).save_pretrained(tmp_path / "m")
    quantise(tmp_path / "m", blockwise, "qkv_proj.weight", "o_proj.weight")
    server.push(REPO, tmp_path / "m")
    assert_same(si.open_model(REPO), si.open_model(tmp_path / "m"))


def test_a_part_of_a_model_on_the_hub(server, tmp_path):
    tiny.save("whisper-encoder", tmp_path / "m")
    server.push(REPO, tmp_path / "m")
    opened = si.open_model(f"{REPO}#encoder")
    assert (opened.part, opened.name) == ("encoder", "someone--tiny-llama-encoder")
    assert_same(opened, si.open_model(tmp_path / "m", part="encoder"))


def test_a_repository_without_weights_is_told(server):
    server.push(REPO, {"README.md": b"soon"})
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor.*holds README\.md"):
        si.open_model(REPO)


def test_a_hub_that_is_none_is_told(server, empty_cache, whole):
    server.push(REPO, whole)
    server.break_status("api", 200)
    with pytest.raises(FetchError, match=r"did not answer as a hub does.*check HF_ENDPOINT"):
        si.open_model(REPO)
    server.repositories[REPO].commits["../../evil"] = {}
    server.repositories[REPO].refs["main"] = "../../evil"
    with pytest.raises(FetchError, match=r"gave '\.\./\.\./evil' as the commit"):
        si.open_model(REPO)
    assert kept(empty_cache) == []


# Faults of the wire: the right factors or a clear error, and never a bad cache

KINDS = ["config.json", "model.safetensors"]


@pytest.mark.parametrize("n_bytes", [0, 1, 300])
@pytest.mark.parametrize("file", KINDS)
def test_fault_13_a_connection_cut_in_mid_range(server, empty_cache, whole, file, n_bytes):
    server.push(REPO, whole)
    server.cut_after(file, n_bytes, times=2)
    assert_same(si.open_model(REPO), si.open_model(whole))
    kept(empty_cache, whole)


def test_fault_13_only_the_rest_of_a_cut_range_is_asked_for(server, empty_cache, whole):
    server.push(REPO, whole)
    opened = si.open_model(REPO)
    wanted = opened.sizes()[0]
    server.forget()
    server.cut_after("model.safetensors", 20_000, times=3)
    assert_same(opened, si.open_model(whole))
    assert wanted <= weight_bytes(server) <= 1.05 * wanted
    kept(empty_cache, whole)


def test_fault_13_a_connection_that_is_always_cut_is_told(server, empty_cache, waits, whole):
    server.push(REPO, whole)
    opened = si.open_model(REPO)
    before = kept(empty_cache)
    waits.clear()
    server.cut_after("model.safetensors", 0, times=1000)
    with pytest.raises(
        FetchError, match=r"was cut 4 times at byte [\d,]+ of [\d,]+\. What was fet"
    ):
        list(opened)
    assert waits == [1, 2, 4]
    assert kept(empty_cache) == before
    server.faults.clear()
    assert_same(opened, si.open_model(whole))


@pytest.mark.parametrize("file", ["api", *KINDS])
def test_fault_13_retry_after_is_obeyed(server, empty_cache, waits, whole, file):
    server.push(REPO, whole)
    server.break_status(file, 429, times=2, Retry_After="37")
    assert_same(si.open_model(REPO), si.open_model(whole))
    assert len(waits) == 2
    assert all(37 <= seconds <= 40 for seconds in waits)
    kept(empty_cache, whole)


@pytest.mark.parametrize("status", [500, 503])
@pytest.mark.parametrize("file", ["api", *KINDS])
def test_a_server_error_for_a_while(server, empty_cache, waits, whole, file, status):
    server.push(REPO, whole)
    server.break_status(file, status, times=3)
    assert_same(si.open_model(REPO), si.open_model(whole))
    assert waits == [1, 2, 4]
    kept(empty_cache, whole)


@pytest.mark.parametrize("status", [429, 500])
def test_a_server_error_that_stays_is_told(server, empty_cache, whole, status):
    server.push(REPO, whole)
    opened = si.open_model(REPO)
    before = kept(empty_cache)
    server.break_status("model.safetensors", status, times=100)
    with pytest.raises(
        FetchError, match=rf"answered {status} for model\.safetensors.*run the same"
    ):
        list(opened)
    assert kept(empty_cache) == before
    server.faults.clear()
    assert_same(opened, si.open_model(whole))


@pytest.mark.parametrize(
    "changes",
    [
        {"content_range": "bytes 0-9/7000000"},
        {"content_range": "bytes 5-4"},
        {"status": 200},
        {"body": lambda content: content[:-5], "content_range": "bytes 0-1/2"},
    ],
    ids=["another range", "no range", "the whole file", "shorter"],
)
def test_an_answer_to_another_question_is_refused(server, empty_cache, whole, changes):
    server.push(REPO, whole)
    opened = si.open_model(REPO)
    before = kept(empty_cache)
    server.forget()
    server.tamper("model.safetensors", **changes)
    with pytest.raises(
        FetchError, match=r"asked for bytes \d+-\d+ of model.*does not serve ranges"
    ):
        list(opened)
    assert kept(empty_cache) == before
    assert_same(opened, si.open_model(whole))


def test_a_wrong_length_below_the_range(server, empty_cache, whole):
    """Less than announced, though well formed: the rest is asked for."""
    server.push(REPO, whole)
    opened = si.open_model(REPO)
    server.tamper("model.safetensors", times=2, body=lambda content: content[:-700])
    assert_same(opened, si.open_model(whole))
    kept(empty_cache, whole)


def test_a_wrong_length_above_the_range(server, empty_cache, whole):
    server.push(REPO, whole)
    opened = si.open_model(REPO)
    before = kept(empty_cache)
    server.tamper("model.safetensors", body=lambda content: content + b"more")
    with pytest.raises(FetchError, match=r"sent more of model\.safetensors"):
        list(opened)
    assert kept(empty_cache) == before
    assert_same(opened, si.open_model(whole))


def test_a_file_that_changes_its_length_within_a_commit_is_refused(server, empty_cache, whole):
    sha = server.push(REPO, whole)
    opened = si.open_model(REPO)
    before = kept(empty_cache)
    server.repositories[REPO].commits[sha]["model.safetensors"] += b"\0"
    with pytest.raises(
        CheckpointError, match=r"model\.safetensors .*bytes.* a commit does not cha"
    ):
        list(opened)
    assert kept(empty_cache) == before


def test_a_file_that_changes_its_length_while_it_is_read_is_refused(server, empty_cache, whole):
    server.push(REPO, whole)
    size = (whole / "config.json").stat().st_size
    server.cut_after("config.json", 100)
    server.tamper("config.json", content_range=f"bytes 100-{size - 1}/{size + 5}")
    with pytest.raises(CheckpointError, match=r"config\.json .*bytes and now has.*does not change"):
        si.open_model(REPO)
    assert "headers.json" not in kept(empty_cache)
    assert_same(si.open_model(REPO), si.open_model(whole))


# Faults of what was uploaded


def upload(server, folder, **changes):
    """Push a folder with files changed by name, `_` for what a keyword cannot have; None drops."""
    files = {p.name: p.read_bytes() for p in folder.iterdir()}
    for name, content in changes.items():
        files.pop(name, None) if content is None else files.update({name: content})
    return server.push(REPO, files)


def test_a_cut_upload_is_told(server, empty_cache, whole):
    content = (whole / "model.safetensors").read_bytes()
    for length in (0, 5, 8, 100, len(content) // 2, len(content) - 1):
        upload(server, whole, **{"model.safetensors": content[:length]})
        with pytest.raises((CheckpointError, FetchError), match="safetensors"):
            si.open_model(REPO)
        assert "headers.json" not in kept(empty_cache)


@pytest.mark.parametrize("content", [b"<html>not found</html>" * 9, b"\xff" * 64, bytes(64)])
def test_what_is_no_safetensors_file_is_told(server, empty_cache, whole, content):
    upload(server, whole, **{"model.safetensors": content})
    with pytest.raises(CheckpointError, match="is not a safetensors file: its first bytes"):
        si.open_model(REPO)
    assert kept(empty_cache) == ["main"]


def test_fault_14_a_shard_that_is_missing(server, empty_cache, sharded):
    shard = sorted(p.name for p in sharded.glob("*.safetensors"))[0]
    upload(server, sharded, **{shard: None})
    with pytest.raises(CheckpointError, match=f"names {shard}, which the repository does not hold"):
        si.open_model(REPO)
    assert kept(empty_cache) == ["main"]


def test_fault_14_a_shard_missing_from_the_index(server, empty_cache, sharded):
    index = json.loads((sharded / "model.safetensors.index.json").read_text())
    shard = index["weight_map"]["layers.1.self_attn.o_proj.weight"]
    index["weight_map"] = {k: v for k, v in index["weight_map"].items() if v != shard}
    upload(server, sharded, **{"model.safetensors.index.json": json.dumps(index).encode()})
    with pytest.raises(CheckpointError, match=r"lacks layers\.1\.self_attn\.\w_proj\.weight, one"):
        si.open_model(REPO)
    assert not [name for name in kept(empty_cache) if name.startswith("layer-")]


def test_fault_14_tensors_that_their_shard_does_not_hold(server, empty_cache, sharded):
    index = json.loads((sharded / "model.safetensors.index.json").read_text())
    files = sorted(set(index["weight_map"].values()))
    index["weight_map"] = dict.fromkeys(index["weight_map"], files[0])
    upload(server, sharded, **{"model.safetensors.index.json": json.dumps(index).encode()})
    with pytest.raises(CheckpointError, match="in shards that do not hold them"):
        si.open_model(REPO)
    assert kept(empty_cache) == ["main"]


@pytest.mark.parametrize(
    "shard",
    ["../outside.safetensors", "/etc/passwd", "a/b.safetensors", "..", "..\\x.safetensors"],
)
def test_fault_14_a_shard_path_outside_the_folder(server, empty_cache, sharded, shard):
    index = json.loads((sharded / "model.safetensors.index.json").read_text())
    index["weight_map"]["layers.0.self_attn.v_proj.weight"] = shard
    upload(
        server,
        sharded,
        **{"model.safetensors.index.json": json.dumps(index).encode(), shard: b"secret"},
    )
    with pytest.raises(CheckpointError, match="not a file name in the same folder"):
        si.open_model(REPO)
    assert kept(empty_cache) == ["main"]
    assert not any(shard in request.file for request in server.requests)


def with_header_of(length, folder, target):
    """Save a folder's weights again, under a header of exactly so many bytes."""
    weights = load_file(folder / "model.safetensors")

    def write(padding):
        save_file(weights, target, metadata={"format": "pt", "padding": "x" * padding})
        with target.open("rb") as file:
            return int.from_bytes(file.read(8), "little")

    # The library pads headers to eight bytes; here they get any length.
    write(length - 8 - write(0))
    content = target.read_bytes()
    had = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + had].rstrip(b" ")
    assert len(header) <= length
    return length.to_bytes(8, "little") + header.ljust(length) + content[8 + had :]


@pytest.mark.parametrize(
    "length",
    [
        *range(99_990, 100_011),
        *range(headers.FIRST_READ - 9, headers.FIRST_READ + 2),
    ],
)
def test_fault_12_headers_about_as_long_as_a_first_read(server, empty_cache, tmp_path, length):
    tiny.save("llama", tmp_path / "m")
    content = with_header_of(length, tmp_path / "m", tmp_path / "x.safetensors")
    upload(server, tmp_path / "m", **{"model.safetensors": content})
    assert_same(si.open_model(REPO), si.open_model(tmp_path / "m"))
    kept(empty_cache, tmp_path / "m")


# Faults of the cache itself


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "text"])
def test_a_damaged_cache_is_fetched_again(server, empty_cache, whole, damage):
    server.push(REPO, whole)
    list(si.open_model(REPO))
    (path,) = (empty_cache / "hub").rglob("layer-00001.safetensors")
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    damaged = {"flip": content, "cut": content[:-1], "empty": b"", "text": b"x" * 99}[damage]
    path.write_bytes(damaged)
    server.forget()
    with pytest.warns(UserWarning, match="is damaged.* It is fetched again"):
        assert_same(si.open_model(REPO), si.open_model(whole))
    assert weight_bytes(server) == si.open_model(whole).sizes()[0] // 2
    kept(empty_cache, whole)


def test_damaged_headers_are_fetched_again(server, empty_cache, whole):
    server.push(REPO, whole)
    list(si.open_model(REPO))
    (path,) = (empty_cache / "hub").rglob("headers.json")
    path.write_text(path.read_text()[:-20])
    with pytest.warns(UserWarning, match=r"headers\.json is damaged"):
        assert_same(si.open_model(REPO), si.open_model(whole))
    kept(empty_cache, whole)


def test_nothing_is_kept_that_cannot_be_opened(tmp_path):
    path = tmp_path / "x.safetensors"
    packed.write_atomically(path, packed.pack({"a": ("BF16", (2, 1), b"abcd")}), packed.open_packed)
    good = path.read_bytes()
    with pytest.raises(CheckpointError, match="is damaged"):
        packed.write_atomically(path, good[:-1], packed.open_packed)
    assert path.read_bytes() == good
    assert list(tmp_path.iterdir()) == [path]
    with safe_open(path, "pt") as file:
        assert file.get_tensor("a").shape == (2, 1)


def test_headers_that_contradict_themselves_are_refused():
    def parse(**entry):
        text = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | entry})
        return headers.parse_header(text.encode(), "f", 8 + len(text) + 8, "x")

    assert parse()["a"].shape == (2,)
    for entry in (
        {"shape": [3]},
        {"shape": [-2]},
        {"data_offsets": [8, 0]},
        {"data_offsets": [4]},
        {"data_offsets": None},
        {"dtype": None, "shape": "x"},
    ):
        with pytest.raises(CheckpointError, match="header of f of x is damaged"):
            parse(**entry)
    with pytest.raises(CheckpointError, match="has 24 bytes, but its header promises"):
        headers.parse_header(b"{}", "f", 24, "x")


# Names


def test_rows_are_byte_ranges():
    place = Stored("f", "F32", (6, 5), 100, 220, 300)
    assert place.part((2, 4)) == Stored("f", "F32", (2, 5), 140, 180, 300)
    assert folder.join_ranges(
        [Range("f", 5, 9), Range("f", 6, 7), Range("f", 0, 6), Range("g", 6, 7)]
    ) == [
        Range("f", 0, 9),
        Range("g", 6, 7),
    ]


def test_the_papers_models_open_by_their_short_names(server, whole):
    server.push("Qwen/Qwen3-235B-A22B", whole)
    assert si.open_model("qwen3-235b").label == "qwen3-235b"
    assert si.open_model("Qwen/Qwen3-235B-A22B").label == "qwen3-235b"
    with pytest.raises(CheckpointError, match=r"Did you mean qwen3-235b"):
        si.open_model("qwen3-236b")


def test_the_registry_has_the_papers_shapes():
    heads = {m.repo.partition("/")[2]: m.n_layers * m.n_heads for m in registry.MODELS.values()}
    # Section 11 of the paper's tables.
    assert heads["pythia-2.8b-deduped"] == heads["Mistral-7B-v0.3"] == 1024
    assert heads["Qwen3-4B-Base"] == 1152
    assert heads["OLMo-2-1124-13B"] == 1600
    assert heads["Qwen2.5-72B"] == 5120
    assert heads["Qwen3-235B-A22B"] == 6016
    nine = [
        "pythia-2.8b-deduped",
        "olmo-1b",
        "tinyllama-1.1b",
        "smollm3-3b",
        "qwen3-4b",
        "mistral-7b",
        "granite-3.3-2b",
        "falcon3-3b",
        "yi-1.5-6b",
    ]
    assert sum(registry.MODELS[n].n_layers for n in nine) == 268
    assert sum(registry.MODELS[n].n_layers * registry.MODELS[n].n_heads for n in nine) == 7304
    for model in registry.MODELS.values():
        assert repository.is_repo_id(model.repo)
        assert model.topology == ("MHA" if model.n_heads == model.n_value_heads else "GQA")
    assert {
        registry.lineage_of(registry.MODELS[n].repo) is not None
        for n in ("olmo-1b", "tinyllama-1.1b", "pythia-2.8b-deduped")
    } == {True}


def test_a_local_path_comes_before_the_hub(server, whole, tmp_path, monkeypatch):
    monkeypatch.chdir(whole.parent.parent)
    assert si.open_model(f"{whole.parent.name}/whole").weights_id.startswith("stamp:")
    assert server.requests == []
    for name in ("../x", "a/b/c", "/no/such", "./x", "no/such.gguf", "org/", "a b/c"):
        with pytest.raises(CheckpointError, match="is neither a bundled model"):
            si.open_model(name)
    assert server.requests == []


def test_the_command_obeys_the_environment(server, empty_cache, whole, tmp_path):
    """`HF_ENDPOINT`, `HF_HOME` and `HF_HUB_OFFLINE` as a person sets them."""
    sha = server.push("Qwen/Qwen3-4B-Base", whole)

    def command(*arguments, **settings):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
        environment |= {"HF_ENDPOINT": server.endpoint, "HF_HOME": str(tmp_path / "home")}
        return subprocess.run(
            [sys.executable, "-m", "scaled_idempotence.cli", *arguments],
            capture_output=True,
            text=True,
            env=environment | {"COLUMNS": "160"} | settings,
        )

    result = command("inspect", "qwen3-4b")
    assert result.returncode == 0, result.stderr
    assert f"commit:{sha}" in result.stdout
    read, total = si.open_model(whole).sizes()
    assert f"{read:,} of {total:,} bytes" in result.stdout
    assert weight_bytes(server) < 20_000
    si.open_model("qwen3-4b").fetch()
    server.forget()
    result = command("survey", "Qwen/Qwen3-4B-Base", HF_HUB_OFFLINE="1")
    assert result.returncode == 0, result.stderr
    assert "qwen3-4b (raw): 8 heads" in result.stdout
    assert server.requests == []
    assert (empty_cache / "hub" / "Qwen--Qwen3-4B-Base" / sha).is_dir()


@pytest.fixture
def command(monkeypatch, capsys):
    """Run the command in this process; gives its status and what it printed."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["scaled-idempotence", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, *capsys.readouterr()

    return run


def test_the_command_fetches_layers(server, whole, command):
    sha = server.push(REPO, whole, "early")
    status, said, _ = command("fetch", REPO, "--revision", "early")
    assert status == 0
    assert f"{REPO.replace('/', '--')}@early: {si.open_model(whole).sizes()[0]:,} bytes" in said
    server.forget()
    assert_same(si.open_model(REPO, revision=sha), si.open_model(whole))
    assert server.requests == []


def test_the_command_lists_the_papers_models(server, command):
    status, said, _ = command("models")
    assert status == 0
    assert all(name in said for name in registry.MODELS)


def test_the_command_tells_errors_plainly(server, command, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    status, _, said = command("survey", "qwen3-4b")
    assert status == 1
    assert said.startswith("error: the list of files of Qwen/Qwen3-4B-Base (revision main) is not ")
