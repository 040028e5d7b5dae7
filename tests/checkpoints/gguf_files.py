"""GGUF files of tiny models, with the names of the ``gguf`` library and llama.cpp's rearrangements.

Names come from the library's own map, not from the package's table.
"""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
from safetensors.torch import load_file

#: Case of `architectures.CASES` -> general.architecture.
ARCHITECTURES = {
    **dict.fromkeys(["llama", "mistral", "mixtral"], "llama"),
    **{
        name: name
        for name in (
            "qwen2", "qwen3", "gemma", "gemma2", "olmo", "olmo2", "olmoe", "granite", "starcoder2",
            "stablelm", "cohere2", "nemotron", "apertus", "smollm3", "exaone4", "glm4", "phi3",
            "gpt2", "gptj", "bloom", "mpt", "dbrx", "bert",
        )
    },
    "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
    "qwen3_next": "qwen3next",
    "gemma3_text": "gemma3",
    "olmo3": "olmo2",
    "granitemoe": "granitemoe",
    "cohere": "command-r",
    "glm": "chatglm",
    "gpt_oss": "gpt-oss",
    "phi": "phi2",
    "gpt_neox": "gptneox",
    "falcon-7b": "falcon",
    "falcon-rw": "falcon",
    "falcon-40b": "falcon",
    "gpt_bigcode": "starcoder",
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "roberta": "bert",
    "xlm-roberta": "bert",
    "distilbert": "bert",
    "modernbert": "modern-bert",
    "t5-encoder": "t5",
    "t5-decoder": "t5",
}  # fmt: skip
# Gains that llama.cpp stores with their 1 added.
WITH_ONE = {"gemma", "gemma2", "gemma3", "nemotron", "qwen3next"}
PREFIXES = ("", "model.", "transformer.", "gpt_neox.", "bert.", "distilbert.")


def _sizes(opened) -> tuple[int, int, int, int]:
    return opened.n_heads, opened.n_value_heads, opened.d_head, opened.d_model


def flat(weight: np.ndarray, n_heads: int, n_value_heads: int) -> np.ndarray:
    """Undo an interleaving per value group, as llama.cpp's converter does."""
    m = n_heads // n_value_heads
    r = weight.shape[0] // (n_heads + 2 * n_value_heads)
    w = weight.reshape(n_value_heads, m + 2, r, -1)
    parts = (w[:, :m], w[:, m : m + 1], w[:, m + 1 :])
    return np.concatenate([part.reshape(-1, weight.shape[1]) for part in parts])


def write(
    case: str,
    folder: Path,
    path: Path,
    opened,
    kind=gguf.GGMLQuantizationType.F32,
    old_mla=False,
    value_heads=None,
) -> None:
    """Write a saved model as GGUF.

    `opened` is the model from its folder: only its counts are used.
    """
    arch = ARCHITECTURES[case]
    config = json.loads((folder / "config.json").read_text())
    number = next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == arch)
    names = gguf.get_tensor_name_map(number, 8)
    H, G, r, d = _sizes(opened)
    writer = gguf.GGUFWriter(path, arch)
    n_layers = opened.hyperparameters.n_layers
    if arch == "t5":
        writer.add_block_count(config["num_layers"])
        writer.add_decoder_block_count(config["num_decoder_layers"])
    else:
        writer.add_block_count(n_layers)
    writer.add_embedding_length(d)
    writer.add_head_count(H)
    writer.add_head_count_kv(value_heads or G)
    if r != d // H:
        writer.add_value_length(r)
    if arch == "qwen3next":
        writer.add_uint32("qwen3next.full_attention_interval", 4)
    if arch == "deepseek2":
        rotary, lora = config["qk_rope_head_dim"], config["kv_lora_rank"]
        writer.add_kv_lora_rank(lora)
        writer.add_rope_dimension_count(rotary)
        if old_mla:
            writer.add_key_length(config["qk_nope_head_dim"] + rotary)
        else:
            writer.add_uint32("deepseek2.attention.key_length", lora + rotary)
            writer.add_uint32("deepseek2.attention.key_length_mla", 6 + rotary)
            writer.add_uint32("deepseek2.attention.value_length_mla", r)
    for name, tensor in load_file(folder / "model.safetensors").items():
        found = [names.get_name(p + name, try_suffixes=(".weight", ".bias")) for p in PREFIXES]
        target = next(filter(None, found), None)
        if target is None or ("attn" not in target and "norm" not in target) or tensor.ndim > 2:
            continue
        values = tensor.float().numpy()
        if arch == "gpt2" and values.ndim == 2:
            values = np.ascontiguousarray(values.T)
        if target.endswith("attn_qkv.weight") and arch in ("gptneox", "bloom", "falcon"):
            values = flat(values, H, G)
        if arch in WITH_ONE and target.endswith("norm.weight"):
            values = values + 1
        stem = target.removesuffix("attn_kv_b.weight")
        if stem != target and not old_mla:
            heads = values.reshape(H, -1, values.shape[1])
            values, target = np.ascontiguousarray(heads[:, -r:]), stem + "attn_v_b.weight"
        quantise = values.ndim == 2 and values.shape[1] % 32 == 0
        own = kind if quantise else gguf.GGMLQuantizationType.F32
        writer.add_tensor(target, gguf.quantize(values, own), raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
