"""What is read of one layer under a layout, and the factors that it makes."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from .reader import Hyperparameters, TensorSlice
from .schema import Layout
from .storage import Norm, Shape


def expected_shapes(
    layout: Layout, h: Hyperparameters, layer: int, norm: str
) -> dict[str, tuple[Shape, str]]:
    """Give the shapes that a layer's tensors must have.

    Parameters
    ----------
    layout : Layout
    h : Hyperparameters
    layer : int
        The model's own number of the layer.
    norm : {"raw", "folded"}

    Returns
    -------
    dict of str to (tuple, str)
        By template; None in a shape is any size. The text says what the numbers mean.
    """
    shapes = layout.value.shapes(h) | {layout.output.weight: layout.output.shape(h)}
    for spec in norms_of(layout, h, layer, norm):
        if spec is not None and spec.weight:
            shapes[spec.weight] = ((h.d_model,), f"width {h.d_model}")
    return shapes


def norms_of(
    layout: Layout, h: Hyperparameters, layer: int, norm: str
) -> tuple[Norm | None, Norm | None]:
    """Give the norms before and after a layer's attention that are to be folded.

    Parameters
    ----------
    layout : Layout
    h : Hyperparameters
    layer : int
    norm : {"raw", "folded"}

    Returns
    -------
    before, after : Norm or None
    """
    if norm == "raw":
        return None, None
    before = layout.norm_before
    if before is not None and (layer < before.from_layer or not h.pre_norm):
        before = None
    return before, layout.norm_after


def wanted(
    layout: Layout, prefix: str, hyperparameters: Hyperparameters, layer: int, norm: str
) -> list[TensorSlice]:
    """Say what must be read for one layer, whatever the format.

    Parameters
    ----------
    layout : Layout
    prefix : str
        What stands before the templates in this checkpoint.
    hyperparameters : Hyperparameters
    layer : int
        The model's own number of the layer.
    norm : {"raw", "folded"}

    Returns
    -------
    list of TensorSlice
        Values first, then the output projection, then the gains of the norms before and after.
    """
    slices = [*layout.value.slices(hyperparameters), TensorSlice(layout.output.weight)]
    slices += [
        TensorSlice(spec.weight)
        for spec in norms_of(layout, hyperparameters, layer, norm)
        if spec is not None and spec.weight
    ]
    return [TensorSlice(hyperparameters.named(prefix + name, layer), rows) for name, rows in slices]


def assemble(
    layout: Layout, parts: Sequence[Tensor], hyperparameters: Hyperparameters, layer: int, norm: str
) -> tuple[Tensor, Tensor]:
    """Make a layer's factors of what `wanted` names.

    Parameters
    ----------
    layout : Layout
    parts : sequence of Tensor
        In the order of `wanted`.
    hyperparameters : Hyperparameters
    layer : int
    norm : {"raw", "folded"}

    Returns
    -------
    O : (H, d, r) Tensor
    V : (G, d, r) Tensor
    """
    rest = iter(parts)
    stored = [next(rest) for _ in layout.value.slices(hyperparameters)]
    V = layout.value.factors(stored, hyperparameters)
    O = layout.output.factors(next(rest), hyperparameters)
    before, after = norms_of(layout, hyperparameters, layer, norm)
    if before is not None:
        V = before.fold(V, next(rest) if before.weight else None)
    if after is not None:
        O = after.fold_after(O, next(rest) if after.weight else None)
    return O, V
