"""Survey a model of 235 billion parameters, and one of 2.8 billion, from a hub on this machine.

A server on loopback speaks the hub's protocol to the real client. Its files have the true layout of
Qwen3-235B-A22B (94 layers, every expert in the shards' headers) and of Pythia-2.8B (fused,
interleaved); their bytes are made of their offsets when they are asked for, so nothing of them is
on disk. Each survey runs in a process of its own with an empty cache. Two heads of each are checked
against the dense d x d computation on the server's side. Exit status 1 if more than 1.5% of the
large checkpoint is read, or the peak is above 2 GB, or a check fails. Run with ``make bench``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import report
import torch
from rich.console import Console
from rich.table import Table
from survey import dense

ROOT = Path(__file__).resolve().parents[1]
LARGEST_SHARE, LARGEST_PEAK = 0.015, 2 * 10**9
SHARD_BYTES = 4 * 10**9
PERIOD = 1_048_583  # prime: a row of no tensor begins where the row above began
TYPES = {"BF16": 2, "F16": 2, "F32": 4, "BOOL": 1}


def normal(dtype: str) -> bytes:
    """One period of 16-bit normal numbers, twice, so that any part of a period is one slice."""
    values = np.random.default_rng(0).standard_normal(PERIOD, dtype=np.float32) / 64
    if dtype == "F16":
        return np.tile(values.astype(np.float16), 2).tobytes()
    return np.tile((values.view(np.uint32) >> 16).astype(np.uint16), 2).tobytes()


@dataclass(frozen=True)
class GeneratedFile:
    """A file whose bytes follow from their offsets; it looks like `bytes` to the server.

    Parameters
    ----------
    header : bytes
    n_body : int
    period : bytes
        From `normal`.
    phase : int
        Where in the period the body begins, in numbers.
    """

    header: bytes
    n_body: int
    period: bytes
    phase: int

    def __len__(self) -> int:
        return len(self.header) + self.n_body

    @property
    def etag(self) -> str:
        return f"generated-{self.phase}-{len(self)}"

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(len(self))
        pieces = [self.header[start:stop]]
        at, end = max(start, len(self.header)), stop
        length = len(self.period) // 2
        while at < end:
            begin = (at - len(self.header) + 2 * self.phase) % length
            piece = self.period[begin : begin + min(end - at, length)]
            pieces.append(piece)
            at += len(piece)
        return b"".join(pieces)


def checkpoint(config: dict, tensors: dict[str, tuple[str, tuple[int, ...]]]) -> dict:
    """Lay tensors out in shards, as ``save_pretrained`` does."""
    size_of = {n: TYPES[dtype] * int(np.prod(shape)) for n, (dtype, shape) in tensors.items()}
    shards: list[list[str]] = [[]]
    room = SHARD_BYTES
    for name in tensors:
        if shards[-1] and size_of[name] > room and sum(size_of.values()) > 2 * SHARD_BYTES:
            shards.append([])
            room = SHARD_BYTES
        shards[-1].append(name)
        room -= size_of[name]
    period = normal(next(iter(tensors.values()))[0])
    files: dict[str, bytes | GeneratedFile] = {"config.json": json.dumps(config).encode()}
    weight_map = {}
    for number, names in enumerate(shards):
        file = "model.safetensors"
        if len(shards) > 1:
            file = f"model-{number + 1:05d}-of-{len(shards):05d}.safetensors"
        header, position = {"__metadata__": {"format": "pt"}}, 0
        for name in names:
            dtype, shape = tensors[name]
            end = position + size_of[name]
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, end]}
            position = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        head = len(text).to_bytes(8, "little") + text
        files[file] = GeneratedFile(head, position, period, 7919 * number % PERIOD)
        weight_map |= dict.fromkeys(names, file)
    if len(shards) > 1:
        index = {"metadata": {"total_size": sum(size_of.values())}, "weight_map": weight_map}
        files["model.safetensors.index.json"] = json.dumps(index).encode()
    return files


def qwen3_235b() -> dict:
    """Qwen/Qwen3-235B-A22B."""
    d, layers, heads, values, r, experts, inner, vocabulary = (
        4096, 94, 64, 4, 128, 128, 1536, 151936,
    )  # fmt: skip
    config = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": d,
        "head_dim": r,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": values,
        "num_experts": experts,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": inner,
        "intermediate_size": 12288,
        "vocab_size": vocabulary,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    shapes = {"model.embed_tokens.weight": (vocabulary, d)}
    for i in range(layers):
        layer = f"model.layers.{i}."
        shapes |= {
            layer + "self_attn.q_proj.weight": (heads * r, d),
            layer + "self_attn.k_proj.weight": (values * r, d),
            layer + "self_attn.v_proj.weight": (values * r, d),
            layer + "self_attn.o_proj.weight": (d, heads * r),
            layer + "self_attn.q_norm.weight": (r,),
            layer + "self_attn.k_norm.weight": (r,),
            layer + "mlp.gate.weight": (experts, d),
        }
        for e in range(experts):
            expert = f"{layer}mlp.experts.{e}."
            shapes |= {
                expert + "gate_proj.weight": (inner, d),
                expert + "up_proj.weight": (inner, d),
                expert + "down_proj.weight": (d, inner),
            }
        shapes[layer + "input_layernorm.weight"] = (d,)
        shapes[layer + "post_attention_layernorm.weight"] = (d,)
    shapes |= {"model.norm.weight": (d,), "lm_head.weight": (vocabulary, d)}
    return checkpoint(config, {name: ("BF16", shape) for name, shape in shapes.items()})


def pythia_2_8b() -> dict:
    """EleutherAI/pythia-2.8b-deduped."""
    d, layers, heads, inner, vocabulary, context = 2560, 32, 32, 10240, 50304, 2048
    config = {
        "architectures": ["GPTNeoXForCausalLM"],
        "model_type": "gpt_neox",
        "hidden_size": d,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "vocab_size": vocabulary,
        "max_position_embeddings": context,
        "use_parallel_residual": True,
        "torch_dtype": "float16",
    }
    shapes = {"gpt_neox.embed_in.weight": (vocabulary, d)}
    for i in range(layers):
        layer = f"gpt_neox.layers.{i}."
        for name, (rows, columns) in {
            "attention.query_key_value": (3 * d, d),
            "attention.dense": (d, d),
            "mlp.dense_h_to_4h": (inner, d),
            "mlp.dense_4h_to_h": (d, inner),
        }.items():
            shapes[f"{layer}{name}.weight"] = (rows, columns)
            shapes[f"{layer}{name}.bias"] = (rows,)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes |= {f"{layer}{norm}.weight": (d,), f"{layer}{norm}.bias": (d,)}
    shapes |= {
        "gpt_neox.final_layer_norm.weight": (d,),
        "gpt_neox.final_layer_norm.bias": (d,),
        "embed_out.weight": (vocabulary, d),
    }
    tensors = {name: ("F16", shape) for name, shape in shapes.items()}
    for i in range(layers):  # the causal mask, which older checkpoints carry
        tensors[f"gpt_neox.layers.{i}.attention.bias"] = ("BOOL", (1, 1, context, context))
    return checkpoint(config, tensors)


# Layer and head whose closure the server's side computes by itself, from its own bytes.
CHECKS = ((0, 0), (21, 30))


@dataclass(frozen=True)
class Rehearsal:
    """A repository to be surveyed.

    Parameters
    ----------
    repo : str
    files : dict
    value, output : str
        Names of the tensors, with ``{layer}``.
    shape : tuple of int
        H, G, r, d.
    interleaved : bool
        The value tensor holds ``[q | k | v]`` of a head after those of another.
    """

    repo: str
    files: dict
    value: str
    output: str
    shape: tuple[int, int, int, int]
    interleaved: bool = False

    def tensor(self, name: str) -> torch.Tensor:
        """A tensor out of the generated bytes, read independently of the package."""
        for file in self.files.values():
            if not isinstance(file, GeneratedFile):
                continue
            entry = json.loads(file.header[8:]).get(name)
            if entry is not None:
                begin, end = (len(file.header) + at for at in entry["data_offsets"])
                dtype = torch.bfloat16 if entry["dtype"] == "BF16" else torch.float16
                content = torch.frombuffer(bytearray(file[begin:end]), dtype=dtype)
                return content.view(entry["shape"]).double()
        raise KeyError(name)

    def closure(self, layer: int, head: int) -> float:
        """Closure of a head from d x d matrices."""
        H, G, r, _ = self.shape
        O = self.tensor(self.output.format(layer=layer))[:, head * r : (head + 1) * r]
        g = head // (H // G)
        first = (3 * g + 2) * r if self.interleaved else g * r
        V = self.tensor(self.value.format(layer=layer))[first : first + r].mT
        return dense(O, V).item()

    @property
    def n_bytes(self) -> int:
        """Bytes of the checkpoint's weight files."""
        return sum(len(f) for f in self.files.values() if isinstance(f, GeneratedFile))


