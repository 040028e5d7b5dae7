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
from .storage import FusedByGroup, FusedBySize, FusedInBlocks, Latent, Linear, Norm, Output


# --- the table ------------------------------------------------------------------------------------
def _falcon_value_heads(config: Any) -> int:
    # The new architecture ignores multi_query, whatever it says.
    if config.new_decoder_architecture:
        return config.num_kv_heads
    return 1 if config.multi_query else config.num_attention_heads


def _bigcode_value_heads(config: Any) -> int:
    return 1 if config.multi_query else config.num_attention_heads


POST_LN = "post-LN: no norm feeds the attention, so there is nothing to fold"
POST_NORM = "no norm feeds the attention; only the gain of the norm after it is folded"
RMS = "layers.{layer}.input_layernorm.weight"
SELF = "layers.{layer}.self_attn."


def _llama_like(family: str, *types: str, **options: Any) -> Layout:
    return Layout(
        **{
            "family": family,
            "naming": "transformers",
            "architectures": types,
            "value": Linear(SELF + "v_proj.weight"),
            "output": Output(SELF + "o_proj.weight"),
            "prefixes": DECODER,
            "norm_before": Norm(RMS),
        }
        | options
    )


def _bert_like(
    family: str,
    *types: str,
    value: str = "encoder.layer.{layer}.attention.self.value.weight",
    output: str = "encoder.layer.{layer}.attention.output.dense.weight",
    prefixes: tuple[str, ...],
    **options: Any,
) -> Layout:
    options = {"norm_remark": POST_LN} | options
    return Layout(
        family, "transformers", types, Linear(value), Output(output), ("", *prefixes), **options
    )


def _gpt_like(family: str, *types: str, value: Linear, output: Output, **options: Any) -> Layout:
    options = {"norm_before": Norm("h.{layer}.ln_1.weight", centred=True)} | options
    prefixes = ("transformer.", "", "language_model.transformer.")
    return Layout(family, "transformers", types, value, output, prefixes, **options)


def _stack(
    family: str, *types: str, part: str, stack: str = "", keys: Keys, **options: Any
) -> Layout:
    """Make the row of one stack of an encoder-decoder, or of one tower of a pair."""
    options = {
        "prefixes": ("", "model."),
        "value": Linear(stack + SELF + "v_proj.weight"),
        "output": Output(stack + SELF + "out_proj.weight"),
    } | options
    return Layout(family, "transformers", types, part=part, keys=keys, **options)


def _side(name: str) -> Keys:
    heads = f"{name}_attention_heads"
    return Keys(n_layers=f"{name}_layers", n_heads=heads, n_value_heads=heads)


