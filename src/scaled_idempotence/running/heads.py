"""Heads of a running model: their factors, and the nearest exact member of each."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..checkpoints.model import LayerFactors, OVModel
from ..errors import CannotRun
from ..linalg.closure import closure_scores
from ..linalg.factors import singular_values
from ..linalg.interventions import operator_norm2, projection_change
from .loading import RunningModel
from .meter import Changes, Head


class RunningHeads:
    """Factors of the running model's heads, layer by layer as they are asked for."""

    def __init__(self, model: OVModel, running: RunningModel):
        self.layers: list[LayerFactors] = []
        self._projections: dict[Head, Tensor] = {}
        closures, usable = [], []
        for position, layer in enumerate(model):
            one = running.projections[position]
            O = torch.stack([one.weights(head).double().cpu() for head in range(one.n_heads)])
            off = (O - layer.O).norm() / layer.O.norm()
            if not off < 1e-3:
                raise CannotRun(
                    f"the output factors of layer {layer.index} are not the weights that the model "
                    f"runs on (relative difference {off:.1g}): a norm that follows the output "
                    "projection is folded into them, or the weights are stored in another way. "
                    "Open the model with norm='raw'"
                )
            V = layer.V[layer.value_head]
            self.layers.append(LayerFactors(layer.index, O, layer.V, layer.value_head))
            closures.append(closure_scores(O, V).closure)
            # The algebra exists for value factors of full rank.
            s = singular_values(layer.V, torch.eye(*layer.V.shape[-2:], dtype=torch.float64))
            full = s[..., -1] > max(layer.V.shape[-2:]) * torch.finfo(torch.float64).eps * s[..., 0]
            usable.append(full[layer.value_head] & ~closures[-1].isnan())
        closure = torch.stack(closures).masked_fill(~torch.stack(usable), torch.nan)
        self.closure = closure  # (layers, H), NaN for heads that are left alone

    def factors(self, head: Head) -> tuple[Tensor, Tensor]:
        layer = self.layers[head[0]]
        return layer.O[head[1]], layer.V[layer.value_head[head[1]]]

    def projection(self, head: Head) -> Tensor:
        """Change of a head to the nearest exact member; made once."""
        if head not in self._projections:
            self._projections[head] = projection_change(*self.factors(head))
        return self._projections[head]

    def number(self, head: Head) -> int:
        return self.layers[head[0]].index

    def sorted(self) -> list[Head]:
        """Usable heads, the highest closure first."""
        order = self.closure.flatten().argsort(descending=True, stable=True).tolist()
        H = self.closure.shape[1]
        every = [(n // H, n % H) for n in order]
        return [head for head in every if not self.closure[head].isnan()]

    def relative_change(self, changes: Changes) -> float:
        norms = [
            (operator_norm2(change, V), operator_norm2(O, V))
            for head, change in changes.items()
            for O, V in [self.factors(head)]
        ]
        changed, whole = (sum(float(n) for n in column) for column in zip(*norms, strict=True))
        return float(np.sqrt(changed / whole))

    def mean_closure(self, changes: Changes) -> float:
        """Give the mean closure of changed heads."""
        scores = [
            closure_scores(O + change, V).closure
            for head, change in changes.items()
            for O, V in [self.factors(head)]
        ]
        return float(torch.stack(scores).nanmean())
