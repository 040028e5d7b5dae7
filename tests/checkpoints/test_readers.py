import json
import shutil

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import scaled_idempotence as si
from scaled_idempotence.checkpoints.gguf_file import GGUFFile, HeaderReader
from scaled_idempotence.errors import CheckpointError
from tests.checkpoints import tiny

KIND = gguf.GGMLQuantizationType


@pytest.fixture
def llama(tmp_path):
    folder = tmp_path / "tiny-llama"
    tiny.save("llama", folder)
    return folder


@pytest.fixture
def llama_gguf(llama, tmp_path):
    path = tmp_path / "tiny.gguf"
    tiny.write_gguf(llama, path, KIND.F32)
    return path


def edit_config(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config.update(changes)
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


def assert_same_factors(one, other, **tolerance):
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a.O, b.O, **tolerance)
        torch.testing.assert_close(a.V, b.V, **tolerance)


@pytest.mark.parametrize("norm", ["raw", "folded"])
def test_gguf_and_safetensors_give_the_same_factors(llama, llama_gguf, norm):
    one, other = si.open_model(llama, norm=norm), si.open_model(llama_gguf, norm=norm)
    assert (one.n_heads, one.n_value_heads, one.d_head) == (6, 2, 10)
    assert_same_factors(one, other, rtol=0, atol=0)


def test_quantised_gguf_is_the_same_within_its_rounding(tmp_path):
    # Quantised blocks are of 32 columns.
    model = tiny.make("llama", hidden_size=64, num_attention_heads=4, head_dim=32)
    model.save_pretrained(tmp_path / "m")
    tiny.write_gguf(tmp_path / "m", tmp_path / "q8.gguf", KIND.Q8_0)
    for a, b in zip(
        si.open_model(tmp_path / "m"), si.open_model(tmp_path / "q8.gguf"), strict=True
    ):
        # Blocks of 32 have one scale of 1/127 of their largest entry.
        assert (a.V - b.V).abs().max() <= 0.51 / 127 * a.V.abs().max()
        assert not torch.equal(a.V, b.V)


