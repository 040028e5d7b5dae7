"""Find a lineage by name, or make one of checkpoints that somebody has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from ..errors import CheckpointError
from .live import LIVE, live_lineage
from .public import DEFAULT_CHECKPOINTS, public_lineage
from .series import Checkpoint, Lineage, spread

Source = str | Lineage | Mapping[int, str | Path | torch.nn.Module]

#: Name of a lineage that is given as a mapping.
OWN = "own"


def find_lineage(
    source: Source,
    checkpoints: int | Sequence[int] | None = None,
    *,
    steps: int | None = None,
    scale: int = 1,
    progress: bool = True,
) -> Lineage:
    """Find a lineage; a live one is trained first, unless the cache has it.

    Parameters
    ----------
    source : str, Lineage or mapping
        A live lineage's name, a public repository, or checkpoints by step.
    checkpoints : int or sequence of int, optional
        How many, spread over the logarithm of the step, or which steps. If not given, all; of a
        public lineage four.
    steps, scale : int
        Of live lineages, as for `live_recipe`.
    progress : bool
        Show a bar while one trains.

    Returns
    -------
    Lineage

    Raises
    ------
    CheckpointError, FetchError, ScaledIdempotenceError
        If there is no such lineage or step, or it cannot be asked for or trained.
    """
    if isinstance(source, str) and source not in LIVE:
        if "/" not in source and source.startswith("live-"):
            raise CheckpointError(f"no live lineage {source!r}; there are {', '.join(LIVE)}")
        return public_lineage(source, DEFAULT_CHECKPOINTS if checkpoints is None else checkpoints)
    if isinstance(source, str):
        whole = live_lineage(source, steps=steps, scale=scale, progress=progress)
    elif isinstance(source, Lineage):
        whole = source
    else:
        made = [Checkpoint(int(step), where) for step, where in sorted(source.items())]
        whole = Lineage(OWN, tuple(made))
    return whole if checkpoints is None else _chosen(whole, checkpoints)


def _chosen(lineage: Lineage, checkpoints: int | Sequence[int]) -> Lineage:
    steps = lineage.steps
    if isinstance(checkpoints, int):
        places = [choice[0] for choice in spread(steps, checkpoints)]
    else:
        if unknown := sorted(set(checkpoints) - set(steps)):
            raise CheckpointError(
                f"{lineage.name} has no step {unknown[0]}; it has {', '.join(map(str, steps))}"
            )
        places = [steps.index(step) for step in sorted(set(checkpoints))]
    chosen = [replace(lineage.checkpoints[place], position=place) for place in places]
    return replace(lineage, checkpoints=tuple(chosen))
