"""Where each architecture keeps its value and output weights: one table, a row a layout.

A new architecture is a new row. Readers know formats and no architecture; this table knows
architectures and no format beyond the names that the format gives to tensors; `storage` has the
ways of storing that the rows combine. An architecture may have several rows, for its parts
(encoder, decoder, towers) and for what versions or conversions of it store differently: the first
row whose tensors are there is taken.
"""

from __future__ import annotations

from typing import Any

from .schema import DECODER, Keys, Layout
from .storage import (
    FusedByGroup,
    FusedBySize,
    FusedInBlocks,
    Latent,
    Linear,
    Norm,
    Output,
    RowOrder,
    Separate,
    ValueWeights,
)

SEPARATE, BY_SIZE, BY_GROUP = Separate(), FusedBySize(), FusedByGroup()


def _row(
    family: str,
    architectures: str,
    module: str,
    value: str | ValueWeights,
    output: str,
    order: RowOrder = SEPARATE,
    transposed: bool = False,
    **options: Any,
) -> Layout:
    """Make a row of names, separated by blanks, and of two weights of an attention module."""
    if isinstance(value, str):
        value = Linear(f"{module}{value}.weight", order, transposed)
    options = {"naming": "transformers", "architectures": tuple(architectures.split())} | options
    written = Output(f"{module}{output}.weight", transposed)
    return Layout(family, value=value, output=written, **options)


def _falcon_value_heads(config: Any) -> int:
    # The new architecture ignores multi_query, whatever it says.
    if config.new_decoder_architecture:
        return config.num_kv_heads
    return 1 if config.multi_query else config.num_attention_heads


def _layer_norm(name: str, **options: Any) -> Norm:
    return Norm(f"{name}.weight", centred=True, **options)


POST_LN = "post-LN: no norm feeds the attention, so there is nothing to fold"
POST_NORM = "no norm feeds the attention; only the gain of the norm after it is folded"
LATENT_NORM = (
    "the norm inside the values leaves a scale that depends on the token; T is defined up to it"
)
FIRST_BARE = "layer 0 has no norm before the attention"
SELF_ONLY = "self-attention only"
RMS = "layers.{layer}.input_layernorm.weight"
SELF = "layers.{layer}.self_attn."
LAYER_NORM = Norm(RMS, centred=True)
OWN_NORM = "layers.{layer}.self_attn_layer_norm"
AFTER = "layers.{layer}.post_attention_layernorm.weight"
SELF_ATTENTION = ("self_attention.", "query_key_value", "dense", BY_GROUP)
FALCON = Keys(n_value_heads=_falcon_value_heads)
BIGCODE = Keys(n_value_heads=lambda config: 1 if config.multi_query else config.num_attention_heads)


def _llama_like(
    family: str,
    types: str,
    value: str | ValueWeights = "v_proj",
    output: str = "o_proj",
    order: RowOrder = SEPARATE,
    module: str = SELF,
    **options: Any,
) -> Layout:
    options = {"prefixes": DECODER, "norm_before": Norm(RMS)} | options
    return _row(family, types, module, value, output, order, **options)


def _gpt_like(
    family: str,
    types: str,
    module: str,
    value: str,
    output: str,
    order: RowOrder = SEPARATE,
    block: str = "h.{layer}.",
    norm: str = "ln_1",
    **options: Any,
) -> Layout:
    prefixes = ("transformer.", "", "language_model.transformer.")
    options = {"norm_before": _layer_norm(block + norm), "prefixes": prefixes} | options
    return _row(family, types, block + module, value, output, order, **options)


def _bert_like(
    family: str,
    types: str,
    prefix: str,
    value: str = "self.value",
    output: str = "output.dense",
    module: str = "encoder.layer.{layer}.attention.",
    **options: Any,
) -> Layout:
    options = {"norm_remark": POST_LN, "prefixes": ("", prefix)} | options
    return _row(family, types, module, value, output, **options)


def _stack(family: str, types: str, part: str, stack: str = "", **options: Any) -> Layout:
    """Make the row of one stack of an encoder-decoder, or of one tower of a pair."""
    options = {"prefixes": ("", "model.")} | options
    return _row(family, types, stack + SELF, "v_proj", "out_proj", part=part, **options)