LAYER_NORM = Norm(RMS, centred=True)
NORM_1 = Norm("encoder.layers.{layer}.layer_norm1.weight", centred=True)
OWN_NORM = SELF.replace("self_attn.", "self_attn_layer_norm.weight")
AFTER = "layers.{layer}.post_attention_layernorm.weight"
MLA = Keys(d_head="v_head_dim", n_value_heads="num_attention_heads")
T5_KEYS = {"d_head": "d_kv", "n_heads": "num_heads", "d_model": "d_model"}
_TRANSFORMERS: tuple[Layout, ...] = (
    # Decoders with a v_proj of their own.
    _llama_like(
        "Llama",
        "llama",
        "mistral",
        "mixtral",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "olmoe",
        "granite",
        "granitemoe",
        "smollm3",
        "glm",
    ),
    _llama_like("gpt-oss", "gpt_oss"),
    _llama_like(
        "Apertus", "apertus", norm_before=Norm("layers.{layer}.attention_layernorm.weight")
    ),
    _llama_like("Gemma", "gemma", norm_before=Norm(RMS, offset=1.0)),
    _llama_like(
        "Gemma 2 and 3",
        "gemma2",
        "gemma3",
        "gemma3_text",
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
        "olmo2",
        "olmo3",
        "exaone4",
        norm_before=None,
        norm_after=Norm(AFTER),
        norm_remark=POST_NORM,
    ),
    _llama_like(
        "GLM-4",
        "glm4",
        norm_after=Norm("layers.{layer}.post_self_attn_layernorm.weight"),
    ),
    _llama_like(
        "StarCoder 2, StableLM, Cohere",
        "starcoder2",
        "stablelm",
        "cohere",
        "cohere2",
        norm_before=LAYER_NORM,
    ),
    _llama_like("Nemotron", "nemotron", norm_before=Norm(RMS, offset=1.0, centred=True)),
    _llama_like("Phi", "phi", output=Output(SELF + "dense.weight"), norm_before=LAYER_NORM),
    _llama_like(
        "OPT",
        "opt",
        output=Output(SELF + "out_proj.weight"),
        prefixes=("model.decoder.", "decoder.", "", "model."),
        norm_before=Norm(OWN_NORM, centred=True),
    ),
    # Fused decoders.
    _llama_like("Phi-3", "phi3", value=Linear(SELF + "qkv_proj.weight", FusedBySize())),
    _llama_like(
        "Persimmon",
        "persimmon",
        value=Linear(SELF + "query_key_value.weight", FusedByGroup()),
        output=Output(SELF + "dense.weight"),
        norm_before=LAYER_NORM,
    ),
    _llama_like(
        "GPT-NeoX",
        "gpt_neox",
        value=Linear("layers.{layer}.attention.query_key_value.weight", FusedByGroup()),
        output=Output("layers.{layer}.attention.dense.weight"),
        prefixes=("gpt_neox.", "", "model."),
        norm_before=LAYER_NORM,
    ),
    _llama_like(
        "DeepSeek MLA",
        "deepseek_v2",
        "deepseek_v3",
        value=Latent(
            SELF + "kv_b_proj.weight",
            SELF + "kv_a_layernorm.weight",
            SELF + "kv_a_proj_with_mqa.weight",
        ),
        keys=MLA,
        remark="the norm inside the values leaves a scale that depends on the token; T is defined "
        "up to it",
    ),
    _gpt_like(
        "GPT-2",
        "gpt2",
        value=Linear("h.{layer}.attn.c_attn.weight", FusedBySize(), transposed=True),
        output=Output("h.{layer}.attn.c_proj.weight", transposed=True),
    ),
    _gpt_like(
        "GPTBigCode",
        "gpt_bigcode",
        value=Linear("h.{layer}.attn.c_attn.weight", FusedByGroup()),
        output=Output("h.{layer}.attn.c_proj.weight"),
        keys=Keys(n_value_heads=_bigcode_value_heads),
    ),
    _gpt_like(
        "GPT-Neo",
        "gpt_neo",
        value=Linear("h.{layer}.attn.attention.v_proj.weight"),
        output=Output("h.{layer}.attn.attention.out_proj.weight"),
    ),
    _gpt_like(
        "GPT-J",
        "gptj",
        value=Linear("h.{layer}.attn.v_proj.weight"),
        output=Output("h.{layer}.attn.out_proj.weight"),
    ),
    _gpt_like(
        "CodeGen",
        "codegen",
        value=Linear("h.{layer}.attn.qkv_proj.weight", FusedInBlocks()),
        output=Output("h.{layer}.attn.out_proj.weight"),
    ),
    _gpt_like(
        "BLOOM",
        "bloom",
        value=Linear("h.{layer}.self_attention.query_key_value.weight", FusedByGroup()),
        output=Output("h.{layer}.self_attention.dense.weight"),
        norm_before=Norm("h.{layer}.input_layernorm.weight", centred=True),
    ),
    # Two norms in parallel, one of them the attention's, or one for both branches.
    *(
        _gpt_like(
            "Falcon",
            "falcon",
            value=Linear("h.{layer}.self_attention.query_key_value.weight", FusedByGroup()),
            output=Output("h.{layer}.self_attention.dense.weight"),
            norm_before=Norm("h.{layer}." + norm + ".weight", centred=True),
            keys=Keys(n_value_heads=_falcon_value_heads),
        )
        for norm in ("ln_attn", "input_layernorm")
    ),
    _gpt_like(
        "MPT",
        "mpt",
        value=Linear("blocks.{layer}.attn.Wqkv.weight", FusedBySize()),
        output=Output("blocks.{layer}.attn.out_proj.weight"),
        norm_before=Norm("blocks.{layer}.norm_1.weight", centred=True),
    ),
    _gpt_like(
        "DBRX",
        "dbrx",
        value=Linear("blocks.{layer}.norm_attn_norm.attn.Wqkv.weight", FusedBySize()),
        output=Output("blocks.{layer}.norm_attn_norm.attn.out_proj.weight"),
        norm_before=Norm("blocks.{layer}.norm_attn_norm.norm_1.weight", centred=True),
        keys=Keys(n_value_heads="attn_config.kv_n_heads"),
    ),
    # Encoders.
    _bert_like("BERT", "bert", prefixes=("bert.",)),
    _bert_like("RoBERTa", "roberta", "xlm-roberta", prefixes=("roberta.",)),
    _bert_like("ELECTRA", "electra", prefixes=("electra.",)),
    _bert_like(
        "DeBERTa v2",
        "deberta-v2",
        value="encoder.layer.{layer}.attention.self.value_proj.weight",
        prefixes=("deberta.",),
    ),
    _bert_like(
        "DistilBERT",
        "distilbert",
        value="transformer.layer.{layer}.attention.v_lin.weight",
        output="transformer.layer.{layer}.attention.out_lin.weight",
        prefixes=("distilbert.",),
    ),
    _bert_like(
        "ALBERT",
        "albert",
        value="encoder.albert_layer_groups.{layer}.albert_layers.0.attention.value.weight",
        output="encoder.albert_layer_groups.{layer}.albert_layers.0.attention.dense.weight",
        prefixes=("albert.",),
    ),
    _bert_like(
        "ViT",
        "vit",
        value="encoder.layer.{layer}.attention.attention.value.weight",
        prefixes=("vit.",),
        norm_before=Norm("encoder.layer.{layer}.layernorm_before.weight", centred=True),
        norm_remark="",
    ),
    _bert_like(
        "DINOv2",
        "dinov2",
        value="encoder.layer.{layer}.attention.attention.value.weight",
        prefixes=("dinov2.",),
        norm_before=Norm("encoder.layer.{layer}.norm1.weight", centred=True),
        norm_after=Norm("encoder.layer.{layer}.layer_scale1.lambda1", scale_only=True),
        norm_remark="",
    ),
    Layout(
        "ModernBERT",
        "transformers",
        ("modernbert",),
        Linear("layers.{layer}.attn.Wqkv.weight", FusedBySize()),
        Output("layers.{layer}.attn.Wo.weight"),
        ("model.", ""),
        norm_before=Norm("layers.{layer}.attn_norm.weight", centred=True, from_layer=1),
        norm_remark="layer 0 has no norm before the attention",
    ),
    # Towers and stacks; the first of an architecture is the default.
    *(
        _stack(
            "CLIP and SigLIP",
            "clip",
            "siglip",
            part=part,
            stack="encoder.",
            keys=Keys(within=f"{part}_config"),
            prefixes=(f"{part}_model.", f"model.{part}_model."),
            norm_before=NORM_1,
        )
        for part in ("text", "vision")
    ),
    *(
        _stack(
            "CLIP and SigLIP",
            f"clip_{part}_model",
            f"siglip_{part}_model",
            part=part,
            stack="encoder.",
            keys=Keys(),
            prefixes=(f"{part}_model.", ""),
            norm_before=NORM_1,
        )
        for part in ("text", "vision")
    ),
    *(
        _stack(
            "Whisper",
            "whisper",
            part=part,
            stack=f"{part}.",
            keys=_side(part),
            norm_before=Norm(f"{part}.{OWN_NORM}", centred=True),
            remark="self-attention only",
        )
        for part in ("decoder", "encoder")
    ),
    *(
        _stack(
            "BART",
            "bart",
            part=part,
            stack=f"{part}.",
            keys=_side(part),
            norm_remark=POST_LN,
            remark="self-attention only",
        )
        for part in ("decoder", "encoder")
    ),
    *(
        _stack(
            "T5",
            "t5",
            part=part,
            keys=Keys(n_layers=layers, **T5_KEYS),
            prefixes=("", "transformer."),
            value=Linear(part + ".block.{layer}.layer.0.SelfAttention.v.weight"),
            output=Output(part + ".block.{layer}.layer.0.SelfAttention.o.weight"),
            norm_before=Norm(part + ".block.{layer}.layer.0.layer_norm.weight"),
            remark="self-attention only",
        )
        for part, layers in (("decoder", "num_decoder_layers"), ("encoder", "num_layers"))
    ),
)

