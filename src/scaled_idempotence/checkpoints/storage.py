"""How value and output weights can be stored: fused, interleaved, transposed, up-projected."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from .reader import Hyperparameters, TensorSlice

Shape = tuple[int | None, ...]


class RowOrder(ABC):
    """Which rows of a stored matrix ``[rows, d]`` are values.

    Attributes
    ----------
    title : str
        How the matrix is fused, in a few words.
    """

    title: ClassVar[str]

    @abstractmethod
    def starts(self, h: Hyperparameters) -> list[int]:
        """First row of each of the ``G`` value heads, whose ``r`` rows are contiguous."""

    def total(self, h: Hyperparameters) -> int:
        """Rows of the whole matrix; unless a class says otherwise, of queries, keys and values."""
        return (h.n_heads + 2 * h.n_value_heads) * h.d_head


@dataclass(frozen=True)
class Separate(RowOrder):
    """A matrix of values only: ``[v_0, v_1, ...]``."""

    title = "separate"

    def starts(self, h: Hyperparameters) -> list[int]:
        return [g * h.d_head for g in range(h.n_value_heads)]

    def total(self, h: Hyperparameters) -> int:
        return h.n_value_heads * h.d_head


@dataclass(frozen=True)
class FusedBySize(RowOrder):
    """All queries, then all keys, then all values: sizes ``H r, G r, G r``, not thirds."""

    title = "fused [Q | K | V]"

    def starts(self, h: Hyperparameters) -> list[int]:
        first = (h.n_heads + h.n_value_heads) * h.d_head
        return [first + g * h.d_head for g in range(h.n_value_heads)]


@dataclass(frozen=True)
class FusedByGroup(RowOrder):
    """Each value group's ``[q ... q, k, v]`` after the other.

    With one query head a group this is the per-head ``[q, k, v]`` of GPT-NeoX and BLOOM, with one
    value head the ``[Q | k | v]`` of Falcon-7B.
    """

    title = "fused per value group [q .. q, k, v]"

    def starts(self, h: Hyperparameters) -> list[int]:
        rows = (h.n_heads // h.n_value_heads + 2) * h.d_head
        return [(g + 1) * rows - h.d_head for g in range(h.n_value_heads)]


@dataclass(frozen=True)
class FusedInBlocks(RowOrder):
    """Blocks of heads, each ``[q, v, k]``: CodeGen's relic of four-way model parallelism."""

    blocks = 4
    title = "four blocks of fused [Q | V | K]"

    def starts(self, h: Hyperparameters) -> list[int]:
        heads = h.n_heads // self.blocks
        return [
            (3 * heads * (head // heads) + heads + head % heads) * h.d_head
            for head in range(h.n_heads)
        ]


@dataclass(frozen=True)
class AfterKeys(RowOrder):
    """Each head's ``[k, v]`` after the other, with ``d_key`` rows of keys (MLA's ``kv_b_proj``)."""

    title = "per head [k, v]"

    def starts(self, h: Hyperparameters) -> list[int]:
        return [g * (h.d_key + h.d_head) + h.d_key for g in range(h.n_value_heads)]

    def total(self, h: Hyperparameters) -> int:
        return h.n_value_heads * (h.d_key + h.d_head)


def value_rows(order: RowOrder, h: Hyperparameters) -> tuple[int, int] | None:
    """Give the range of rows that holds the values and nothing else.

    Parameters
    ----------
    order : RowOrder
    h : Hyperparameters

    Returns
    -------
    tuple of (int, int) or None
        None where keys or queries stand between the values, or where the values are the whole.
    """
    starts = order.starts(h)
    rows = (starts[0], starts[-1] + h.d_head)
    contiguous = rows[1] - rows[0] == len(starts) * h.d_head
    return rows if contiguous and rows != (0, order.total(h)) else None


def take_values(matrix: Tensor, order: RowOrder, h: Hyperparameters, first: int = 0) -> Tensor:
    """Cut the value heads out of a stored matrix.

    Parameters
    ----------
    matrix : (rows, n) Tensor
        The whole matrix, or its rows from `first` on.
    order : RowOrder
    h : Hyperparameters
    first : int

    Returns
    -------
    (G, r, n) Tensor
    """
    starts = order.starts(h)
    if starts == [starts[0] + g * h.d_head for g in range(len(starts))]:
        # One after the other: no copy of what can be as large as the outputs.
        rows = matrix[starts[0] - first : starts[-1] - first + h.d_head]
        return rows.unflatten(0, (len(starts), h.d_head))
    return torch.stack([matrix[start - first : start - first + h.d_head] for start in starts])


@dataclass(frozen=True)
class Linear:
    """Values among the rows of one matrix ``[out, d]``, or ``[d, out]`` if `transposed` (Conv1D).

    Parameters
    ----------
    weight : str
        Template of the tensor's name; ``{layer}`` is the layer's number in the file.
    order : RowOrder
    transposed : bool
    """

    weight: str
    order: RowOrder = field(default_factory=Separate)
    transposed: bool = False

    @property
    def key(self) -> str:
        """Template of the name by which the layout is recognised."""
        return self.weight

    @property
    def title(self) -> str:
        """How it is stored, in a few words."""
        return self.order.title + (", transposed" if self.transposed else "")

    def _rows(self, h: Hyperparameters) -> tuple[int, int] | None:
        # Columns of a row-major file are not contiguous: a transposed matrix is read whole.
        return None if self.transposed else value_rows(self.order, h)

    def slices(self, h: Hyperparameters) -> list[TensorSlice]:
        """What is read, under the templates of the names."""
        return [TensorSlice(self.weight, self._rows(h))]

    def shapes(self, h: Hyperparameters) -> dict[str, tuple[Shape, str]]:
        """Shapes that the templates' tensors must have, with their meaning in words."""
        rows = self.order.total(h)
        shape = (h.d_model, rows) if self.transposed else (rows, h.d_model)
        if isinstance(self.order, Separate):
            meaning = f"{h.n_value_heads} value heads x {h.d_head} by width {h.d_model}"
        else:
            meaning = (
                f"{self.title} of {h.n_heads} query and {h.n_value_heads} value heads x {h.d_head} "
                f"by width {h.d_model}"
            )
        return {self.weight: (shape, meaning)}

    def factors(self, parts: Sequence[Tensor], h: Hyperparameters) -> Tensor:
        """Make ``V`` of shape ``(G, d, r)`` of what `slices` names."""
        (matrix,) = parts
        rows = self._rows(h)
        matrix = matrix.mT if self.transposed else matrix
        return take_values(matrix, self.order, h, rows[0] if rows else 0).mT


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention: values are up-projected from a latent that all heads share.

    ``V_h^T = up_h diag(gain) down``. The norm between the two leaves a scale that depends on the
    token, so ``T`` is defined up to it.

    Parameters
    ----------
    up : str
        Template of ``[.., d_latent]``, or ``[H, r, d_latent]`` if `stacked`.
    gain : str
        Template of the latent norm's gain.
    down : str
        Template of ``[d_latent + .., d]``: the latent's rows stand first, rotary keys follow.
    stacked : bool
        GGUF files of later llama.cpp keep the value half alone, a matrix a head.
    """

    up: str
    gain: str
    down: str
    stacked: bool = False
    order: RowOrder = field(default_factory=AfterKeys)

    @property
    def key(self) -> str:
        return self.up

    @property
    def title(self) -> str:
        return "MLA: up-projection per head x shared latent"

    def slices(self, h: Hyperparameters) -> list[TensorSlice]:
        return [
            TensorSlice(self.up),
            TensorSlice(self.gain),
            TensorSlice(self.down, (0, h.d_latent)),
        ]

    def shapes(self, h: Hyperparameters) -> dict[str, tuple[Shape, str]]:
        stacked = (h.n_heads, h.d_head, h.d_latent)
        flat = (self.order.total(h), h.d_latent)
        return {
            self.up: (
                stacked if self.stacked else flat,
                f"{h.n_heads} heads x ({h.d_key} key + {h.d_head} value rows) by latent "
                f"{h.d_latent}",
            ),
            self.gain: ((h.d_latent,), f"latent {h.d_latent}"),
            self.down: ((None, h.d_model), f"latent and rotary keys by width {h.d_model}"),
        }

    def factors(self, parts: Sequence[Tensor], h: Hyperparameters) -> Tensor:
        up, gain, down = parts
        heads = up if self.stacked else take_values(up, self.order, h)
        return ((heads * gain) @ down).mT


#: How an architecture stores its value factors.
ValueWeights = Linear | Latent


@dataclass(frozen=True)
class Output:
    """The output projection ``[d, H r]``, or ``[H r, d]`` if `transposed` (Conv1D)."""

    weight: str
    transposed: bool = False

    def shape(self, h: Hyperparameters) -> tuple[Shape, str]:
        shape = (h.d_model, h.n_heads * h.d_head)
        meaning = f"width {h.d_model} by {h.n_heads} heads x {h.d_head}"
        return (shape[::-1] if self.transposed else shape), meaning

    def factors(self, matrix: Tensor, h: Hyperparameters) -> Tensor:
        matrix = matrix.mT if self.transposed else matrix
        return matrix.reshape(h.d_model, h.n_heads, h.d_head).transpose(0, 1)


@dataclass(frozen=True)
class Norm:
    """A norm next to the attention, as far as it is linear: its gain and its centring.

    Parameters
    ----------
    weight : str
        Template of the tensor's name; empty for a norm without gain (OLMo 1).
    offset : float
        The gain is ``offset + weight``: 1 for Gemma in safetensors, 0 elsewhere (GGUF files hold
        Gemma's 1 already).
    centred : bool
        LayerNorm subtracts the mean before the gain, RMSNorm does not.
    from_layer : int
        First layer that has it (ModernBERT's layer 0 has none).
    scale_only : bool
        A gain without any norm (DINOv2's LayerScale).
    """

    weight: str = ""
    offset: float = 0.0
    centred: bool = False
    from_layer: int = 0
    scale_only: bool = False

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        kind = "LayerScale" if self.scale_only else "LayerNorm" if self.centred else "RMSNorm"
        if not self.weight:
            return f"{kind} without gain"
        return kind + (f", gain {self.offset:g} + weight" if self.offset else "")

    def fold(self, factors: Tensor, weight: Tensor | None) -> Tensor:
        """Fold into the value factors that read what the norm gives.

        ``x -> diag(gain) (I - 11^T/d) x`` before ``V^T`` makes ``(I - 11^T/d) diag(gain) V``: the
        mean is taken off the rows of the scaled factors.

        Parameters
        ----------
        factors : (..., d, r) Tensor
        weight : (d,) Tensor, optional
            What is stored; None for a norm without gain.

        Returns
        -------
        (..., d, r) Tensor
        """
        if weight is not None:
            factors = (self.offset + weight)[:, None] * factors
        if self.centred:
            factors = factors - factors.mean(-2, keepdim=True)
        return factors

    def fold_after(self, factors: Tensor, weight: Tensor | None) -> Tensor:
        """Fold into the output factors that write what the norm takes: centring, then gain."""
        if self.centred:
            factors = factors - factors.mean(-2, keepdim=True)
        return factors if weight is None else (self.offset + weight)[:, None] * factors