def rehearsals() -> list[Rehearsal]:
    """Both, the smaller first."""
    layer = "gpt_neox.layers.{layer}.attention."
    attention = "model.layers.{layer}.self_attn."
    return [
        Rehearsal(
            "EleutherAI/pythia-2.8b-deduped",
            pythia_2_8b(),
            layer + "query_key_value.weight",
            layer + "dense.weight",
            (32, 32, 80, 2560),
            interleaved=True,
        ),
        Rehearsal(
            "Qwen/Qwen3-235B-A22B",
            qwen3_235b(),
            attention + "v_proj.weight",
            attention + "o_proj.weight",
            (64, 4, 128, 4096),
        ),
    ]


def survey_as_a_user(repo: str, out: str) -> None:
    """Survey a repository, with a clock on each part; prints JSON."""
    import scaled_idempotence as si
    from scaled_idempotence.checkpoints.hub import folder, headers
    from scaled_idempotence.checkpoints.model import OVModel
    from scaled_idempotence.experiments import survey as experiment

    clock = {"transfer": 0.0, "read": 0.0, "compute": 0.0}

    def timed(name, function):
        def call(*arguments, **options):
            begin = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                clock[name] += time.perf_counter() - begin

        return call

    begin = time.perf_counter()
    model = si.open_model(repo)
    opened = time.perf_counter() - begin
    for module in (folder, headers):
        module.read_range = timed("transfer", module.read_range)
    OVModel.__getitem__ = timed("read", OVModel.__getitem__)
    experiment.survey_layer = timed("compute", experiment.survey_layer)
    heads = si.survey(model, results_dir=out, progress=sys.stderr.isatty())
    total = time.perf_counter() - begin
    found = {
        "heads": len(heads),
        "layers": model.n_layers,
        "undefined": int(heads.closure.isna().sum()),
        "seconds": total,
        "open_seconds": opened,
        "transfer_seconds": clock["transfer"],
        "read_seconds": clock["read"],
        "compute_seconds": clock["compute"],
        "peak": report.peak_so_far(),
        "closures": [
            heads.query("layer == @layer and head == @head").closure.item()
            for layer, head in CHECKS
        ],
    }
    print(json.dumps(found))


