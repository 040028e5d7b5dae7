"""A lineage: the checkpoints of one training run, in order."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from ..checkpoints.model import OVModel
from ..checkpoints.opening import open_model


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint.

    Attributes
    ----------
    step : int
        Of training.
    source : str, Path or torch.nn.Module
        What `open_model` opens.
    revision : str
        Branch or tag on the hub, else empty.
    commit : str
        What the revision was when the lineage was found.
    files : mapping of str to str
        The sha256 of each weight file, where they are known without reading it.
    loss : float
        Held-out loss in nats a byte, of lineages trained here; else NaN.
    position : int
        Place among all checkpoints of the run, of which a lineage may hold a selection. -1 stands
        for the place in the lineage itself.
    """

    step: int
    source: str | Path | torch.nn.Module
    revision: str = ""
    commit: str = ""
    files: Mapping[str, str] = field(default_factory=dict, repr=False)
    loss: float = float("nan")
    position: int = -1

    @property
    def name(self) -> str:
        """The checkpoint in messages and tables."""
        if self.revision:
            return self.revision
        where = self.source
        return type(where).__name__ if isinstance(where, torch.nn.Module) else Path(where).name

    def open(self, norm: str = "raw") -> OVModel:
        """Open the checkpoint, pinned to its commit."""
        return open_model(self.source, revision=self.commit or self.revision or None, norm=norm)


@dataclass(frozen=True)
class Left:
    """A checkpoint that is left out, and why."""

    checkpoint: Checkpoint
    status: str


@dataclass(frozen=True)
class Lineage:
    """Checkpoints of one run, by ascending step.

    Attributes
    ----------
    name : str
    checkpoints : tuple of Checkpoint
        The last one is the final one.
    left_out : tuple of Left
        Checkpoints that were found to serve weights of other steps.
    """

    name: str
    checkpoints: tuple[Checkpoint, ...]
    left_out: tuple[Left, ...] = ()

    def __post_init__(self):
        steps = self.steps
        if not steps or any(b <= a for a, b in itertools.pairwise(steps)):
            raise ValueError(f"steps of {self.name} are {steps}, expected one or more, ascending")

    @property
    def steps(self) -> list[int]:
        """Steps of the checkpoints."""
        return [one.step for one in self.checkpoints]


def spread(steps: Sequence[int], k: int) -> list[list[int]]:
    """Choose checkpoints that are spread evenly over the logarithm of their steps.

    Parameters
    ----------
    steps : sequence of int
        Ascending.
    k : int
        How many; the first and the last are always among them.

    Returns
    -------
    list of list of int
        For each choice all places in `steps`, the wanted one first and then those next to it, so
        that another can take the place of one that is of no use. First choices differ.

    Examples
    --------
    >>> [places[0] for places in spread([0, 1, 2, 4, 8, 16, 32, 64, 128], 3)]
    [0, 4, 8]
    """
    if k < 1:
        raise ValueError(f"{k} checkpoints: ask for at least 1")
    logs = np.log1p(np.asarray(steps, dtype=float))
    if k == 1:
        return [[len(steps) - 1]]
    taken: set[int] = set()
    choices = []
    targets = np.linspace(logs[0], logs[-1], min(k, len(steps)))
    # The ends first: no target between may take them.
    for target in [targets[-1], targets[0], *targets[1:-1]]:
        near = [int(place) for place in np.argsort(np.abs(logs - target), kind="stable")]
        first = next(place for place in near if place not in taken)
        taken.add(first)
        choices.append([first, *(place for place in near if place != first)])
    return sorted(choices)