def _side(name: str) -> Keys:
    heads = f"{name}_attention_heads"
    return Keys(n_layers=f"{name}_layers", n_heads=heads, n_value_heads=heads)


_TRANSFORMERS: tuple[Layout, ...] = (
    # Decoders with a v_proj of their own.
    _llama_like(
        "Llama",
        "llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe olmoe granite granitemoe smollm3 "
        "glm",
    ),
    _llama_like("gpt-oss", "gpt_oss"),
    _llama_like(
        "Apertus", "apertus", norm_before=Norm("layers.{layer}.attention_layernorm.weight")
    ),
    _llama_like("Gemma", "gemma", norm_before=Norm(RMS, offset=1.0)),
    _llama_like(
        "Gemma 2 and 3",
        "gemma2 gemma3 gemma3_text",
        norm_before=Norm(RMS, offset=1.0),
        norm_after=Norm(AFTER, offset=1.0),
    ),
    _llama_like(
        "Qwen3-Next",
        "qwen3_next",
        norm_before=Norm(RMS, offset=1.0),
        remark="a gate that depends on the token multiplies the heads' outputs; T is the ungated "
        "map",
    ),
    _llama_like("OLMo", "olmo", norm_before=Norm(centred=True)),
    _llama_like(
        "OLMo 2 and 3, EXAONE 4",
        "olmo2 olmo3 exaone4",
        norm_before=None,
        norm_after=Norm(AFTER),
        norm_remark=POST_NORM,
    ),
    _llama_like("GLM-4", "glm4", norm_after=Norm("layers.{layer}.post_self_attn_layernorm.weight")),
    _llama_like(
        "StarCoder 2, StableLM, Cohere",
        "starcoder2 stablelm cohere cohere2",
        norm_before=LAYER_NORM,
    ),
    _llama_like("Nemotron", "nemotron", norm_before=Norm(RMS, offset=1.0, centred=True)),
    _llama_like("Phi", "phi", output="dense", norm_before=LAYER_NORM),
    _llama_like(
        "OPT",
        "opt",
        output="out_proj",
        prefixes=("model.decoder.", "decoder.", "", "model."),
        norm_before=_layer_norm(OWN_NORM),
    ),
    # Fused decoders.
    _llama_like("Phi-3", "phi3", "qkv_proj", order=BY_SIZE),
    _llama_like(
        "Persimmon", "persimmon", "query_key_value", "dense", BY_GROUP, norm_before=LAYER_NORM
    ),
    _llama_like(
        "GPT-NeoX",
        "gpt_neox",
        "query_key_value",
        "dense",
        BY_GROUP,
        "layers.{layer}.attention.",
        prefixes=("gpt_neox.", "", "model."),
        norm_before=LAYER_NORM,
    ),
    _llama_like(
        "DeepSeek MLA",
        "deepseek_v2 deepseek_v3",
        Latent(
            SELF + "kv_b_proj.weight",
            SELF + "kv_a_layernorm.weight",
            SELF + "kv_a_proj_with_mqa.weight",
        ),
        keys=Keys(d_head="v_head_dim", n_value_heads="num_attention_heads"),
        remark=LATENT_NORM,
    ),
    _gpt_like("GPT-2", "gpt2", "attn.", "c_attn", "c_proj", BY_SIZE, transposed=True),
    _gpt_like("GPTBigCode", "gpt_bigcode", "attn.", "c_attn", "c_proj", BY_GROUP, keys=BIGCODE),
    _gpt_like("GPT-Neo", "gpt_neo", "attn.attention.", "v_proj", "out_proj"),
    _gpt_like("GPT-J", "gptj", "attn.", "v_proj", "out_proj"),
    _gpt_like("CodeGen", "codegen", "attn.", "qkv_proj", "out_proj", FusedInBlocks()),
    _gpt_like("BLOOM", "bloom", *SELF_ATTENTION, norm="input_layernorm"),
    # Two norms in parallel, one of them the attention's, or one for both branches.
    *(
        _gpt_like("Falcon", "falcon", *SELF_ATTENTION, norm=norm, keys=FALCON)
        for norm in ("ln_attn", "input_layernorm")
    ),
    _gpt_like("MPT", "mpt", "attn.", "Wqkv", "out_proj", BY_SIZE, "blocks.{layer}.", norm="norm_1"),
    _gpt_like(
        "DBRX",
        "dbrx",
        "attn.",
        "Wqkv",
        "out_proj",
        BY_SIZE,
        "blocks.{layer}.norm_attn_norm.",
        norm="norm_1",
        keys=Keys(n_value_heads="attn_config.kv_n_heads"),
    ),
    # Encoders.
    _bert_like("BERT", "bert", "bert."),
    _bert_like("RoBERTa", "roberta xlm-roberta", "roberta."),
    _bert_like("ELECTRA", "electra", "electra."),
    _bert_like("DeBERTa v2", "deberta-v2", "deberta.", "self.value_proj"),
    _bert_like(
        "DistilBERT",
        "distilbert",
        "distilbert.",
        "v_lin",
        "out_lin",
        "transformer.layer.{layer}.attention.",
    ),
    _bert_like(
        "ALBERT",
        "albert",
        "albert.",
        "value",
        "dense",
        "encoder.albert_layer_groups.{layer}.albert_layers.0.attention.",
    ),
    _bert_like(
        "ViT",
        "vit",
        "vit.",
        "attention.value",
        norm_before=_layer_norm("encoder.layer.{layer}.layernorm_before"),
        norm_remark="",
    ),
    _bert_like(
        "DINOv2",
        "dinov2",
        "dinov2.",
        "attention.value",
        norm_before=_layer_norm("encoder.layer.{layer}.norm1"),
        norm_after=Norm("encoder.layer.{layer}.layer_scale1.lambda1", scale_only=True),
        norm_remark="",
    ),
    _row(
        "ModernBERT",
        "modernbert",
        "layers.{layer}.attn.",
        "Wqkv",
        "Wo",
        BY_SIZE,
        prefixes=("model.", ""),
        norm_before=_layer_norm("layers.{layer}.attn_norm", from_layer=1),
        norm_remark=FIRST_BARE,
    ),
    # Towers and stacks; the first of an architecture is the default.
    *(
        _stack(
            "CLIP and SigLIP",
            types.format(part=part),
            part,
            "encoder.",
            keys=Keys(within=within.format(part=part)),
            prefixes=(f"{part}_model.", f"model.{part}_model." if within else ""),
            norm_before=_layer_norm("encoder.layers.{layer}.layer_norm1"),
        )
        for types, within in (
            ("clip siglip", "{part}_config"),
            ("clip_{part}_model siglip_{part}_model", ""),
        )
        for part in ("text", "vision")
    ),
    *(
        _stack(
            "Whisper",
            "whisper",
            part,
            f"{part}.",
            keys=_side(part),
            norm_before=_layer_norm(f"{part}.{OWN_NORM}"),
            remark=SELF_ONLY,
        )
        for part in ("decoder", "encoder")
    ),
    *(
        _stack(
            "BART",
            "bart",
            part,
            f"{part}.",
            keys=_side(part),
            norm_remark=POST_LN,
            remark=SELF_ONLY,
        )
        for part in ("decoder", "encoder")
    ),
    *(
        _row(
            "T5",
            "t5",
            part + ".block.{layer}.layer.0.SelfAttention.",
            "v",
            "o",
            part=part,
            keys=Keys("d_model", layers, "num_heads", d_head="d_kv"),
            prefixes=("", "transformer."),
            norm_before=Norm(part + ".block.{layer}.layer.0.layer_norm.weight"),
            remark=SELF_ONLY,
        )
        for part, layers in (("decoder", "num_decoder_layers"), ("encoder", "num_layers"))
    ),
)

