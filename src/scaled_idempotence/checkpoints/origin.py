"""Where an open model came from, so that another process can open it too."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ..errors import CheckpointError

if TYPE_CHECKING:
    from .model import OVModel


@dataclass(frozen=True)
class Origin:
    """How to open a model that another process has open; small, and can be pickled.

    Parameters
    ----------
    source : str
        Bundled name, absolute path, or ``org/name`` on the hub.
    part : str, optional
    revision : str, optional
        On the hub.
    commit : str, optional
        What the revision was.
    norm : {"raw", "folded"}
    weights_id : str
        As `OVModel.weights_id`, which must come out the same.
    """

    source: str
    part: str | None = None
    revision: str | None = None
    commit: str | None = None
    norm: str = "raw"
    weights_id: str = ""

    # A worker that computes many layers of a model opens it once.
    @lru_cache(maxsize=2)  # noqa: B019 (origins are small, and few)
    def open(self) -> OVModel:
        """Open the model.

        Returns
        -------
        OVModel
            One for all calls in this process.

        Raises
        ------
        CheckpointError
            If it is not here, or has other weights.
        """
        from .opening import open_model, open_on_hub

        if self.commit is None:
            model = open_model(self.source, norm=self.norm, part=self.part)
        else:
            model = open_on_hub(self.source, self.revision, self.norm, self.part, self.commit)
        if model.weights_id != self.weights_id:
            raise CheckpointError(
                f"{model.source} on {platform.node()} has the weights {model.weights_id}, expected "
                f"{self.weights_id}: the worker sees another model than the process that asks. Use "
                "a folder that both share, or wait until the model is copied whole"
            )
        return model
