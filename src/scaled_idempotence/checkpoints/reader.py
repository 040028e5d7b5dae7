"""What every file format must answer for a model to be made of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

Naming = Literal["transformers", "gguf"]


class TensorSlice(NamedTuple):
    """What is read of one stored tensor.

    Parameters
    ----------
    name : str
    rows : tuple of (int, int), optional
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
        Layers of the configuration; query heads ``H`` and value heads ``G`` of a layer.
    layers : tuple of int, optional
        The model's own numbers of the layers that have OV operators; all of them if left out.
    stored_layers : tuple of int, optional
        What those layers are called in the file, where that is another number (ALBERT).
    d_latent, d_key : int
        MLA only: the rank of the shared latent, and the rows of a head's keys that stand before
        its values.
    pre_norm : bool
        False where a configuration moves the norm of this family behind the attention (OPT-350m).
    remark : str
        What a reader should know of layers that are left out; empty where there is nothing to say.
    """

    d_model: int
    d_head: int
    n_layers: int
    n_heads: int
    n_value_heads: int
    layers: tuple[int, ...] = ()
    stored_layers: tuple[int, ...] = ()
    d_latent: int = 0
    d_key: int = 0
    pre_norm: bool = True
    remark: str = ""

    def __post_init__(self) -> None:
        if not self.layers:
            object.__setattr__(self, "layers", tuple(range(self.n_layers)))
        if not self.stored_layers:
            object.__setattr__(self, "stored_layers", self.layers)

    def named(self, template: str, layer: int) -> str:
        """Fill the number under which the file keeps a layer into the template of a name."""
        return template.format(layer=self.stored_layers[self.layers.index(layer)])


class Reader(ABC):
    """One checkpoint in one file format.

    Attributes
    ----------
    where : str
        The file or folder, for messages.
    naming : {"transformers", "gguf"}
        Whose tensor names the checkpoint uses.
    architecture : str
        The key into the table of layouts.
    part : str
        The stack or tower that is read, where the architecture has several; else empty.
    quantisation : str
        Name of the scheme that the configuration declares; empty for none.
    hyperparameters : Hyperparameters
    names : collection of str
        Names of all tensors.
    """

    where: str
    naming: Naming = "transformers"
    architecture: str
    part: str
    quantisation: str = ""
    hyperparameters: Hyperparameters
    names: Collection[str]

    @abstractmethod
    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, without reading it."""

    @abstractmethod
    def dtype(self, name: str) -> str:
        """Stored type of a tensor, as the format calls it."""

    @abstractmethod
    def n_bytes(self, name: str) -> int:
        """Stored size of a tensor in bytes."""

    @abstractmethod
    def read(self, name: str, rows: tuple[int, int] | None = None) -> Tensor:
        """Read a tensor, or a range of its rows, in float64 with any scales multiplied in."""

    @abstractmethod
    def pretrained(self) -> tuple[str, dict[str, str | bool]]:
        """What ``from_pretrained`` of transformers takes, to load the whole model."""

    def prefetch(self, parts: Iterable[TensorSlice], progress: bool = True) -> None:  # noqa: B027
        """Bring what is to be read to this machine; local files have nothing to bring."""
