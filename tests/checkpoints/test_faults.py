"""What users of like tools reported (faults 1-17): the right value here, or a clear error.

Faults 2, 3, 8 and 16 are mutations of the table, in test_oracle.py; 12 and 13 are of the network.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import scaled_idempotence as si
from scaled_idempotence.checkpoints.opening import split_part
from scaled_idempotence.checkpoints.quantised import scales
from scaled_idempotence.errors import CheckpointError
from scaled_idempotence.publish import batch
from tests.checkpoints import gguf_files, tiny
from tests.checkpoints.architectures import CASES
from tests.operators import dense, dense_closure

V_PROJ, O_PROJ = (f"layers.0.self_attn.{name}_proj.weight" for name in "vo")


def edit_config(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def edit_weights(folder, change):
    """Replace a folder's weights by what a function makes of them."""
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


@pytest.fixture
def llama(tmp_path):
    tiny.save("llama", tmp_path / "m")
    return tmp_path / "m"


def save_as(tmp_path, name, **changes):
    tiny.make(name, **changes).save_pretrained(tmp_path / name)
    return tmp_path / name


def test_fault_1_value_heads_are_indexed_by_group(tmp_path):
    folder = save_as(
        tmp_path,
        "qwen2",
        hidden_size=42,
        num_attention_heads=14,
        num_key_value_heads=2,
        num_hidden_layers=1,
    )
    opened = si.open_model(folder)
    layer = opened[0]
    assert layer.value_head.tolist() == [0] * 7 + [1] * 7
    weights = load_file(folder / "model.safetensors")
    for head in range(14):
        group = head // 7
        V = weights[V_PROJ][3 * group : 3 * group + 3].T.double()
        O = weights[O_PROJ][:, 3 * head : 3 * head + 3].double()
        assert torch.equal(layer.V[layer.value_head[head]], V)
        assert torch.equal(layer.O[head], O)
    assert len(si.survey(opened, progress=False)) == 14


def test_fault_1_uneven_groups_are_refused(llama):
    edit_config(llama, num_key_value_heads=4)
    with pytest.raises(CheckpointError, match="6 query heads cannot share 4 value heads evenly"):
        si.open_model(llama)


def test_fault_2_a_fused_weight_is_cut_by_sizes_not_in_thirds(tmp_path):
    folder = save_as(tmp_path, "phi3")
    fused = load_file(folder / "model.safetensors")["layers.0.self_attn.qkv_proj.weight"]
    V = si.open_model(folder)[0].V
    assert torch.equal(V.mT.reshape(-1, 48), fused[64:].double())
    assert not torch.equal(V.mT.reshape(-1, 48)[:10], fused.chunk(3)[2][:10].double())


def test_fault_3_an_interleaved_weight_is_not_split_flat(tmp_path):
    folder = save_as(tmp_path, "gpt_neox")
    fused = load_file(folder / "model.safetensors")["layers.0.attention.query_key_value.weight"]
    V = si.open_model(folder)[0].V
    assert torch.equal(V[1].T, fused[24 + 16 : 48].double())


def test_fault_4_the_head_dimension_is_read(tmp_path):
    for name in ("qwen3", "gemma", "mistral", "t5-decoder"):
        opened = si.open_model(save_as(tmp_path, name))
        assert opened.d_head != opened.d_model // opened.n_heads


def test_fault_4_a_head_dimension_that_the_file_leaves_out_is_the_class_default(tmp_path):
    """Gemma's is 256 whatever the width, and files may not say so."""
    folder = save_as(tmp_path, "gemma", head_dim=256)
    edit_config(folder, head_dim=None)
    assert si.open_model(folder).d_head == 256


def test_fault_5_a_gate_in_the_query_projection_changes_nothing(tmp_path):
    folder = save_as(tmp_path, "qwen3_next")
    weights = load_file(folder / "model.safetensors")
    assert len(weights["layers.3.self_attn.q_proj.weight"]) == 2 * 6 * 10
    opened = si.open_model(folder)
    assert opened[0].O.shape == (6, 48, 10)
    assert "ungated" in opened.remark


