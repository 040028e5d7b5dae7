"""Reader for a model of transformers that is in memory."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from ..errors import CheckpointError
from .configuration import read_configuration
from .folder import stored_type
from .quantised.scales import read_scaled
from .reader import Reader


class LiveModule(Reader):
    """A `transformers.PreTrainedModel` with its weights, on any device.

    Parameters
    ----------
    module : torch.nn.Module
    part : str, optional
        Stack or tower, where the architecture has several.

    Raises
    ------
    CheckpointError
        If the module has no configuration of transformers, or its weights are not loaded.

    Notes
    -----
    In memory, transformers 5 renames and fuses what files keep apart. The names of the file are
    restored with its own reverse mapping, the one that ``save_pretrained`` uses, so that one table
    serves both. Weights are read when a layer is asked for, so a model that goes on training gives
    its factors of that moment.
    """

    def __init__(self, module: torch.nn.Module, part: str | None = None):
        self.module = module
        self.where = f"a {type(module).__name__} in memory"
        to_dict = getattr(getattr(module, "config", None), "to_dict", None)
        if to_dict is None:
            raise CheckpointError(
                f"{self.where} has no configuration of transformers, which says how its weights "
                "are laid out; pass a transformers.PreTrainedModel"
            )
        found = read_configuration(to_dict(), f"the configuration of {self.where}", part)
        self.architecture, self.part = found.architecture, found.part
        self.hyperparameters, self.quantisation = found.hyperparameters, found.quantisation
        self._tensors = _as_saved(module)
        self.names = self._tensors.keys()

    def tensor(self, name: str) -> Tensor:
        """Give a tensor that shares its memory with the module's own."""
        return self._tensors[name]

    def pretrained(self) -> tuple[str, dict[str, str | bool]]:
        raise CheckpointError(f"{self.where} is loaded")

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name].shape)

    def dtype(self, name: str) -> str:
        return stored_type(self._tensors[name])

    def n_bytes(self, name: str) -> int:
        return self._tensors[name].numel() * self._tensors[name].element_size()

    def read(self, name: str, rows: tuple[int, int] | None = None) -> Tensor:
        return read_scaled(self, self._read, name, rows)

    def _read(self, name: str, rows: tuple[int, int] | None) -> Tensor:
        tensor = self._tensors[name]
        if tensor.is_meta:
            raise CheckpointError(
                f"{name} of {self.where} is on the meta device: its values are not loaded"
            )
        tensor = tensor if rows is None else tensor[rows[0] : rows[1]]
        # A copy, so that float64 weights of a model that goes on training are not shared.
        return tensor.detach().to("cpu", copy=True)

    def content_id(self) -> str:
        """Hash the attention's weights as they are now."""
        digest = hashlib.sha256()
        for name in sorted(self.names):
            if "att" in name.lower() and not self._tensors[name].is_meta:
                stored = self._read(name, None).contiguous().reshape(-1)
                digest.update(f"{name} {self.shape(name)} {self.dtype(name)}".encode())
                digest.update(stored.view(torch.uint8).numpy().data)
        return f"sha256:{digest.hexdigest()}"


def _as_saved(module) -> dict[str, Tensor]:
    # Stacked experts and convolutions are left out: undoing their fusion would copy them.
    state = {name: t.detach() for name, t in module.state_dict().items() if t.ndim <= 2}
    try:
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:  # transformers 4 keeps the files' names in memory
        return state
    return dict(revert_weight_conversion(module, state))
