"""Reader for GGUF files; the ``gguf`` library parses them and takes the quantisation off."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import torch
from torch import Tensor

from ..errors import CheckpointError
from .reader import Hyperparameters

# Longer arrays in a header are vocabularies, which no analysis of weights needs.
LONG_ARRAY = 1024


class _HeaderReader(gguf.GGUFReader):
    """`gguf.GGUFReader` that steps over vocabularies.

    The library makes several Python objects for each token: 20 s for a vocabulary of 262,144,
    against 0.2 s here. Only long arrays in native byte order take the short cut.
    """

    def _get_field_parts(self, orig_offs, raw_type):
        head = struct.Struct("=IQ")
        if raw_type != gguf.GGUFValueType.ARRAY or self.byte_order == "S":
            return super()._get_field_parts(orig_offs, raw_type)
        item_type, count = head.unpack_from(self.data, orig_offs)
        if count <= LONG_ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        end = orig_offs + head.size
        if item_type == gguf.GGUFValueType.STRING:
            length = struct.Struct("=Q")
            for _ in range(count):
                end += length.size + length.unpack_from(self.data, end)[0]
        elif (scalar := self.gguf_scalar_to_np.get(item_type)) is not None:
            end += count * np.dtype(scalar).itemsize
        else:
            return super()._get_field_parts(orig_offs, raw_type)
        return end - orig_offs, [], [], [gguf.GGUFValueType.ARRAY]


class GGUFFile:
    """One GGUF file.

    Parameters
    ----------
    path : Path

    Raises
    ------
    CheckpointError
        If the file is not GGUF, is cut short, or lacks what fixes the shapes.
    """

    naming = "gguf"

    def __init__(self, path: Path):
        self.where = str(path)
        try:
            self._file = _HeaderReader(path)
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
        self.hyperparameters = self._read_hyperparameters()

    def _field(self, key: str, default=None):
        field = self._file.fields.get(key)
        if field is not None:
            return field.contents()
        if default is None:
            raise CheckpointError(
                f"{self.where} lacks {key} in its header, which fixes the shapes of the factors"
            )
        return default

    def _read_hyperparameters(self) -> Hyperparameters:
        prefix = self.architecture
        n_heads = self._field(f"{prefix}.attention.head_count")
        n_value_heads = self._field(f"{prefix}.attention.head_count_kv", n_heads)
        for key, count in (("head_count", n_heads), ("head_count_kv", n_value_heads)):
            if not isinstance(count, int):
                raise CheckpointError(
                    f"{self.where} gives {prefix}.attention.{key} layer by layer ({count}); "
                    "models whose layers differ in their heads cannot be opened"
                )
        d_model = self._field(f"{prefix}.embedding_length")
        return Hyperparameters(
            d_model=d_model,
            d_head=self._field(f"{prefix}.attention.value_length", d_model // max(n_heads, 1)),
            n_layers=self._field(f"{prefix}.block_count"),
            n_heads=n_heads,
            n_value_heads=n_value_heads,
        )

    def shape(self, name: str) -> tuple[int, ...]:
        # GGUF writes the fastest dimension first.
        return tuple(int(n) for n in reversed(self._tensors[name].shape))

    def dtype(self, name: str) -> str:
        return self._tensors[name].tensor_type.name

    def n_bytes(self, name: str) -> int:
        return int(self._tensors[name].n_bytes)

    def read(self, name: str, rows: tuple[int, int] | None = None) -> Tensor:
        tensor = self._tensors[name]
        data = tensor.data if rows is None else tensor.data[slice(*rows)]
        try:
            values = gguf.dequantize(data, tensor.tensor_type)
        except NotImplementedError as error:
            raise CheckpointError(
                f"{name} of {self.where} is stored as {tensor.tensor_type.name}, which the gguf "
                "library cannot dequantise; take a file of another quantisation"
            ) from error
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64))
