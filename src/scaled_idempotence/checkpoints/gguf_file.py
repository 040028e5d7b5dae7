"""Reader for GGUF files; the ``gguf`` library parses them and takes the quantisation off."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import torch
from torch import Tensor

from ..errors import CheckpointError
from .finding import choose_part, rows_of
from .reader import Hyperparameters, Reader
from .schema import Keys

# Longer arrays in a header are vocabularies, which no analysis of weights needs.
LONG_ARRAY = 1024


class HeaderReader(gguf.GGUFReader):
    """`gguf.GGUFReader` that steps over vocabularies.

    The library makes several Python objects for each token: 20 s for a vocabulary of 262,144,
    against 0.2 s here. Only long arrays in native byte order take the short cut.
    """

    def _get_field_parts(self, orig_offs, raw_type):
        head, stored = struct.Struct("=IQ"), self.data.data
        if raw_type != gguf.GGUFValueType.ARRAY or self.byte_order == "S":
            return super()._get_field_parts(orig_offs, raw_type)
        item_type, count = head.unpack_from(stored, orig_offs)
        if count <= LONG_ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        end = orig_offs + head.size
        if item_type == gguf.GGUFValueType.STRING:
            length = struct.Struct("=Q")
            for _ in range(count):
                end += length.size + length.unpack_from(stored, end)[0]
        elif (scalar := self.gguf_scalar_to_np.get(item_type)) is not None:
            end += count * np.dtype(scalar).itemsize
        else:
            return super()._get_field_parts(orig_offs, raw_type)
        return end - orig_offs, [], [], [gguf.GGUFValueType.ARRAY]


class GGUFFile(Reader):
    """One GGUF file.

    Parameters
    ----------
    path : Path
    part : str, optional
        Stack or tower, where the architecture has several.

    Raises
    ------
    CheckpointError
        If the file is not GGUF, is cut short, or lacks what fixes the shapes.
    """

    naming = "gguf"

    def __init__(self, path: Path, part: str | None = None):
        self.where = str(path)
        self.path = path
        try:
            self._file = HeaderReader(path)
        except FileNotFoundError:
            raise CheckpointError(f"there is no file {path}") from None
        # A cut file fails wherever its bytes run out: in numpy, in struct, or in an enum.
        except (ValueError, IndexError, KeyError, struct.error, OverflowError) as error:
            with path.open("rb") as file:
                magic = file.read(4)
            what = "is cut short or damaged" if magic == b"GGUF" else "is not a GGUF file"
            raise CheckpointError(
                f"{path} ({path.stat().st_size:,} bytes) {what}: {error}. Fetch it again"
            ) from error
        self._tensors = {tensor.name: tensor for tensor in self._file.tensors}
        self.names = self._tensors.keys()
        self.architecture = str(self._field("general.architecture"))
        self.part = choose_part("gguf", self.architecture, part, self.where)
        rows = rows_of("gguf", self.architecture, self.part)
        self.hyperparameters = self._read_hyperparameters(rows[0].keys if rows else Keys())

    def _field(self, key: str, default=None):
        field = self._file.fields.get(key)
        if field is not None:
            return field.contents()
        if default is None:
            raise CheckpointError(
                f"{self.where} lacks {key} in its header, which fixes the shapes of the factors"
            )
        return default

    def _read_hyperparameters(self, keys: Keys) -> Hyperparameters:
        def field(key: str, default=None):
            return self._field(f"{self.architecture}.{key}", default)

        d_model = field("embedding_length")
        # Models that mix attention with other layers give the counts layer by layer.
        n_layers = field("block_count" if keys == Keys() else keys.n_layers, field("block_count"))
        n_heads = field("attention.head_count")
        stored = {"head_count": n_heads, "head_count_kv": field("attention.head_count_kv", n_heads)}
        per_layer = {
            key: value if isinstance(value, list) else [value] * n_layers
            for key, value in stored.items()
        }
        layers = tuple(i for i, count in enumerate(per_layer["head_count_kv"]) if count)
        interval = field("full_attention_interval", 0)
        if interval:  # the default of llama.cpp's Qwen3-Next: every fourth layer is attention
            layers = tuple(i for i in layers if (i + 1) % interval == 0)
        counts = {}
        for key, values in per_layer.items():
            found = sorted({values[i] for i in layers})
            if len(found) > 1:
                raise CheckpointError(
                    f"{self.where} gives {self.architecture}.attention.{key} layer by layer "
                    f"({values}); models whose layers differ in their heads cannot be opened"
                )
            counts[key] = found[0] if found else 0
        if not layers or min(counts.values()) < 1:
            raise CheckpointError(
                f"{self.where} has {counts['head_count']} query and {counts['head_count_kv']} "
                f"value heads in {n_layers} layers, expected positive numbers"
            )
        d_head = field("attention.value_length", max(1, d_model // counts["head_count"]))
        d_latent = field("attention.kv_lora_rank", 0)
        d_key = 0
        if d_latent:
            # Later files describe MLA as the one-headed attention that llama.cpp runs, and keep
            # the true sizes under keys of their own.
            counts["head_count_kv"] = counts["head_count"]
            d_head = field("attention.value_length_mla", d_head)
            rotary = field("rope.dimension_count", 0)
            d_key = field("attention.key_length_mla", field("attention.key_length", 0)) - rotary
        skipped = n_layers - len(layers)
        return Hyperparameters(
            d_model=d_model,
            d_head=d_head,
            n_layers=n_layers,
            n_heads=counts["head_count"],
            n_value_heads=counts["head_count_kv"],
            layers=layers,
            d_latent=d_latent,
            d_key=d_key,
            remark=f"{skipped} of {n_layers} layers have no attention, and no T" * bool(skipped),
        )

    def pretrained(self) -> tuple[str, dict[str, str | bool]]:
        return str(self.path.parent), {"gguf_file": self.path.name, "local_files_only": True}

    def shape(self, name: str) -> tuple[int, ...]:
        # GGUF writes the fastest dimension first.
        return tuple(int(n) for n in reversed(self._tensors[name].shape))

    def dtype(self, name: str) -> str:
        return self._tensors[name].tensor_type.name

    def n_bytes(self, name: str) -> int:
        return int(self._tensors[name].n_bytes)

    def read(self, name: str, rows: tuple[int, int] | None = None) -> Tensor:
        tensor = self._tensors[name]
        # Quantised blocks never cross the end of a row.
        stored = tensor.data if rows is None else tensor.data[rows[0] : rows[1]]
        try:
            values = gguf.dequantize(stored, tensor.tensor_type)
        except NotImplementedError as error:
            raise CheckpointError(
                f"{name} of {self.where} is stored as {tensor.tensor_type.name}, which the gguf "
                "library cannot dequantise; take a file of another quantisation"
            ) from error
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64))
