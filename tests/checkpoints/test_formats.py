"""The same model through every format gives the same factors."""

from __future__ import annotations

import json
from dataclasses import replace

import gguf
import pytest
import torch
from safetensors.torch import load_file

import scaled_idempotence as si
from scaled_idempotence.checkpoints import assembly, layouts
from tests.checkpoints import gguf_files, tiny
from tests.checkpoints.architectures import CASES

KIND = gguf.GGMLQuantizationType


def assert_same_factors(one, other, **tolerance):
    assert one.layers == other.layers
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a.O, b.O, **tolerance)
        torch.testing.assert_close(a.V, b.V, **tolerance)


def to_bin(folder, target, shards=1):
    """Rewrite a folder's safetensors as pytorch_model.bin."""
    target.mkdir()
    (target / "config.json").write_bytes((folder / "config.json").read_bytes())
    weights = load_file(folder / "model.safetensors")
    if shards == 1:
        torch.save(weights, target / "pytorch_model.bin")
        return target
    files = {name: f"pytorch_model-{n % shards + 1:05d}.bin" for n, name in enumerate(weights)}
    for file in set(files.values()):
        part = {name: weights[name] for name in weights if files[name] == file}
        torch.save(part, target / file)
    index = {"metadata": {}, "weight_map": files}
    (target / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    return target


@pytest.mark.parametrize("name", CASES)
def test_all_formats_of_transformers_give_the_same_factors(name, tmp_path):
    model = tiny.save(name, tmp_path / "whole")
    model.save_pretrained(tmp_path / "shards", max_shard_size="6KB")
    assert len(list((tmp_path / "shards").glob("model-*.safetensors"))) > 1
    options = {"norm": "folded", "part": CASES[name].part}
    whole = si.open_model(tmp_path / "whole", **options)
    for other in (
        tmp_path / "shards",
        to_bin(tmp_path / "whole", tmp_path / "bin"),
        to_bin(tmp_path / "whole", tmp_path / "bins", shards=3),
        model,
    ):
        assert_same_factors(whole, si.open_model(other, **options), rtol=0, atol=0)


# Which families' values are a range of rows of what is stored; the rest is separate or read whole.
RANGES = {"phi3", "mpt", "dbrx", "modernbert", "falcon-7b", "gpt_bigcode"}


@pytest.mark.parametrize("name", CASES)
def test_a_layer_reads_what_wanted_says_and_no_more(name, tmp_path):
    """Of fused weights the rows of V alone, where they are contiguous."""
    opened = si.open_model(tiny.make(name), norm="folded", part=CASES[name].part)
    asked = []
    read = opened.reader.read

    def spy(tensor, rows=None):
        asked.append((tensor, rows))
        return read(tensor, rows)

    opened.reader.read = spy
    opened[len(opened) - 1]
    h, last = opened.hyperparameters, opened.layers[-1]
    wanted = assembly.wanted(opened.layout, opened.prefix, h, last, "folded")
    assert asked == wanted
    values = wanted[0]
    r, G = opened.d_head, opened.n_value_heads
    assert (values.rows is not None) == (name in RANGES)
    if values.rows:
        assert values.rows[1] - values.rows[0] == G * r
    assert all(0 <= rows[0] < rows[1] for _, rows in wanted if rows)


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """Give a case's saved folder and its GGUF file."""

    made = {}

    def get(name, **options):
        key = (name, *options.items())
        if key not in made:
            folder = tmp_path_factory.mktemp(name)
            tiny.save(name, folder / "m")
            opened = si.open_model(folder / "m", part=CASES[name].part)
            gguf_files.write(name, folder / "m", folder / "m.gguf", opened, **options)
            made[key] = folder / "m", folder / "m.gguf"
        return made[key]

    return get


@pytest.mark.parametrize("norm", ["raw", "folded"])
@pytest.mark.parametrize("name", gguf_files.ARCHITECTURES)
def test_gguf_gives_the_factors_of_the_folder(name, norm, converted):
    folder, path = converted(name)
    options = {"norm": norm, "part": CASES[name].part}
    one, other = si.open_model(folder, **options), si.open_model(path, **options)
    assert one.topology == other.topology
    # llama.cpp adds the 1 to gains in float32.
    assert_same_factors(one, other, rtol=1e-6, atol=1e-6)


def test_gguf_of_mla_from_before_the_values_were_split_off(converted):
    folder, path = converted("deepseek_v3", old_mla=True)
    assert_same_factors(si.open_model(folder), si.open_model(path), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["llama", "phi3", "gpt2", "falcon-40b"])
def test_q8_0_gives_the_same_factors_within_its_rounding(name, tmp_path, monkeypatch):
    """Blocks of 32 columns have one scale of 1/127 of their largest entry."""
    wide = {"n_embd": 64, "n_head": 4} if name == "gpt2" else {"hidden_size": 64}
    if name != "gpt2":
        wide["num_attention_heads"] = 4
    if name == "llama":
        wide["head_dim"] = 24  # the output projection's columns are 4 x 24
    monkeypatch.setitem(CASES, name, replace(CASES[name], config=CASES[name].config | wide))
    tiny.save(name, tmp_path / "m")
    whole = si.open_model(tmp_path / "m")
    gguf_files.write(name, tmp_path / "m", tmp_path / "q8.gguf", whole, KIND.Q8_0)
    quantised = si.open_model(tmp_path / "q8.gguf")
    assert "Q8_0" in quantised.dtypes()
    for a, b in zip(whole, quantised, strict=True):
        for one, other in ((a.V, b.V), (a.O, b.O)):
            assert not torch.equal(one, other)
            assert (one - other).abs().max() <= 0.51 / 127 * one.abs().max()


def test_every_architecture_that_gguf_names_is_tested():
    listed = {n for row in layouts.LAYOUTS if row.naming == "gguf" for n in row.architectures}
    names = set(gguf.MODEL_ARCH_NAMES.values())
    assert listed <= names
    # The same rows under the names of later converters.
    assert listed - set(gguf_files.ARCHITECTURES.values()) == {"mistral3", "t5encoder"}
