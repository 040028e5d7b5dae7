"""Peak memory of surveying a 7B-shaped checkpoint from disk, one layer at a time.

Writes a sharded bf16 checkpoint with the shapes of Mistral-7B (its MLPs as holes in the files, that
are never read), surveys a few layers in a process of its own, and prints the peak against the size
of the factors. Exit status 1 if it is above the interpreter and three layers' factors. Run with
``make bench``, or ``python benchmarks/memory.py [--layers 4] [--folder FOLDER]``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import report
from rich.console import Console
from rich.table import Table

D, HEADS, VALUE_HEADS, HEAD_DIM, MLP = 4096, 32, 8, 128, 14336
LAYER = {
    "self_attn.q_proj.weight": (HEADS * HEAD_DIM, D),
    "self_attn.k_proj.weight": (VALUE_HEADS * HEAD_DIM, D),
    "self_attn.v_proj.weight": (VALUE_HEADS * HEAD_DIM, D),
    "self_attn.o_proj.weight": (D, HEADS * HEAD_DIM),
    "mlp.gate_proj.weight": (MLP, D),
    "mlp.up_proj.weight": (MLP, D),
    "mlp.down_proj.weight": (D, MLP),
    "input_layernorm.weight": (D,),
    "post_attention_layernorm.weight": (D,),
}
READ = ("self_attn.v_proj.weight", "self_attn.o_proj.weight")
FACTOR_BYTES = 8 * D * HEAD_DIM * (HEADS + VALUE_HEADS)  # of one layer, in float64

# Both print their own peak.
PEAK = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
PEAK += "import report; print(report.peak_so_far())"
INTERPRETER = (
    "import scaled_idempotence as si\n"
    "si.survey(si.open_model('minilm-l6'), progress=False)  # whatever is imported on the way\n"
    + PEAK
)
SURVEY = (
    "import sys, scaled_idempotence as si\n"
    "model = si.open_model(sys.argv[1])\n"
    "assert len(si.survey(model, progress=False)) == model.n_layers * model.n_heads\n" + PEAK
)


def write_shard(path: Path, layer: int, rng: np.random.Generator) -> dict[str, str]:
    """Write a layer as a shard of its own; what is not read stays a hole."""
    header, position = {}, 0
    for name, shape in LAYER.items():
        end = position + 2 * int(np.prod(shape))
        full = f"model.layers.{layer}.{name}"
        header[full] = {"dtype": "BF16", "shape": shape, "data_offsets": [position, end]}
        position = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        begin = file.tell()
        file.truncate(begin + position)
        for name in READ:
            entry = header[f"model.layers.{layer}.{name}"]
            file.seek(begin + entry["data_offsets"][0])
            values = rng.standard_normal(entry["shape"], dtype=np.float32) / 64
            file.write((values.view(np.uint32) >> 16).astype(np.uint16).tobytes())
    return dict.fromkeys(header, path.name)


def write_checkpoint(folder: Path, n_layers: int) -> None:
    """Write the configuration, the shards and their index."""
    config = {
        "model_type": "mistral",
        "hidden_size": D,
        "intermediate_size": MLP,
        "num_hidden_layers": n_layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": VALUE_HEADS,
        "head_dim": HEAD_DIM,
    }
    (folder / "config.json").write_text(json.dumps(config))
    rng, weight_map = np.random.default_rng(0), {}
    for layer in range(n_layers):
        shard = folder / f"model-{layer + 1:05d}-of-{n_layers:05d}.safetensors"
        weight_map |= write_shard(shard, layer, rng)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def main() -> int:
    """Print the table; say by the exit status whether the limit holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--folder", type=Path, help="Where to put the checkpoint for a while.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        write_checkpoint(Path(name), options.layers)
        survey = report.peak_of([sys.executable, "-c", SURVEY, name])
        interpreter = report.peak_of([sys.executable, "-c", INTERPRETER])
    limit = interpreter + 3 * FACTOR_BYTES
    figures = {"factors": FACTOR_BYTES, "interpreter": interpreter, "survey": survey}
    report.write("memory", figures | {"limit": limit, "layers": options.layers})
    table = Table(
        "", "MB", title=f"{options.layers} layers of 7B shape, {HEADS}/{VALUE_HEADS} heads"
    )
    for what, size in (
        ("factors of a layer, float64", FACTOR_BYTES),
        ("peak of the interpreter and its packages", interpreter),
        ("peak of the survey", survey),
        ("limit: interpreter and three layers", limit),
    ):
        table.add_row(what, f"{size / 1e6:,.0f}")
    Console().print(table)
    return 0 if survey <= limit else 1


if __name__ == "__main__":
    sys.exit(main())