def rehearse(one: Rehearsal, hub) -> dict:
    """Survey one repository in a process of its own."""
    hub.forget()
    with tempfile.TemporaryDirectory() as scratch:
        environment = os.environ | {
            "HF_ENDPOINT": hub.endpoint,
            "HF_HOME": f"{scratch}/hf",
            "HF_HUB_OFFLINE": "0",
            "SCALED_IDEMPOTENCE_CACHE": f"{scratch}/cache",
            "MALLOC_ARENA_MAX": "1",
        }
        command = [sys.executable, __file__, "--survey", one.repo, "--out", f"{scratch}/results"]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, env=environment
        )
    found = json.loads(done.stdout.splitlines()[-1])
    truth = [one.closure(layer, head) for layer, head in CHECKS]
    closures = found.pop("closures")
    found["difference"] = max(abs(a - b) for a, b in zip(closures, truth, strict=True))
    found |= {
        "checkpoint_bytes": one.n_bytes,
        "shards": sum(isinstance(file, GeneratedFile) for file in one.files.values()),
        "bytes_sent": sum(hub.sent.values()),
        "requests": len(hub.requests),
    }
    found["share"] = found["bytes_sent"] / found["checkpoint_bytes"]
    return found


def main() -> int:
    """Measure, print, write; say by the exit status whether the limits hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="A part of the name of the one to rehearse.")
    parser.add_argument("--survey", metavar="REPO", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.survey:
        survey_as_a_user(options.survey, options.out)
        return 0

    sys.path.insert(0, str(ROOT))  # the tests' own hub
    from tests.checkpoints.hub_server import HubServer, Repository

    results = {}
    for one in rehearsals():
        if options.only and options.only not in one.repo.lower():
            continue
        with HubServer() as hub:
            sha = "1" * 40
            hub.repositories[one.repo] = Repository({sha: one.files}, {"main": sha})
            results[one.repo] = rehearse(one, hub)
    if not options.only:
        report.write("rehearsal", {"models": results})

    table = Table("", *results)
    for label, text in {
        "layers, heads": "{layers}, {heads:,}",
        "checkpoint": "{GB:,.1f} GB in {shards} files",
        "read": "{read_GB:.2f} GB ({share:.2%}), {requests:,} requests",
        "time": "{seconds:.0f} s",
        "transfer": "{transfer_seconds:.0f} s",
        "reading, with transfer": "{read_seconds:.0f} s",
        "computing, meanwhile": "{compute_seconds:.0f} s",
        "peak memory": "{peak_MB:,.0f} MB",
        "difference from dense": "{difference:.0e}",
    }.items():
        cells = [
            text.format(
                **row,
                GB=row["checkpoint_bytes"] / 1e9,
                read_GB=row["bytes_sent"] / 1e9,
                peak_MB=row["peak"] / 1e6,
            )
            for row in results.values()
        ]
        table.add_row(label, *cells)
    Console().print(table)
    held = all(row["difference"] < 1e-10 and row["undefined"] == 0 for row in results.values())
    largest = [row for repo, row in results.items() if "235B" in repo]
    held &= all(row["share"] <= LARGEST_SHARE and row["peak"] < LARGEST_PEAK for row in largest)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
