"""Capacity against attainment: what spectrum and angles allow, and what training took (23, 24)."""

from __future__ import annotations

from typing import Unpack

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..checkpoints.model import LayerFactors, OVModel
from ..compute.study import Experiment, RunOptions
from ..linalg.capacity import capacity
from ..linalg.closure import closure_scores
from ..linalg.draws import draw_seed
from ..linalg.orientations import (
    closure_of_orientation,
    orientation_path,
    shifted_pairing,
    sorted_pairing,
    trained_orientation,
)
from ..linalg.principal import core_closure, principal_coordinates
from ..linalg.scramble import signed_permutation_scramble
from ..paper import BLIND_HEADS, PERMUTATION_DRAWS, STRONG
from ..statistics import hierarchical_gap


def attainment(
    model: OVModel,
    *,
    threshold: float = STRONG,
    n_starts: int = 2,
    max_steps: int = 100,
    every_head: bool = False,
    **options: Unpack[RunOptions],
) -> pd.DataFrame:
    """Search the capacity of a model's heads and compare it with what they attain.

    Parameters
    ----------
    model : OVModel
        From `open_model`.
    threshold : float
        Closure from which a head counts as strong.
    n_starts, max_steps : int
        Of `capacity`, which also starts at the trained orientation.
    every_head : bool
        Also search every head, as a further sample ``"all"``.
    **options : RunOptions
        ``results_dir``, ``progress``, ``executor``, ``force``.

    Returns
    -------
    DataFrame
        A row a head and sample. ``sample`` is ``"hash"`` (two heads a layer, chosen by a hash of
        the model's name, blind to closure), ``"strong"`` (all strong heads) or ``"matched"`` (as
        many ordinary heads of the same layers, by the same hash; fewer where a layer has not
        enough). ``capacity`` is a lower bound of (23), the best of ``n_starts`` searches of
        ``n_steps`` steps together, found from ``best_start``; ``scramble`` is ``R``, the head's
        median over signed permutations; ``attainment`` is ``E = (P - R) / (Cap - R)`` (24), not
        clipped. ``sorted_pairing`` and ``shifted_pairing`` are the closures of the two simple
        constructions. Heads without a defined closure are in no sample.

    See Also
    --------
    attainment_gaps : Strong against matched heads, with intervals.
    """
    parameters = {
        "name": model.name,
        "threshold": threshold,
        "n_starts": n_starts,
        "max_steps": max_steps,
        "every_head": every_head,
    }
    return EXPERIMENT.table(model, parameters, **options)


def samples(
    closure: Tensor, name: str, layer: int, threshold: float, every_head: bool = False
) -> dict[str, list[int]]:
    """Choose the heads of a layer.

    Parameters
    ----------
    closure : (H,) Tensor
        NaN for heads that cannot be chosen.
    name : str
        The model's, a part of the hash.
    layer : int
    threshold : float
    every_head : bool

    Returns
    -------
    dict of str to list of int
        Heads of each sample.
    """
    order = sorted(
        range(len(closure)), key=lambda head: draw_seed(name, layer, head, "attainment sample")
    )
    usable = [head for head in order if not closure[head].isnan()]
    strong = [head for head in usable if closure[head] >= threshold]
    ordinary = [head for head in usable if closure[head] < threshold]
    chosen = {
        "hash": usable[:BLIND_HEADS],
        "strong": strong,
        "matched": ordinary[: len(strong)],
    }
    if every_head:
        chosen["all"] = usable
    return {sample: sorted(heads) for sample, heads in chosen.items()}


def attainment_layer(
    layer: LayerFactors,
    name: str,
    threshold: float,
    n_starts: int,
    max_steps: int,
    every_head: bool,
) -> pd.DataFrame:
    """Search the chosen heads of one layer.

    Parameters
    ----------
    layer : LayerFactors
    name : str
        The model's name, a part of samples and seeds.
    threshold : float
    n_starts, max_steps : int
    every_head : bool

    Returns
    -------
    DataFrame
        The columns of `attainment`.
    """
    V = layer.V[layer.value_head]
    closure = closure_scores(layer.O, V).closure
    chosen = samples(closure, name, layer.index, threshold, every_head)
    heads = sorted({head for members in chosen.values() for head in members})
    if not heads:
        return pd.DataFrame()
    scores = search_heads(layer.O[heads], V[heads], name, layer.index, heads, n_starts, max_steps)
    scores.insert(0, "closure", closure[heads].numpy())
    scores.insert(0, "head", heads)
    scores.insert(0, "layer", layer.index)
    parts = [
        scores[scores["head"].isin(members)].assign(sample=sample)
        for sample, members in chosen.items()
        if members
    ]
    table = pd.concat(parts, ignore_index=True)
    table.insert(2, "sample", table.pop("sample"))
    return table