def test_layers_without_an_operator_are_skipped_by_number(tmp_path):
    opened = si.open_model(save_as(tmp_path, "qwen3_next", num_hidden_layers=8))
    assert opened.layers == (3, 7)
    assert len(opened) == opened.n_layers == 2
    assert [layer.index for layer in opened] == [3, 7]
    assert opened[1].index == 7
    assert "6 of 8 layers have no T: linear_attention" in opened.remark
    heads = si.survey(opened, progress=False)
    assert heads.layer.unique().tolist() == [3, 7]


def test_albert_reads_each_group_of_shared_layers_once(tmp_path):
    opened = si.open_model(save_as(tmp_path, "albert"))
    assert opened.layers == (0, 2)
    assert "the 4 layers share the weights of 2" in opened.remark
    assert not torch.equal(opened[0].O, opened[1].O)


# --- fp8 ------------------------------------------------------------------------------------------


def blockwise(weight):
    """Quantise to fp8 with one scale a block of 128 x 128, as DeepSeek does."""
    rows, columns = (-(-n // 128) for n in weight.shape)
    scale = torch.empty(rows, columns)
    stored = torch.empty(weight.shape, dtype=torch.float8_e4m3fn)
    for i in range(rows):
        for j in range(columns):
            block = slice(128 * i, 128 * i + 128), slice(128 * j, 128 * j + 128)
            scale[i, j] = weight[block].abs().max() / 448
            stored[block] = (weight[block] / scale[i, j]).to(torch.float8_e4m3fn)
    return {"": stored, "_scale_inv": scale}


def by_channel(weight):
    scale = weight.abs().amax(1, keepdim=True) / 448
    return {"": (weight / scale).to(torch.float8_e4m3fn), "_scale": scale}


def by_channel_flat(weight):
    return by_channel(weight) | {"_scale": by_channel(weight)["_scale"].flatten()}


def by_tensor(weight):
    scale = weight.abs().max() / 448
    return {"": (weight / scale).to(torch.float8_e4m3fn), "_scale": scale}


def by_tensor_e5m2(weight):
    scale = weight.abs().max() / 57344
    return {"": (weight / scale).to(torch.float8_e5m2), "_scale": scale.reshape(1)}


SCHEMES = [blockwise, by_channel, by_channel_flat, by_tensor, by_tensor_e5m2]


def quantise(folder, scheme, *suffixes):
    def change(weights):
        changed = {}
        for name, weight in weights.items():
            parts = scheme(weight) if name.endswith(suffixes) else {"": weight}
            changed |= {name + end: part.contiguous() for end, part in parts.items()}
        return changed

    edit_weights(folder, change)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_fault_6_scales_are_sliced_with_their_rows(tmp_path, scheme):
    """Rows 480 to 599 of a fused weight: no multiple of the block, and over a block's edge."""
    shape = {"hidden_size": 200, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 60}
    folder = save_as(tmp_path, "phi3", num_hidden_layers=1, **shape)
    # Rows and blocks of very different size, so that a neighbour's scale would be noticed.
    sizes = torch.logspace(-2, 2, 600)[:, None]
    name = "layers.0.self_attn.qkv_proj.weight"
    edit_config(folder, head_dim=60)
    edit_weights(
        folder,
        lambda w: w | {name: torch.randn(600, 200) * sizes, O_PROJ: torch.randn(200, 360)},
    )
    truth = si.open_model(folder)
    exact = truth[0]
    quantise(folder, scheme, "qkv_proj.weight", "o_proj.weight")
    opened = si.open_model(folder)
    assert opened.slices()[0].rows == (480, 600)
    layer = opened[0]
    # Three bits of mantissa (two in e5m2) of what shares a scale; smaller numbers are coarser.
    bits = 2 if scheme is by_tensor_e5m2 else 3
    for got, want in ((layer.V, exact.V), (layer.O, exact.O)):
        off = (got - want).abs()
        assert off.max() <= want.abs().max() * 2 ** -(bits + 1)
        assert off.norm() / want.norm() < 2**-bits / 2
    if scheme in (blockwise, by_channel):
        assert (layer.V - exact.V).norm(dim=1).div(exact.V.norm(dim=1)).max() < 0.2


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_rows_range_of_a_scaled_weight_is_the_range_of_the_whole(scheme):
    weight = torch.randn(300, 200) * torch.logspace(-2, 2, 300)[:, None]
    stored, scale = scheme(weight).values()
    shape, scale_shape = tuple(stored.shape), tuple(scale.shape)
    whole = scales.apply_scale(stored, scale, shape, scale_shape, None)
    for rows in ((0, 300), (100, 260), (128, 256), (250, 300), (5, 6)):
        part = scales.scale_rows(shape, scale_shape, rows)
        cut = scale if part is None else scale[slice(*part)]
        got = scales.apply_scale(stored[slice(*rows)], cut, shape, scale_shape, rows)
        assert torch.equal(got, whole[slice(*rows)])


def test_fp8_is_never_read_as_integers_or_without_its_scale(llama):
    quantise(llama, by_tensor, "v_proj.weight")
    edit_weights(llama, lambda w: {n: t for n, t in w.items() if not n.endswith("_scale")})
    with pytest.raises(CheckpointError, match=r"F8_E4M3 without a scale .*weight_scale_inv or"):
        si.open_model(llama)


def test_a_scale_of_no_known_shape_is_refused(llama):
    quantise(llama, by_tensor, "v_proj.weight")
    edit_weights(
        llama, lambda w: {n: torch.ones(7) if n.endswith("_scale") else t for n, t in w.items()}
    )
    with pytest.raises(CheckpointError, match=r"scale of shape \(7,\) fits no weight"):
        si.open_model(llama)[0]


# --- other quantisations --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "replacement"),
    [
        ("gptq", {"qweight": torch.zeros(6, 20, dtype=torch.int32)}),
        ("awq", {"qweight": torch.zeros(48, 3, dtype=torch.int32)}),
        ("compressed-tensors", {"weight_packed": torch.zeros(20, 6, dtype=torch.int32)}),
        ("bitsandbytes", {"weight": torch.zeros(480, 1, dtype=torch.uint8)}),
        ("int8", {"weight": torch.zeros(20, 48, dtype=torch.int8)}),
    ],
)
def test_other_quantisations_are_named_with_the_way_out(llama, method, replacement):
    def change(weights):
        changed = {}
        for name, weight in weights.items():
            if name.endswith("v_proj.weight"):
                stem = name.removesuffix("weight")
                changed |= {stem + key: value.clone() for key, value in replacement.items()}
            else:
                changed[name] = weight
        return changed

    edit_weights(llama, change)
    edit_config(llama, quantization_config={"quant_method": method, "bits": 4})
    with pytest.raises(CheckpointError, match=rf"by {method}.*unquantised weights or a GGUF"):
        si.open_model(llama)


def test_a_scheme_that_leaves_the_attention_alone_is_no_obstacle(tmp_path):
    """gpt-oss keeps its attention in bf16 while the experts are MXFP4."""
    folder = save_as(tmp_path, "gpt_oss")
    truth = si.open_model(folder)[1]
    edit_config(folder, quantization_config={"quant_method": "mxfp4"})
    assert torch.equal(si.open_model(folder)[1].V, truth.V)


# --- the rest of the list -------------------------------------------------------------------------


def test_fault_7_a_missing_v_proj_is_named(llama):
    gone = "layers.1.self_attn.v_proj.weight"
    edit_weights(llama, lambda w: {n: t for n, t in w.items() if n != gone})
    with pytest.raises(CheckpointError, match=rf"lacks {gone}, one of its 2 layers"):
        si.open_model(llama)


def test_fault_7_layers_that_share_anothers_values_are_left_out(llama):
    edit_config(llama, num_kv_shared_layers=1)
    gone = "layers.1.self_attn.v_proj.weight"
    edit_weights(llama, lambda w: {n: t for n, t in w.items() if n != gone})
    opened = si.open_model(llama)
    assert opened.layers == (0,)
    assert "the last 1 of 2 layers take the values of an earlier layer" in opened.remark


def test_fault_8_nothing_is_folded_where_no_norm_precedes(tmp_path):
    for name in ("bert", "opt-post-norm", "bart-decoder"):
        folder = save_as(tmp_path, name)
        raw, folded = si.open_model(folder), si.open_model(folder, norm="folded")
        assert torch.equal(raw[0].V, folded[0].V)
        assert torch.equal(raw[0].O, folded[0].O)
        assert "nothing to fold" in folded.norm_remark


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_fault_9_half_precision_reaches_no_decomposition(llama, dtype):
    edit_weights(llama, lambda w: {name: weight.to(dtype) for name, weight in w.items()})
    layer = si.open_model(llama)[0]
    assert layer.O.dtype == layer.V.dtype == torch.float64
    assert si.survey(si.open_model(llama), progress=False).closure.notna().all()


def test_fault_10_nothing_depends_on_signs_or_order_of_singular_vectors(llama):
    """The same operators in another basis of every head's space: the same numbers."""
    before = si.survey(si.open_model(llama), progress=False)

    def rotate(weights):
        weights = dict(weights)
        for layer in range(2):
            v, o = (f"layers.{layer}.self_attn.{n}_proj.weight" for n in "vo")
            Q = torch.linalg.qr(torch.randn(2, 10, 10).double()).Q
            V = weights[v].double().view(2, 10, 48)
            weights[v] = (Q @ V).reshape(20, 48)
            O = weights[o].double().view(48, 2, 3, 10)
            weights[o] = (O @ Q.mT[:, None].permute(1, 0, 2, 3)).reshape(48, 60)
        return {name: t.contiguous() for name, t in weights.items()}

    edit_weights(llama, rotate)
    after = si.survey(si.open_model(llama), progress=False)
    for column in ("closure", "alpha", "return_gain", "copying_score", "effective_rank"):
        assert after[column].to_numpy() == pytest.approx(before[column].to_numpy(), rel=1e-6)


def test_fault_11_opening_reads_nothing_and_a_layer_reads_only_its_own(llama):
    opened = si.open_model(llama)
    asked = []
    read = opened.reader.read
    opened.reader.read = lambda name, rows=None: asked.append((name, rows)) or read(name, rows)
    opened[1]
    assert asked == [(f"layers.1.self_attn.{n}_proj.weight", None) for n in "vo"]


def test_fault_14_an_index_that_names_what_is_not_there(llama):
    (llama / "model.safetensors").unlink()
    index = llama / "pytorch_model.bin.index.json"
    for shard, match in (
        ("pytorch_model-00001.bin", r"pytorch_model-00001\.bin, which is missing"),
        ("../elsewhere.bin", "not a file name in the same folder"),
    ):
        index.write_text(json.dumps({"weight_map": {V_PROJ: shard}}))
        with pytest.raises(CheckpointError, match=match):
            si.open_model(llama)


def as_bin(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder / "pytorch_model.bin"


def test_fault_15_a_cut_bin_is_told_wherever_it_is_cut(llama):
    path = as_bin(llama)
    content = path.read_bytes()
    for length in (0, 10, 300, len(content) // 2, len(content) - 30):
        path.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match=r"cut short or damaged|or is damaged"):
            si.open_model(llama)


class Hostile:
    def __reduce__(self):
        return (print, ("this must not run",))


def test_a_bin_that_would_run_code_is_refused(llama, capsys):
    path = as_bin(llama)
    torch.save({"a": torch.ones(2), "b": Hostile()}, path)
    with pytest.raises(CheckpointError, match="could run code"):
        si.open_model(llama)
    path.write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(CheckpointError, match=r"could run code|damaged"):
        si.open_model(llama)
    assert "must not run" not in capsys.readouterr().out


def test_a_bin_of_before_torch_1_6_opens(llama):
    truth = si.open_model(llama)[0]
    path = as_bin(llama)
    weights = torch.load(path, weights_only=True)
    torch.save(weights, path, _use_new_zipfile_serialization=False)
    assert torch.equal(si.open_model(llama)[0].V, truth.V)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_fault_15_weights_that_are_not_finite_have_a_reason(tmp_path, value):
    folder = save_as(tmp_path, "phi3")
    name = "layers.0.self_attn.qkv_proj.weight"

    def spoil(weights):
        weights[name][64 + 8, 3] = value  # of value head 1
        return weights

    edit_weights(folder, spoil)
    heads = si.survey(si.open_model(folder), progress=False)
    bad = heads[heads.reason != ""]
    assert bad[["layer", "head"]].values.tolist() == [[0, 3], [0, 4], [0, 5]]
    assert set(bad.reason) == {"weights are not finite"}


def test_fault_15_a_zero_head_has_a_reason(llama):
    def zero(weights):
        weights[O_PROJ][:, 10:20] = 0
        return weights

    edit_weights(llama, zero)
    heads = si.survey(si.open_model(llama), progress=False)
    assert heads[heads.reason != ""][["layer", "head"]].values.tolist() == [[0, 1]]


def test_fault_17_a_live_model_has_the_names_of_its_file(tmp_path):
    """transformers 5 renames ViT's and fuses the experts' tensors in memory."""
    for name in ("vit", "dinov2", "mixtral", "gemma3"):
        model = tiny.save(name, tmp_path / name)
        in_file = load_file(tmp_path / name / "model.safetensors").keys()
        assert model.state_dict().keys() != in_file
        live, stored = si.open_model(model), si.open_model(tmp_path / name)
        assert {s.name for s in live.slices()} <= in_file
        for a, b in zip(live, stored, strict=True):
            assert torch.equal(a.O, b.O)


def test_a_live_model_is_not_changed_and_not_shared(tmp_path):
    model = tiny.make("llama").double()
    opened = si.open_model(model)
    layer = opened[0]
    layer.V.zero_()
    assert model.layers[0].self_attn.v_proj.weight.abs().sum() > 0
    assert opened.name == "llama"
    T = dense(opened[0].O, opened[0].V[opened[0].value_head])
    heads = si.survey(opened, progress=False)
    assert heads.closure[:6].to_numpy() == pytest.approx(dense_closure(T).numpy(), rel=1e-9)


def test_results_of_two_live_models_are_never_taken_for_one_another(tmp_path):
    model = tiny.make("llama")
    opened = si.open_model(model)
    before = opened.weights_id
    assert before == si.open_model(tiny.make("llama")).weights_id
    with torch.no_grad():
        model.layers[1].self_attn.o_proj.weight[0, 0] += 1
    assert opened.weights_id != before
    assert si.open_model(tiny.make("gpt2").bfloat16()).weights_id.startswith("sha256:")


def test_modules_that_cannot_be_opened_are_told():
    with pytest.raises(CheckpointError, match=r"Linear in memory has no configuration"):
        si.open_model(torch.nn.Linear(2, 2))
    with torch.device("meta"):
        model = tiny.make("llama")
    with pytest.raises(CheckpointError, match="on the meta device"):
        si.open_model(model)[0]


# --- architectures that are not in the table ------------------------------------------------------

UNLISTED = {
    "arcee": ("llama", "layers.{}.self_attn.v_proj.weight"),
    "seed_oss": ("llama", "layers.{}.self_attn.v_proj.weight"),
    "ernie4_5": ("llama", "layers.{}.self_attn.v_proj.weight"),
    "camembert": ("bert", "encoder.layer.{}.attention.self.value.weight"),
}


@pytest.mark.parametrize("model_type", UNLISTED)
def test_unlisted_architectures_open_with_a_warning(tmp_path, monkeypatch, model_type):
    like, value = UNLISTED[model_type]
    monkeypatch.setitem(CASES, model_type, replace(CASES[like], model_type=model_type))
    folder = save_as(tmp_path, model_type)
    with pytest.warns(UserWarning, match=rf"'{model_type}', which is not in the table"):
        opened = si.open_model(folder)
    weights = load_file(folder / "model.safetensors")
    for layer in opened:
        stored = weights[value.format(layer.index)].double()
        assert torch.equal(layer.V.mT.reshape(stored.shape), stored)


def test_a_fused_weight_of_an_unlisted_architecture_is_not_guessed(tmp_path):
    """Its shape is the same however its rows are ordered."""
    folder = save_as(tmp_path, "gpt_neox")
    edit_config(folder, model_type="novel")
    with pytest.raises(CheckpointError, match=r"add a row.*how they are fused.*which norms"):
        si.open_model(folder)


def test_an_unlisted_gguf_opens_with_a_warning(tmp_path, monkeypatch):
    folder = save_as(tmp_path, "llama")
    truth = si.open_model(folder)
    monkeypatch.setitem(gguf_files.ARCHITECTURES, "llama", "arcee")
    gguf_files.write("llama", folder, tmp_path / "x.gguf", truth)
    with pytest.warns(UserWarning, match=r"'arcee'.*blk\.\{layer\}\.attn_v\.weight"):
        opened = si.open_model(tmp_path / "x.gguf")
    assert torch.equal(opened[1].V, truth[1].V)


def test_a_gguf_whose_layers_differ_in_their_heads(tmp_path):
    """Layers without value heads are skipped; differing counts are refused."""
    folder = save_as(tmp_path, "llama", num_hidden_layers=3)
    truth = si.open_model(folder)
    for counts in ([2, 0, 2], [2, 3, 2]):
        path = tmp_path / "x.gguf"
        gguf_files.write("llama", folder, path, truth, value_heads=counts)
        if 0 in counts:
            opened = si.open_model(path)
            assert opened.layers == (0, 2)
            assert torch.equal(opened[1].V, truth[2].V)
            assert "1 of 3 layers have no attention" in opened.remark
        else:
            with pytest.raises(CheckpointError, match="head_count_kv layer by layer"):
                si.open_model(path)


# --- parts ----------------------------------------------------------------------------------------


def test_a_file_of_the_other_part_says_so(tmp_path):
    config = transformers.AutoConfig.for_model("t5", **CASES["t5-encoder"].config)
    transformers.T5EncoderModel(config).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"values of its decoder.*pass part='encoder'"):
        si.open_model(tmp_path)
    assert si.open_model(tmp_path, part="encoder").n_layers == 2


# Models with a head, in memory and from_pretrained, which restores other names than a bare model's.
HEADS = {
    "gpt2": "GPT2LMHeadModel",
    "bert": "BertForMaskedLM",
    "mixtral": "MixtralForCausalLM",
    "gemma3": "Gemma3ForConditionalGeneration",
    "t5-encoder": "T5ForConditionalGeneration",
    "vit": "ViTForImageClassification",
    "clip-vision": "CLIPModel",
}


@pytest.mark.parametrize("name", HEADS)
def test_models_with_heads_open_from_files_and_from_memory(name, tmp_path):
    case = CASES[name]
    config = transformers.AutoConfig.for_model(case.model_type or name, **case.config)
    kind = getattr(transformers, HEADS[name])
    kind(config).save_pretrained(tmp_path)
    stored = si.open_model(tmp_path, part=case.part)
    live = si.open_model(kind.from_pretrained(tmp_path), part=case.part)
    assert stored.layers == case.layers
    for a, b in zip(stored, live, strict=True):
        assert torch.equal(a.O, b.O)
        assert torch.equal(a.V, b.V)


def test_a_part_of_a_relative_path_reaches_the_notebook(tmp_path, monkeypatch):
    (tmp_path / "m").mkdir()
    monkeypatch.chdir(tmp_path)
    assert batch._portable("m#encoder") == f"{tmp_path.resolve() / 'm'}#encoder"
    assert batch._portable("minilm-l6") == "minilm-l6"
    (tmp_path / "odd#name").mkdir()
    assert split_part("odd#name") == ("odd#name", None)
    assert batch._portable("odd#name") == str(tmp_path.resolve() / "odd#name")


def test_parts_are_named_in_the_source_or_as_an_argument(tmp_path):
    folder = save_as(tmp_path, "whisper-encoder")
    default, encoder = si.open_model(folder), si.open_model(f"{folder}#encoder")
    assert (default.part, default.n_layers, default.n_heads) == ("decoder", 3, 4)
    assert (encoder.part, encoder.n_layers, encoder.n_heads) == ("encoder", 2, 5)
    assert encoder.name == f"{default.name}-encoder"
    with pytest.raises(CheckpointError, match="its parts are decoder, encoder"):
        si.open_model(folder, part="vision")
    with pytest.raises(CheckpointError, match="it has one part; leave it out"):
        si.open_model(save_as(tmp_path, "llama"), part="encoder")