# What llama.cpp makes of the files above: it undoes interleaving and transposition, and adds the
# 1 of Gemma's, Nemotron's and Qwen3-Next's gains.
BLK = "blk.{layer}."
GGUF_QKV = Linear(BLK + "attn_qkv.weight", FusedBySize())
GGUF_NORM = Norm(BLK + "attn_norm.weight")
GGUF_LAYER_NORM = Norm(BLK + "attn_norm.weight", centred=True)
GGUF_AFTER = Norm(BLK + "post_attention_norm.weight")


def _gguf(family: str, *names: str, **options: Any) -> Layout:
    return Layout(
        **{
            "family": family,
            "naming": "gguf",
            "architectures": names,
            "value": Linear(BLK + "attn_v.weight"),
            "output": Output(BLK + "attn_output.weight"),
            "norm_before": GGUF_NORM,
        }
        | options
    )


_GGUF: tuple[Layout, ...] = (
    _gguf(
        "Llama",
        "llama",
        "mistral3",
        "qwen2",
        "qwen2moe",
        "qwen3",
        "qwen3moe",
        "olmoe",
        "granite",
        "granitemoe",
        "smollm3",
    ),
    _gguf("gpt-oss", "gpt-oss"),
    _gguf("Apertus", "apertus"),
    _gguf("Gemma", "gemma"),
    _gguf("Gemma 2 and 3", "gemma2", "gemma3", norm_after=GGUF_AFTER),
    _gguf("Qwen3-Next", "qwen3next"),
    _gguf("OLMo", "olmo", norm_before=Norm(centred=True)),
    _gguf(
        "OLMo 2 and 3, EXAONE 4",
        "olmo2",
        "exaone4",
        norm_before=None,
        norm_after=GGUF_AFTER,
        norm_remark=POST_NORM,
    ),
    *(
        _gguf(family, name, value=value, norm_before=norm, norm_after=after)
        for family, name, norm, after in (
            ("GLM-4", "glm4", GGUF_NORM, GGUF_AFTER),
            ("Llama", "chatglm", GGUF_NORM, None),
            ("Phi", "phi2", GGUF_LAYER_NORM, None),
            ("Phi-3", "phi3", GGUF_NORM, None),
        )
        for value in (Linear(BLK + "attn_v.weight"), GGUF_QKV)
    ),
    _gguf(
        "StarCoder 2, StableLM, Cohere",
        "starcoder2",
        "stablelm",
        "command-r",
        "cohere2",
        norm_before=GGUF_LAYER_NORM,
    ),
    _gguf("Nemotron", "nemotron", norm_before=GGUF_LAYER_NORM),
    _gguf("GPT-J", "gptj", norm_before=GGUF_LAYER_NORM),
    *(
        _gguf(family, name, value=GGUF_QKV, norm_before=GGUF_LAYER_NORM)
        for family, name in (
            ("GPT-2", "gpt2"),
            ("GPT-NeoX", "gptneox"),
            ("BLOOM", "bloom"),
            ("MPT", "mpt"),
            ("GPTBigCode", "starcoder"),
            ("DBRX", "dbrx"),
        )
    ),
    *(
        _gguf("Falcon", "falcon", value=GGUF_QKV, norm_before=Norm(BLK + norm, centred=True))
        for norm in ("attn_norm_2.weight", "attn_norm.weight")
    ),
    *(
        _gguf(
            "DeepSeek MLA",
            "deepseek2",
            value=Latent(
                BLK + up, BLK + "attn_kv_a_norm.weight", BLK + "attn_kv_a_mqa.weight", stacked
            ),
            remark="the norm inside the values leaves a scale that depends on the token; T is "
            "defined up to it",
        )
        for up, stacked in (("attn_v_b.weight", True), ("attn_kv_b.weight", False))
    ),
    *(
        _gguf("BERT", "bert", value=value, norm_before=None, norm_remark=POST_LN)
        for value in (Linear(BLK + "attn_v.weight"), GGUF_QKV)
    ),
    _gguf(
        "ModernBERT",
        "modern-bert",
        value=GGUF_QKV,
        norm_before=Norm(BLK + "attn_norm.weight", centred=True, from_layer=1),
        norm_remark="layer 0 has no norm before the attention",
    ),
    *(
        _gguf(
            "T5",
            *names,
            part=part,
            value=Linear(stack + BLK + "attn_v.weight"),
            output=Output(stack + BLK + "attn_o.weight"),
            norm_before=Norm(stack + BLK + "attn_norm.weight"),
            keys=Keys(n_layers=layers),
            remark="self-attention only",
        )
        for part, stack, layers, names in (
            ("decoder", "dec.", "decoder_block_count", ("t5",)),
            ("encoder", "enc.", "block_count", ("t5", "t5encoder")),
        )
    ),
)
LAYOUTS: tuple[Layout, ...] = _TRANSFORMERS + _GGUF
