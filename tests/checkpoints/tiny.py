"""Tiny models of random weights, made and saved by transformers itself."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import torch
import transformers
from safetensors.torch import load_file

from tests.checkpoints.architectures import CASES, model_type


def make(name: str, **changes) -> transformers.PreTrainedModel:
    """A random model; norms' gains are random too, since 1 would hide a missing one."""
    torch.manual_seed(0)
    case = CASES[name]
    config = transformers.AutoConfig.for_model(model_type(name), **(case.config | changes))
    config._attn_implementation = "eager"
    if case.model_class:
        model = getattr(transformers, case.model_class)(config).eval()
    else:
        model = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.3)
    return model


def save(name: str, folder: Path, **options) -> transformers.PreTrainedModel:
    model = make(name)
    model.save_pretrained(folder, **options)
    return model


def run(model: transformers.PreTrainedModel, name: str) -> None:
    """Run a model on the shortest input that it takes."""
    kind = CASES[name].kind
    token = torch.tensor([[7]])
    image = torch.randn(1, 3, 4, 4)
    if kind == "text":
        model(token)
    elif kind == "image":
        model(image)
    elif kind == "pair":
        model(input_ids=token, pixel_values=image)
    elif kind == "audio":
        model(input_features=torch.randn(1, 8, 2), decoder_input_ids=token)
    else:
        model(input_ids=token, decoder_input_ids=token)


def write_gguf(folder: Path, path: Path, kind: gguf.GGMLQuantizationType) -> None:
    """Write a saved llama as GGUF, with the names and keys that llama.cpp uses."""
    config = json.loads((folder / "config.json").read_text())
    weights = load_file(folder / "model.safetensors")
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_value_length(config["head_dim"])
    # Longer than what the reader steps over, of both kinds.
    writer.add_array("tokenizer.ggml.tokens", [f"token {n}" * (n % 5) for n in range(3000)])
    writer.add_array("tokenizer.ggml.scores", [0.5 * n for n in range(3000)])
    writer.add_string("general.after", "the long arrays")
    names = {"v_proj": "attn_v", "o_proj": "attn_output", "input_layernorm": "attn_norm"}
    for name, tensor in weights.items():
        parts = name.split(".")
        if len(parts) < 4 or parts[-2] not in names:
            continue
        values = tensor.float().numpy()
        quantised = gguf.quantize(values, kind) if values.ndim == 2 else values
        raw_dtype = kind if values.ndim == 2 else None
        writer.add_tensor(
            f"blk.{parts[1]}.{names[parts[-2]]}.weight", quantised, raw_dtype=raw_dtype
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
