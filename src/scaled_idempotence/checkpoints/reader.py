"""What every file format must answer for a model to be made of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from torch import Tensor

if TYPE_CHECKING:
    from .layouts import Naming


class TensorSlice(NamedTuple):
    """A tensor, or a contiguous part of its first axis.

    Attributes
    ----------
    name : str
    rows : tuple of int, optional
        Half-open range of the first axis; None for the whole tensor.
    """

    name: str
    rows: tuple[int, int] | None = None


@dataclass(frozen=True)
class Hyperparameters:
    """The numbers of a configuration that fix the shapes of the factors.

    Parameters
    ----------
    d_model, d_head : int
        Width ``d`` of the residual stream and head dimension ``r`` of the values.
    n_layers, n_heads, n_value_heads : int
        Layers; query heads ``H`` and value heads ``G`` of a layer.
    """

    d_model: int
    d_head: int
    n_layers: int
    n_heads: int
    n_value_heads: int


class Reader(Protocol):
    """One checkpoint in one file format.

    Attributes
    ----------
    where : str
        The file or folder, for messages.
    naming : {"transformers", "gguf"}
        Whose tensor names the checkpoint uses.
    architecture : str
        The key into the table of layouts.
    hyperparameters : Hyperparameters
    names : collection of str
        Names of all tensors.
    """

    where: str
    naming: Naming
    architecture: str
    hyperparameters: Hyperparameters
    names: Collection[str]

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, without reading it."""

    def dtype(self, name: str) -> str:
        """Stored type of a tensor, as the format calls it."""

    def n_bytes(self, name: str) -> int:
        """Stored size of a tensor in bytes."""

    def read(self, name: str, rows: tuple[int, int] | None = None) -> Tensor:
        """Read a tensor, or a range of its rows, in float64; ``[out, in]`` for a linear map."""