def test_shards_give_the_same_factors(llama, tmp_path):
    tiny.save("llama", tmp_path / "sharded", max_shard_size="20KB")
    assert len(list((tmp_path / "sharded").glob("model-*.safetensors"))) > 1
    assert_same_factors(si.open_model(llama), si.open_model(tmp_path / "sharded"), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_stored_precisions_become_float64(llama, dtype):
    path = llama / "model.safetensors"
    weights = {name: tensor.to(dtype) for name, tensor in load_file(path).items()}
    save_file(weights, path, metadata={"format": "pt"})
    layer = si.open_model(llama)[0]
    assert layer.O.dtype == layer.V.dtype == torch.float64
    stored = weights["layers.0.self_attn.v_proj.weight"].double()
    assert torch.equal(layer.V.mT.reshape(-1, 48), stored)


def test_the_short_cut_through_the_header_reads_what_gguf_reads(llama_gguf):
    fast, full = HeaderReader(llama_gguf), gguf.GGUFReader(llama_gguf)
    assert fast.fields.keys() == full.fields.keys()
    for key, field in full.fields.items():
        if not key.startswith("tokenizer."):
            assert fast.fields[key].contents() == field.contents()
    assert fast.fields["general.after"].contents() == "the long arrays"
    for one, other in zip(fast.tensors, full.tensors, strict=True):
        assert (one.name, one.data_offset) == (other.name, other.data_offset)
        assert np.array_equal(one.data, other.data)


def test_a_cut_gguf_is_told_wherever_it_is_cut(llama_gguf, tmp_path):
    content = llama_gguf.read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in (6, 30, 200, 5_000, len(content) // 2, len(content) - 1):
        cut.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match=r"cut.gguf \([\d,]+ bytes\) is cut short"):
            si.open_model(cut)


def test_a_file_that_is_no_gguf_is_told(tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(b"<html>rate limited</html>" * 10)
    with pytest.raises(CheckpointError, match="is not a GGUF file"):
        si.open_model(path)


def test_a_missing_key_of_a_gguf_is_named(tmp_path):
    path = tmp_path / "x.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_head_count(4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match=r"lacks llama\.embedding_length"):
        GGUFFile(path)


def test_a_cut_safetensors_file_is_told(llama):
    path = llama / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="cut short or damaged"):
        si.open_model(llama)


@pytest.mark.parametrize("shard", ["../secret.safetensors", "/etc/passwd", "sub/x.safetensors"])
def test_an_index_cannot_name_a_file_elsewhere(llama, shard):
    (llama / "model.safetensors").rename(llama / "model-00001.safetensors")
    index = {"weight_map": {"layers.0.self_attn.v_proj.weight": shard}}
    (llama / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="not a file name in the same folder"):
        si.open_model(llama)


def test_a_missing_shard_is_named(llama):
    (llama / "model.safetensors").unlink()
    index = {"weight_map": {"layers.0.self_attn.v_proj.weight": "model-00001.safetensors"}}
    (llama / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"model-00001\.safetensors, which is missing"):
        si.open_model(llama)


def test_uneven_groups_are_refused(llama):
    edit_config(llama, num_key_value_heads=4)
    with pytest.raises(CheckpointError, match="6 query heads cannot share 4 value heads evenly"):
        si.open_model(llama)


@pytest.mark.parametrize("key", ["num_attention_heads", "num_hidden_layers", "head_dim"])
def test_no_heads_or_layers_is_told(llama, key):
    edit_config(llama, **{key: 0})
    with pytest.raises(CheckpointError, match=f"{key} = 0, expected a positive integer"):
        si.open_model(llama)


def test_a_configuration_that_contradicts_the_weights_is_told(llama):
    edit_config(llama, head_dim=None)  # 48 / 6 = 8 is then assumed, and is wrong
    with pytest.raises(CheckpointError, match=r"shape \(20, 48\).*promises \(16, 48\)"):
        si.open_model(llama)


def test_a_layer_short_is_told(llama):
    edit_config(llama, num_hidden_layers=3)
    with pytest.raises(CheckpointError, match=r"lacks layers\.2\.self_attn\.v_proj"):
        si.open_model(llama)


def test_an_unknown_architecture_lists_the_known(llama):
    edit_config(llama, model_type="novel")
    path = llama / "model.safetensors"
    weights = {name.replace("self_attn", "mixer"): t for name, t in load_file(path).items()}
    save_file(weights, path, metadata={"format": "pt"})
    match = r"'novel', whose layout.*albert, apertus, bart, bert.*layouts\.py"
    with pytest.raises(CheckpointError, match=match):
        si.open_model(llama)


def test_an_unlisted_architecture_of_known_names_and_shapes_opens_with_a_warning(llama):
    listed = si.open_model(llama)
    edit_config(llama, model_type="novel")
    match = r"'novel', which is not in the table.*assumed: values \(separate\) in layers\."
    with pytest.warns(UserWarning, match=match):
        unlisted = si.open_model(llama)
    assert_same_factors(listed, unlisted, rtol=0, atol=0)
    with pytest.raises(CheckpointError, match="not which norms to fold"):
        si.open_model(llama, norm="folded")
    edit_config(llama, head_dim=12)  # the shapes no longer fit
    with pytest.raises(CheckpointError, match="whose layout of value and output weights"):
        si.open_model(llama)


def test_an_architecture_without_attention_is_told(llama):
    edit_config(llama, model_type="mamba")
    with pytest.raises(CheckpointError, match="no layer has an attention of its own"):
        si.open_model(llama)


def test_tensors_under_other_names_are_told(llama):
    edit_config(llama, model_type="bert")
    with pytest.raises(CheckpointError, match="Its attention tensors there: layers"):
        si.open_model(llama)


def test_a_folder_without_a_configuration_is_told(tmp_path):
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        si.open_model(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="not valid JSON"):
        si.open_model(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(CheckpointError, match="holds a list, expected an object"):
        si.open_model(tmp_path)


def test_nan_weights_give_nan_with_a_reason(llama):
    path = llama / "model.safetensors"
    weights = load_file(path)
    weights["layers.1.self_attn.o_proj.weight"][3, 25] = torch.nan  # head 2: columns 20 to 29
    save_file(weights, path, metadata={"format": "pt"})
    heads = si.survey(si.open_model(llama), progress=False)
    bad = heads[heads.reason != ""]
    assert bad[["layer", "head", "reason"]].values.tolist() == [[1, 2, "weights are not finite"]]
    assert bad.closure.isna().all()
    assert heads.closure.notna().sum() == 11


def test_integer_weights_are_refused(llama):
    path = llama / "model.safetensors"
    weights = load_file(path)
    name = "layers.0.self_attn.v_proj.weight"
    weights[name] = weights[name].to(torch.int32)
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="is stored as I32"):
        si.survey(si.open_model(llama), progress=False)


def test_names_and_paths(llama, tmp_path):
    assert si.open_model(str(llama)).name == "tiny-llama"
    with pytest.raises(CheckpointError, match="Did you mean smollm2-135m"):
        si.open_model("smollm2-135")
    with pytest.raises(CheckpointError, match=r"Bundled: smollm2-135m, gemma-3-270m, minilm-l6"):
        si.open_model("no/such/model")
    with pytest.raises(CheckpointError, match="one revision only"):
        si.open_model(llama, revision="main")
    with pytest.raises(ValueError, match="expected one of 'raw', 'folded'"):
        si.open_model(llama, norm="both")
    other = tmp_path / "weights.bin"
    shutil.copy(llama / "model.safetensors", other)
    with pytest.raises(CheckpointError, match="a file of no known format"):
        si.open_model(other)
    with pytest.raises(IndexError, match="layers 0-1"):
        si.open_model(llama)[2]