# What llama.cpp makes of the files above: it undoes interleaving and transposition, and adds the
# 1 of Gemma's, Nemotron's and Qwen3-Next's gains.
BLK = "blk.{layer}."
GGUF_QKV = Linear(BLK + "attn_qkv.weight", BY_SIZE)
GGUF_NORM = Norm(BLK + "attn_norm.weight")
GGUF_LAYER_NORM = _layer_norm(BLK + "attn_norm")
GGUF_AFTER = Norm(BLK + "post_attention_norm.weight")
GGUF_FUSED = {
    "gpt2": "GPT-2",
    "gptneox": "GPT-NeoX",
    "bloom": "BLOOM",
    "mpt": "MPT",
    "starcoder": "GPTBigCode",
    "dbrx": "DBRX",
}


def _gguf(
    family: str,
    names: str,
    value: str | ValueWeights = "attn_v",
    output: str = "attn_output",
    module: str = BLK,
    **options: Any,
) -> Layout:
    options = {"naming": "gguf", "norm_before": GGUF_NORM} | options
    return _row(family, names, module, value, output, **options)


_GGUF: tuple[Layout, ...] = (
    _gguf("Llama", "llama mistral3 qwen2 qwen2moe qwen3 qwen3moe olmoe granite granitemoe smollm3"),
    _gguf("gpt-oss", "gpt-oss"),
    _gguf("Apertus", "apertus"),
    _gguf("Gemma", "gemma"),
    _gguf("Gemma 2 and 3", "gemma2 gemma3", norm_after=GGUF_AFTER),
    _gguf("Qwen3-Next", "qwen3next"),
    _gguf("OLMo", "olmo", norm_before=Norm(centred=True)),
    _gguf(
        "OLMo 2 and 3, EXAONE 4",
        "olmo2 exaone4",
        norm_before=None,
        norm_after=GGUF_AFTER,
        norm_remark=POST_NORM,
    ),
    *(
        _gguf(family, name, value, norm_before=norm, norm_after=after)
        for family, name, norm, after in (
            ("GLM-4", "glm4", GGUF_NORM, GGUF_AFTER),
            ("Llama", "chatglm", GGUF_NORM, None),
            ("Phi", "phi2", GGUF_LAYER_NORM, None),
            ("Phi-3", "phi3", GGUF_NORM, None),
        )
        for value in ("attn_v", GGUF_QKV)
    ),
    _gguf(
        "StarCoder 2, StableLM, Cohere",
        "starcoder2 stablelm command-r cohere2",
        norm_before=GGUF_LAYER_NORM,
    ),
    _gguf("Nemotron", "nemotron", norm_before=GGUF_LAYER_NORM),
    _gguf("GPT-J", "gptj", norm_before=GGUF_LAYER_NORM),
    *(
        _gguf(family, name, GGUF_QKV, norm_before=GGUF_LAYER_NORM)
        for name, family in GGUF_FUSED.items()
    ),
    *(
        _gguf("Falcon", "falcon", GGUF_QKV, norm_before=_layer_norm(BLK + norm))
        for norm in ("attn_norm_2", "attn_norm")
    ),
    *(
        _gguf(
            "DeepSeek MLA",
            "deepseek2",
            Latent(BLK + up, BLK + "attn_kv_a_norm.weight", BLK + "attn_kv_a_mqa.weight", stacked),
            remark=LATENT_NORM,
        )
        for up, stacked in (("attn_v_b.weight", True), ("attn_kv_b.weight", False))
    ),
    *(
        _gguf("BERT", "bert", value, norm_before=None, norm_remark=POST_LN)
        for value in ("attn_v", GGUF_QKV)
    ),
    _gguf(
        "ModernBERT",
        "modern-bert",
        GGUF_QKV,
        norm_before=_layer_norm(BLK + "attn_norm", from_layer=1),
        norm_remark=FIRST_BARE,
    ),
    *(
        _gguf(
            "T5",
            names,
            output="attn_o",
            module=stack + BLK,
            part=part,
            norm_before=Norm(stack + BLK + "attn_norm.weight"),
            keys=Keys(n_layers=layers),
            remark=SELF_ONLY,
        )
        for part, stack, layers, names in (
            ("decoder", "dec.", "decoder_block_count", "t5"),
            ("encoder", "enc.", "block_count", "t5 t5encoder"),
        )
    ),
)
LAYOUTS: tuple[Layout, ...] = _TRANSFORMERS + _GGUF
