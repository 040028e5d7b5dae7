"""Measure what a running model loses when heads are changed in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .hooks import block_outputs, patched, skipping
from .loading import RunningModel
from .text import Segments

Head = tuple[int, int]  # position of the layer, head
Changes = Mapping[Head, Tensor]


class Meter:
    """Measures a running model on fixed segments, whatever is changed in it.

    Parameters
    ----------
    running : RunningModel
    chosen : Segments
    wanted : sequence of int, optional
        The segments that will be measured; all if left out.

    Attributes
    ----------
    base : dict of int to float
        The measure of the unchanged model, by segment.

    Notes
    -----
    Layers below the first changed one give what they gave before; they are not run again. That this
    is exact is tried once, and if it is not (a model that passes more between its layers than their
    outputs), everything is run.
    """

    def __init__(
        self, running: RunningModel, chosen: Segments, wanted: Sequence[int] | None = None
    ):
        self._running = running
        self._tokens, self._places = (
            chosen.masked() if running.task == "masked" else (chosen.tokens, None)
        )
        self._targets = chosen.tokens
        self._outputs: dict[int, list[Any]] = {}
        self._hidden: dict[int, Tensor] = {}
        self._gradients: dict[int, list[Tensor]] = {}
        self.base: dict[int, float] = {}
        for n in range(len(self._tokens)) if wanted is None else wanted:
            with block_outputs(running) as seen:
                if running.task == "none":
                    self._hidden[n] = running.hidden(self._tokens[n : n + 1])
                self.base[n] = self._value(n)
            self._outputs[n] = seen
        n, last = next(iter(self.base)), len(running.projections) - 1
        with self._skipping(n, last):
            self.skips = self._value(n) == self.base[n]

    def measure(self, changes: Changes, segment: int) -> float:
        """Measure one segment with changed heads.

        Parameters
        ----------
        changes : mapping of (position, head) to (d, r) Tensor
        segment : int

        Returns
        -------
        float
            Loss in nats, or the share of the output that changed.
        """
        if not any(change.any() for change in changes.values()):
            return self.base[segment]  # not one bit differs
        first = min(position for position, _ in changes) if self.skips else 0
        with patched(self._running, changes), self._skipping(segment, first):
            return self._value(segment)

    def first_order(self, changes: Changes, segment: int) -> float:
        """Give the effect of a change to first order, ``<dL/dO, O' - O>``.

        Parameters
        ----------
        changes : mapping of (position, head) to (d, r) Tensor
        segment : int

        Returns
        -------
        float
            In nats; NaN without a loss: the change of an output has no slope at no change.
        """
        if not self._running.has_loss:
            return float("nan")
        if segment not in self._gradients:
            self._gradients[segment] = self._gradient(segment)
        slopes = [
            (one.part(self._gradients[segment][position], head).double() * change).sum()
            for (position, head), change in changes.items()
            for one in [self._running.projections[position]]
        ]
        # More digits than float32 has would show where in memory the sums were made.
        return float(torch.stack(slopes).sum().float())

    def _gradient(self, n: int) -> list[Tensor]:
        weights = [one.module.get_parameter("weight") for one in self._running.projections]
        wanted = [weight.requires_grad for weight in weights]
        with torch.enable_grad():
            for weight in weights:
                weight.requires_grad_(True)
            try:
                return list(torch.autograd.grad(self._loss(n), weights))
            finally:
                for weight, before in zip(weights, wanted, strict=True):
                    weight.requires_grad_(before)

    def _skipping(self, segment: int, first: int):
        blocks = [one.block for one in self._running.projections[:first]]
        return skipping(blocks, self._outputs[segment][:first])

    def _value(self, n: int) -> float:
        with torch.inference_mode():
            if self._running.has_loss:
                return float(self._loss(n))
            before = self._hidden[n].double()
            after = self._running.hidden(self._tokens[n : n + 1]).double()
            return float((after - before).square().sum() / before.square().sum())

    def _loss(self, n: int) -> Tensor:
        logits = self._running.logits(self._tokens[n : n + 1])[0]
        if self._places is None:
            logits, targets = logits[:-1], self._targets[n, 1:]
        else:
            logits, targets = logits[self._places[n]], self._targets[n, self._places[n]]
        taken = logits.gather(-1, targets.to(logits.device)[:, None])[:, 0]
        # A few rows at a time: a large vocabulary's tensor of exponentials costs more to allocate
        # than to compute. (`cross_entropy` errs in the fifth decimal over so many terms.)
        whole = torch.cat([rows.logsumexp(-1) for rows in logits.split(32)])
        return (whole - taken).double().mean()