def search_heads(
    O: Tensor, V: Tensor, name: str, layer: int, heads: list[int], n_starts: int, max_steps: int
) -> pd.DataFrame:
    """Search the capacity of some heads of a layer, beside their scrambles.

    Parameters
    ----------
    O, V : (n, d, r) Tensor
        Factors of the heads, a value factor for each.
    name : str
        The model's name, a part of the seeds.
    layer : int
    heads : list of int
        Their numbers.
    n_starts, max_steps : int

    Returns
    -------
    DataFrame
        A row a head, from ``capacity`` on the columns of `attainment`.
    """
    K, cosines, _, _ = principal_coordinates(O, V)
    s, U_L, U_R = trained_orientation(K)
    found = capacity(
        s,
        cosines,
        trained=(U_L, U_R),
        n_starts=n_starts,
        max_steps=max_steps,
        seed=[draw_seed(name, layer, head, "capacity") for head in heads],
    )
    seeds = [f"{name}:{layer}:{head}" for head in heads]
    scrambled = signed_permutation_scramble(K, PERMUTATION_DRAWS, seeds)
    scramble = core_closure(scrambled, cosines[:, None]).quantile(0.5, dim=-1)
    trained = core_closure(K, cosines)
    simple = {
        kind.__name__: closure_of_orientation(s, cosines, *kind(s, cosines))
        for kind in (sorted_pairing, shifted_pairing)
    }
    return pd.DataFrame(
        {
            "capacity": found.closure.numpy(),
            "scramble": scramble.numpy(),
            "attainment": ((trained - scramble) / (found.closure - scramble)).numpy(),
        }
        | {kind: values.numpy() for kind, values in simple.items()}
        | {
            "best_start": [found.starts[index] for index in found.best_start.tolist()],
            "n_starts": found.n_starts,
            "n_steps": found.n_steps.sum(-1).numpy(),
            "converged": found.converged.all(-1).numpy(),
        }
    )


def attainment_gaps(
    table: pd.DataFrame, *, n_resamples: int = 2000, confidence: float = 0.95
) -> pd.DataFrame:
    """Median gaps between strong heads and their layer-matched ordinary ones.

    Parameters
    ----------
    table : DataFrame
        From `attainment`.
    n_resamples : int
        Of the bootstrap, which draws layers: heads of one layer are not independent.
    confidence : float
        Of the percentile interval.

    Returns
    -------
    DataFrame
        Rows ``closure``, ``capacity`` and ``attainment``; columns ``strong`` and ``matched``
        (medians), ``gap``, and the interval ``low``, ``high``. NaN where there are no strong heads,
        and intervals are NaN where they lie in fewer than two layers.
    """
    both = table[table["sample"].isin(("strong", "matched"))]
    strong = both["sample"] == "strong"
    rows = {}
    for column in ("closure", "capacity", "attainment"):
        found = hierarchical_gap(
            both[column],
            strong,
            np.zeros(len(both)),
            both.layer,
            n_resamples=n_resamples,
            confidence=confidence,
        )
        rows[column] = {
            "strong": both[column][strong].median(),
            "matched": both[column][~strong].median(),
            "gap": found.gap,
            "low": found.low,
            "high": found.high,
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def best_orientation(
    layer: LayerFactors, head: int, name: str, *, n_starts: int = 2, max_steps: int = 100
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Search one head again and give the construction itself, which tables do not hold.

    Parameters
    ----------
    layer : LayerFactors
    head : int
    name : str
        The model's name; with it the search is the one of `attainment`.
    n_starts, max_steps : int

    Returns
    -------
    s, cosines : (r,) Tensor
    trained, best : pair of (r, r) Tensor
        ``(U_L, U_R)`` as trained and as found.
    """
    K, cosines, _, _ = principal_coordinates(layer.O[head], layer.V[layer.value_head[head]])
    s, U_L, U_R = trained_orientation(K)
    found = capacity(
        s,
        cosines,
        trained=(U_L, U_R),
        n_starts=n_starts,
        max_steps=max_steps,
        seed=draw_seed(name, layer.index, head, "capacity"),
    )
    return s, cosines, (U_L, U_R), (found.U_L, found.U_R)


def path_closure(
    s: Tensor,
    cosines: Tensor,
    start: tuple[Tensor, Tensor],
    end: tuple[Tensor, Tensor],
    n_points: int = 101,
) -> tuple[np.ndarray, np.ndarray]:
    """Closure along the geodesic from one orientation to another.

    Parameters
    ----------
    s, cosines : (r,) Tensor
    start, end : pair of (r, r) Tensor
    n_points : int

    Returns
    -------
    t, closure : (n_points,) ndarray
    """
    t = torch.linspace(0, 1, n_points, dtype=torch.float64)
    U_L, U_R = orientation_path(s, start, end, t)
    return t.numpy(), closure_of_orientation(s, cosines, U_L, U_R).numpy()


EXPERIMENT = Experiment(__name__, attainment_layer)
