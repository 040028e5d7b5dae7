"""A tiny configuration of every listed architecture, and where its modules are.

Nothing here is taken from the package: module paths are transformers' own, for hooks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# Widths and counts differ from one another, and the head dimension is not the width over the
# heads where a configuration lets it be, so that no wrong split or transposition fits by accident.
COMMON = {"num_hidden_layers": 2, "vocab_size": 32, "pad_token_id": 0}
GROUPED = COMMON | {
    "hidden_size": 48,
    "intermediate_size": 40,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
}
WIDE = GROUPED | {"head_dim": 10}
EVEN = {key: value for key, value in GROUPED.items() if key != "num_key_value_heads"}
EXPERTS = {
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
ENCODER = COMMON | {
    "hidden_size": 40,
    "intermediate_size": 24,
    "num_attention_heads": 5,
    "max_position_embeddings": 16,
}
IMAGE = {
    "hidden_size": 40,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 5,
    "image_size": 4,
    "patch_size": 4,
}
GPT = {"n_embd": 40, "n_layer": 2, "n_head": 5, "vocab_size": 32, "n_positions": 16}
LATENT = (
    EVEN
    | EXPERTS
    | {
        "num_key_value_heads": 6,
        "kv_lora_rank": 12,
        "q_lora_rank": 14,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 6,
        "v_head_dim": 9,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "n_group": 1,
        "topk_group": 1,
    }
)
STACKS = {
    "d_model": 40,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 5,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "vocab_size": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}


@dataclass(frozen=True)
class Case:
    """One tiny model and the modules to listen to.

    Parameters
    ----------
    config : dict
    output : str
        Template of the output projection's path.
    reader : str
        Template of a module that takes the attention's input: the value or fused projection.
    before, after : str
        Templates of the norms whose input is the block's, and whose output is its attention's;
        empty where there is none.
    model_type : str
        Where it is not the case's own name.
    part : str
    layers : tuple of int
    kind : {"text", "image", "audio", "pair"}
        What the model takes.
    model_class : str
        Class to make it of; AutoModel if empty.
    """

    config: dict
    output: str
    reader: str
    before: str = ""
    after: str = ""
    model_type: str = ""
    part: str | None = None
    layers: tuple[int, ...] = (0, 1)
    kind: str = "text"
    model_class: str = ""
    same_layer: dict = field(default_factory=dict)


def decoder(config, attention="layers.{}.self_attn.", norm="input_layernorm", **changes):
    block = attention.rsplit(".", 2)[0]
    options = {
        "output": attention + "o_proj",
        "reader": attention + "v_proj",
        "before": f"{block}.{norm}" if norm else "",
    }
    return Case(config, **(options | changes))


def encoder(config, attention="encoder.layer.{}.attention.", **changes):
    options = {"output": attention + "output.dense", "reader": attention + "self.value"}
    return Case(config, **(options | changes))


def gpt(config, **changes):
    options = {
        "output": "h.{}.attn.out_proj",
        "reader": "h.{}.attn.v_proj",
        "before": "h.{}.ln_1",
    }
    return Case(config, **(options | changes))


def stack(config, path, part, layers, **changes):
    options = {
        "output": path + "self_attn.out_proj",
        "reader": path + "self_attn.v_proj",
        "part": part,
        "layers": tuple(range(layers)),
    }
    return Case(config, **(options | changes))


POST = "layers.{}.post_attention_layernorm"
PLAIN = ["llama", "mistral", "qwen3", "apertus", "gemma", "nemotron", "glm", "cohere2"]
ALSO_PLAIN = ["qwen2", "olmo", "granite", "starcoder2", "stablelm", "cohere", "smollm3"]
OF_EXPERTS = ["qwen2_moe", "olmoe", "granitemoe"]
OF_WIDE_EXPERTS = ["mixtral", "qwen3_moe", "gpt_oss"]
AFTER_ONLY = {"norm": "", "after": POST}
FUSED = "layers.{}.self_attn.query_key_value"
FALCON = {
    "output": "h.{}.self_attention.dense",
    "reader": "h.{}.self_attention.query_key_value",
    "before": "h.{}.input_layernorm",
    "model_type": "falcon",
}
FALCON_CONFIG = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "vocab_size": 32,
}
BIGCODE = {
    "output": "h.{}.attn.c_proj",
    "reader": "h.{}.attn.c_attn",
    "model_type": "gpt_bigcode",
}
VIT = "layers.{}.attention."
DINO = "encoder.layer.{}.attention."
TEXT_TOWER = ENCODER | {"num_attention_heads": 4}
# SigLIP compares its towers' outputs as they are, so they are equally wide there.
PAIR = {"text_config": TEXT_TOWER, "vision_config": IMAGE, "projection_dim": 8}

CASES: dict[str, Case] = {
    **{name: decoder(WIDE) for name in PLAIN},
    **{name: decoder(GROUPED) for name in ALSO_PLAIN},
    **{name: decoder(GROUPED | EXPERTS) for name in OF_EXPERTS},
    **{name: decoder(WIDE | EXPERTS) for name in OF_WIDE_EXPERTS},
    "apertus": decoder(WIDE, norm="attention_layernorm"),
    "gemma2": decoder(WIDE, after=POST),
    "gemma3_text": decoder(WIDE, after=POST),
    "glm4": decoder(WIDE, after="layers.{}.post_self_attn_layernorm"),
    "olmo2": decoder(GROUPED, **AFTER_ONLY),
    "olmo3": decoder(GROUPED, **AFTER_ONLY),
    "exaone4": decoder(WIDE, **AFTER_ONLY),
    "qwen3_next": decoder(
        WIDE
        | EXPERTS
        | {
            "num_hidden_layers": 4,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
        },
        layers=(3,),
    ),
    "phi": decoder(GROUPED, output="layers.{}.self_attn.dense"),
    "phi3": decoder(GROUPED, reader="layers.{}.self_attn.qkv_proj"),
    "persimmon": decoder(EVEN, output="layers.{}.self_attn.dense", reader=FUSED),
    "gpt_neox": decoder(
        EVEN,
        attention="layers.{}.attention.",
        output="layers.{}.attention.dense",
        reader="layers.{}.attention.query_key_value",
    ),
    "opt": decoder(
        ENCODER | {"ffn_dim": 24, "word_embed_proj_dim": 40},
        attention="decoder.layers.{}.self_attn.",
        norm="self_attn_layer_norm",
        output="decoder.layers.{}.self_attn.out_proj",
    ),
    "opt-post-norm": decoder(
        ENCODER | {"ffn_dim": 24, "word_embed_proj_dim": 40, "do_layer_norm_before": False},
        attention="decoder.layers.{}.self_attn.",
        norm="",
        output="decoder.layers.{}.self_attn.out_proj",
        model_type="opt",
    ),
    "deepseek_v2": decoder(LATENT, reader="layers.{}.self_attn.kv_a_proj_with_mqa"),
    "deepseek_v3": decoder(LATENT, reader="layers.{}.self_attn.kv_a_proj_with_mqa"),
    "gpt2": gpt(GPT, output="h.{}.attn.c_proj", reader="h.{}.attn.c_attn"),
    "gpt_neo": gpt(
        {
            "hidden_size": 40,
            "num_layers": 2,
            "num_heads": 5,
            "vocab_size": 32,
            "attention_types": [[["global", "local"], 1]],
            "max_position_embeddings": 16,
        },
        output="h.{}.attn.attention.out_proj",
        reader="h.{}.attn.attention.v_proj",
    ),
    "gptj": gpt(GPT | {"rotary_dim": 4}),
    "codegen": gpt(
        GPT | {"n_embd": 48, "n_head": 8, "rotary_dim": 4, "n_ctx": 16},
        reader="h.{}.attn.qkv_proj",
    ),
    "bloom": gpt(
        {"hidden_size": 40, "n_layer": 2, "n_head": 5, "vocab_size": 32},
        output="h.{}.self_attention.dense",
        reader="h.{}.self_attention.query_key_value",
        before="h.{}.input_layernorm",
    ),
    "mpt": gpt(
        {
            "d_model": 40,
            "n_layers": 2,
            "n_heads": 5,
            "vocab_size": 32,
            "max_seq_len": 16,
            "expansion_ratio": 2,
        },
        output="blocks.{}.attn.out_proj",
        reader="blocks.{}.attn.Wqkv",
        before="blocks.{}.norm_1",
    ),
    "dbrx": gpt(
        {
            "d_model": 48,
            "n_heads": 6,
            "n_layers": 2,
            "vocab_size": 32,
            "max_seq_len": 16,
            "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 1e6},
            "ffn_config": {
                "ffn_hidden_size": 16,
                "moe_num_experts": 4,
                "moe_top_k": 2,
                "hidden_size": 48,
            },
        },
        output="blocks.{}.norm_attn_norm.attn.out_proj",
        reader="blocks.{}.norm_attn_norm.attn.Wqkv",
        before="blocks.{}.norm_attn_norm.norm_1",
    ),
    "falcon-7b": Case(FALCON_CONFIG | {"multi_query": True, "bias": False}, **FALCON),
    "falcon-rw": Case(
        FALCON_CONFIG | {"multi_query": False, "parallel_attn": False, "bias": True, "alibi": True},
        **FALCON,
    ),
    "falcon-40b": Case(
        FALCON_CONFIG | {"new_decoder_architecture": True, "num_kv_heads": 2},
        **(FALCON | {"before": "h.{}.ln_attn"}),
    ),
    "gpt_bigcode": gpt(GPT, **BIGCODE),
    "gpt_bigcode-mha": gpt(GPT | {"multi_query": False}, **BIGCODE),
    # Encoders.
    "bert": encoder(ENCODER),
    "roberta": encoder(ENCODER),
    "xlm-roberta": encoder(ENCODER),
    "electra": encoder(ENCODER | {"embedding_size": 20}),
    "deberta-v2": encoder(ENCODER, reader="encoder.layer.{}.attention.self.value_proj"),
    "distilbert": Case(
        {
            "dim": 40,
            "hidden_dim": 24,
            "n_layers": 2,
            "n_heads": 5,
            "vocab_size": 32,
            "max_position_embeddings": 16,
        },
        "transformer.layer.{}.attention.out_lin",
        "transformer.layer.{}.attention.v_lin",
    ),
    "albert": Case(
        ENCODER | {"embedding_size": 20, "num_hidden_layers": 4, "num_hidden_groups": 2},
        "encoder.albert_layer_groups.{}.albert_layers.0.attention.dense",
        "encoder.albert_layer_groups.{}.albert_layers.0.attention.value",
        layers=(0, 2),
        same_layer={0: 0, 2: 1},
    ),
    "modernbert": Case(
        ENCODER | {"cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2},
        "layers.{}.attn.Wo",
        "layers.{}.attn.Wqkv",
        before="layers.{}.attn_norm",
    ),
    "vit": Case(
        IMAGE,
        VIT + "o_proj",
        VIT + "v_proj",
        before="layers.{}.layernorm_before",
        kind="image",
    ),
    "dinov2": Case(
        IMAGE,
        DINO + "o_proj",
        DINO + "v_proj",
        before="encoder.layer.{}.norm1",
        after="encoder.layer.{}.layer_scale1",
        kind="image",
    ),
    # Stacks and towers.
    **{
        f"{name}-{part}": stack(
            PAIR,
            f"{part}_model.encoder.layers.{{}}.",
            part,
            2,
            before=f"{part}_model.encoder.layers.{{}}.layer_norm1",
            model_type=name,
            kind="pair",
        )
        for name in ("clip", "siglip")
        for part in ("text", "vision")
    },
    **{
        f"{name}_{part}_model": stack(
            config,
            "encoder.layers.{}.",
            part,
            2,
            before="encoder.layers.{}.layer_norm1",
            kind="image" if part == "vision" else "text",
            model_class=f"{family}{part.capitalize()}Model",
        )
        for name, family in (("clip", "CLIP"), ("siglip", "Siglip"))
        for part, config in (("text", TEXT_TOWER), ("vision", IMAGE))
    },
    **{
        f"whisper-{part}": stack(
            STACKS | {"num_mel_bins": 8, "max_source_positions": 1, "max_target_positions": 8},
            f"{part}.layers.{{}}.",
            part,
            layers,
            before=f"{part}.layers.{{}}.self_attn_layer_norm",
            model_type="whisper",
            kind="audio",
        )
        for part, layers in (("encoder", 2), ("decoder", 3))
    },
    **{
        f"bart-{part}": stack(
            STACKS | {"max_position_embeddings": 16},
            f"{part}.layers.{{}}.",
            part,
            layers,
            model_type="bart",
            kind="both",
        )
        for part, layers in (("encoder", 2), ("decoder", 3))
    },
    **{
        f"t5-{part}": Case(
            {
                "d_model": 40,
                "d_kv": 6,
                "num_heads": 5,
                "num_layers": 2,
                "num_decoder_layers": 3,
                "d_ff": 24,
                "vocab_size": 32,
            },
            f"{part}.block.{{}}.layer.0.SelfAttention.o",
            f"{part}.block.{{}}.layer.0.SelfAttention.v",
            before=f"{part}.block.{{}}.layer.0.layer_norm",
            part=part,
            layers=tuple(range(layers)),
            model_type="t5",
            kind="both",
        )
        for part, layers in (("encoder", 2), ("decoder", 3))
    },
    # A wrapper: its language model is read.
    "gemma3": Case(
        {
            "text_config": {k: v for k, v in WIDE.items() if k != "pad_token_id"},
            "vision_config": IMAGE,
        },
        "language_model.layers.{}.self_attn.o_proj",
        "language_model.layers.{}.self_attn.v_proj",
        before="language_model.layers.{}.input_layernorm",
        after="language_model.layers.{}.post_attention_layernorm",
    ),
}


def model_type(case: str) -> str:
    """The model_type that a case tests."""
    return CASES[case].model_type or case
