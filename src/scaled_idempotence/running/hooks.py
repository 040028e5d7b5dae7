"""Listen to a running model, and change it for a while: everything is undone at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .loading import OutputProjection, RunningModel


@contextmanager
def projection_inputs(running: RunningModel) -> Iterator[list[list[Tensor]]]:
    """Keep what enters the output projections while the model runs.

    Parameters
    ----------
    running : RunningModel

    Yields
    ------
    list of list of (n, length, H, r) Tensor
        For each position, one tensor a run of the model; filled while the context lasts. The hooks
        are gone afterwards, whatever happened.
    """
    seen: list[list[Tensor]] = [[] for _ in running.projections]

    def keep(into: list[Tensor], one: OutputProjection, module, args):
        into.append(args[0].detach().unflatten(-1, (one.n_heads, one.d_head)))

    with ExitStack() as stack:
        for into, one in zip(seen, running.projections, strict=True):
            stack.callback(one.module.register_forward_pre_hook(partial(keep, into, one)).remove)
        yield seen


@contextmanager
def patched(
    running: RunningModel, changes: Mapping[tuple[int, int], Tensor]
) -> Iterator[RunningModel]:
    """Add to output factors while the context lasts.

    Parameters
    ----------
    running : RunningModel
    changes : mapping of (position, head) to (d, r) Tensor
        ``O' - O``, float64. A change of zero leaves the weights bit for bit as they are.

    Yields
    ------
    RunningModel
        The same, with ``O'`` in its weights; afterwards the weights have their old bytes, whatever
        happened.
    """
    with ExitStack() as stack:
        for position in {position for position, _ in changes}:
            weight = running.projections[position].weight
            stack.callback(weight.copy_, weight.clone())
        for (position, head), change in changes.items():
            part = running.projections[position].weights(head)
            # In float64, so that O - O is zero and the sum is rounded once.
            part.copy_(part.double() + change.to(part.device))
        yield running


@contextmanager
def skipping(blocks: Sequence[torch.nn.Module], outputs: Sequence[Any]) -> Iterator[None]:
    """Let the first layers of a model give known outputs without running.

    Parameters
    ----------
    blocks : sequence of torch.nn.Module
    outputs : sequence
        What each of them gave for the same input.

    Yields
    ------
    None
    """
    with ExitStack() as stack:
        for block, output in zip(blocks, outputs, strict=True):
            stack.callback(block.__dict__.pop, "forward", None)
            block.forward = lambda *args, _output=output, **kwargs: _output
        yield


@contextmanager
def block_outputs(running: RunningModel) -> Iterator[list[Any]]:
    """Keep the output of every layer while the model runs, for `skipping`.

    Parameters
    ----------
    running : RunningModel

    Yields
    ------
    list
        By position; the output of the last run.
    """
    seen: list[Any] = [None] * len(running.projections)

    def keep(position: int, module, args, output):
        seen[position] = output

    with ExitStack() as stack:
        for position, one in enumerate(running.projections):
            stack.callback(one.block.register_forward_hook(partial(keep, position)).remove)
        yield seen
