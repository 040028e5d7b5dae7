"""Closure, capacity and attainment over training; populations fixed at the end (section 10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Unpack

import numpy as np
import pandas as pd
from scipy import stats

from ..checkpoints.model import LayerFactors, OVModel
from ..compute.results import ALL_MODELS
from ..compute.study import Experiment, Part, Plan, RunOptions, Subject
from ..errors import ScaledIdempotenceError
from ..linalg.closure import closure_scores
from ..linalg.factors import effective_rank, singular_values
from ..linalg.scramble import null_closure
from ..lineages.audit import compare_contents, content_hash, ov_hashes
from ..lineages.find import Source, find_lineage
from ..lineages.series import Checkpoint, Lineage
from ..paper import STRONG
from ..progress import progress_bar
from ..statistics import hierarchical_gap
from .attainment import samples, search_heads

#: Name of the pooled rows of gaps.
POOLED = "all"
QUANTITIES = ("closure", "capacity", "attainment")


@dataclass(frozen=True)
class Trajectory:
    """What became of the heads of one or more lineages.

    Attributes
    ----------
    heads : DataFrame
        A row a lineage, checkpoint and head: ``lineage``, ``topology``, ``step``, ``final`` (bool),
        ``layer``, ``head``, ``group``, ``closure``, ``null`` (closed form, of the head's spectrum
        at that step), ``null_ratio`` (their quotient, a chi-square of one degree of freedom for a
        random orientation), ``effective_rank``; and for heads that were searched ``capacity``,
        ``scramble`` and ``attainment``, else NaN. ``group`` is ``"strong"``, ``"matched"``
        (ordinary heads of the same layers) or ``"other"``, fixed at the final checkpoint.
    checkpoints : DataFrame
        A row a revision: ``lineage``, ``step``, ``revision``, ``commit``, ``content`` (hash of all
        OV factors, or of the weight files where they were not read), ``status`` (``"used"``,
        ``"duplicate of ..."``, ``"impossible repeat of ..."``), ``loss``.
    gaps : DataFrame
        A row a lineage, step and quantity: medians ``strong`` and ``matched``, their ``gap``, and
        the bootstrap interval ``low``, ``high``. ``lineage`` is ``"all"`` where several are pooled,
        at the steps that all have and at the final checkpoints.
    """

    heads: pd.DataFrame
    checkpoints: pd.DataFrame
    gaps: pd.DataFrame


def trajectory(
    lineage: Source | Sequence[Source],
    checkpoints: int | Sequence[int] | None = None,
    *,
    threshold: float = STRONG,
    top: float | None = None,
    every_head: bool = False,
    norm: str = "raw",
    steps: int | None = None,
    scale: int = 1,
    n_starts: int = 1,
    max_steps: int = 100,
    n_resamples: int = 2000,
    confidence: float = 0.95,
    **options: Unpack[RunOptions],
) -> Trajectory:
    """Follow the heads of training lineages from checkpoint to checkpoint.

    Parameters
    ----------
    lineage : str, Lineage, mapping, or a sequence of these
        ``"live-mha"``, ``"live-gqa"`` or ``"live-mqa"`` is trained first, unless the cache has it;
        ``org/name`` or a short name is a public lineage of the registry; a mapping of steps to
        whatever `open_model` opens is a lineage of your own. Several are pooled in `gaps`.
    checkpoints : int or sequence of int, optional
        How many, spread over the logarithm of the step, or which steps. If not given, all of a live
        lineage or of your own, and four of a public one.
    threshold : float
        Closure at the final checkpoint from which a head counts as strong.
    top : float, optional
        In place of it, the share of heads of the highest closure at the final checkpoint, for
        lineages in which no head, or next to none, is strong.
    every_head : bool
        Search the capacity of every head and not only of the two groups.
    norm : {"raw", "folded"}
        As for `open_model`.
    steps, scale : int
        Of live lineages: steps of training, and a factor of the width and the number of heads.
    n_starts, max_steps : int
        Of `capacity`, which also starts at the trained orientation.
    n_resamples, confidence : int, float
        Of the hierarchical bootstrap: lineages, then layers.
    **options : RunOptions
        ``results_dir``, ``progress``, ``executor``, ``force``. Tables are about all models, and lie
        in ``<results_dir>/all-models/``.

    Returns
    -------
    Trajectory

    Raises
    ------
    CheckpointError, FetchError, ScaledIdempotenceError
        If a lineage or a step does not exist, or cannot be opened.

    Notes
    -----
    Contents are compared before anything is computed. A checkpoint that has the weights of another
    step, as some branches of public lineages do, is named in `checkpoints` and left out.

    Groups are chosen by the final closure, so the final gap of closure is positive by construction.
    What is not is when it opens, and how much of it is capacity.
    """
    given = [lineage] if isinstance(lineage, str | Lineage | Mapping) else list(lineage)
    progress = options.get("progress", True)
    lineages = [
        find_lineage(source, checkpoints, steps=steps, scale=scale, progress=progress)
        for source in given
    ]
    names = [one.name for one in lineages]
    if len(set(names)) < len(names):
        raise ScaledIdempotenceError(f"lineages {', '.join(names)}: each needs a name of its own")
    parameters = {
        "threshold": threshold,
        "top": top,
        "every_head": every_head,
        "n_starts": n_starts,
        "max_steps": max_steps,
        "n_resamples": n_resamples,
        "confidence": confidence,
    }
    opened = [(one, [each.open(norm) for each in one.checkpoints]) for one in lineages]
    weights = {
        f"{one.name} {step}": model.weights_id
        for one, models in opened
        for step, model in zip(one.steps, models, strict=True)
    }
    facts = {"lineages": names, "norm": norm, "package_version": version("scaled-idempotence")}
    tables = EXPERIMENT.run(
        Subject(ALL_MODELS, weights, norm, facts),
        parameters,
        inputs={one.name: _told_of(one) for one in lineages},
        plan=lambda: _plan(opened, threshold, top, progress),
        **options,
    )
    return Trajectory(*(tables[name] for name in EXPERIMENT.tables))


def _told_of(lineage: Lineage) -> list[list[object]]:
    """What the table of checkpoints says and no weights tell."""
    # The loss as text: NaN is equal to nothing, and the table would never be current.
    used = [
        [one.step, one.name, one.commit, one.position, str(one.loss)] for one in lineage.checkpoints
    ]
    return used + [[left.checkpoint.name, left.status] for left in lineage.left_out]


def _plan(
    opened: Sequence[tuple[Lineage, Sequence[OVModel]]],
    threshold: float,
    top: float | None,
    progress: bool,
) -> Plan:
    """Audit the lineages; layers of the checkpoints that are left are the parts."""
    found = [_follow(one, models, threshold, top, progress) for one, models in opened]
    parts = [part for own, _ in found for part in own]
    audit = pd.concat([audit for _, audit in found], ignore_index=True)
    return Plan(parts, tables={"trajectory_checkpoints": audit})


def _follow(
    lineage: Lineage,
    models: Sequence[OVModel],
    threshold: float,
    top: float | None,
    progress: bool,
) -> tuple[list[Part], pd.DataFrame]:
    every = lineage.checkpoints
    bar = progress_bar(every, f"reading {lineage.name}", "checkpoint", progress)
    contents = [_content(model, progress) for _, model in zip(bar, models, strict=True)]
    verdicts = compare_contents(contents, _positions(every))
    names = [one.name for one in every]
    rows = [
        _row(lineage.name, one, verdict.sentence(names), content)
        for one, verdict, content in zip(every, verdicts, contents, strict=True)
    ] + [
        _row(lineage.name, left.checkpoint, left.status, left.checkpoint.files)
        for left in lineage.left_out
    ]
    audit = pd.DataFrame(rows).sort_values("step", kind="stable", ignore_index=True)
    used = [
        (one.step, model)
        for one, model, verdict in zip(every, models, verdicts, strict=True)
        if verdict.status == "used"
    ]
    last, final = used[-1]
    groups = _groups(final, lineage.name, threshold, top)
    whose = {"name": lineage.name, "topology": final.topology}
    parts = [
        Part(model, n, whose | {"step": step, "final": step == last, "groups": groups[layer]})
        for step, model in used
        for n, layer in enumerate(model.layers)
    ]
    return parts, audit


def _with_gaps(
    tables: Mapping[str, pd.DataFrame], parameters: Mapping[str, Any]
) -> dict[str, pd.DataFrame]:
    bootstrap = {key: parameters[key] for key in ("n_resamples", "confidence")}
    return {**tables, "trajectory_gaps": trajectory_gaps(tables["trajectory"], **bootstrap)}


def _content(model: OVModel, progress: bool) -> dict[str, str]:
    model.fetch(progress=progress)
    return ov_hashes(model)


def _positions(checkpoints: Sequence[Checkpoint]) -> list[int]:
    known = all(one.position >= 0 for one in checkpoints)
    return [one.position if known else n for n, one in enumerate(checkpoints)]


def _row(lineage: str, checkpoint: Checkpoint, status: str, content: Mapping[str, str]) -> dict:
    return {
        "lineage": lineage,
        "step": checkpoint.step,
        "revision": checkpoint.name,
        "commit": checkpoint.commit,
        "content": content_hash(content),
        "status": status,
        "loss": checkpoint.loss,
    }


def _groups(
    final: OVModel, name: str, threshold: float, top: float | None
) -> dict[int, dict[str, list[int]]]:
    """Strong heads of the final checkpoint, and as many ordinary ones of the same layers."""
    closures = {
        layer.index: closure_scores(layer.O, layer.V[layer.value_head]).closure for layer in final
    }
    if top is not None:
        if not 0 < top < 1:
            raise ValueError(f"top is {top}: pass a share between 0 and 1")
        defined = np.concatenate([values.numpy() for values in closures.values()])
        threshold = float(np.nanquantile(defined, 1 - top))
    chosen = {index: samples(values, name, index, threshold) for index, values in closures.items()}
    return {
        index: {group: heads[group] for group in ("strong", "matched")}
        for index, heads in chosen.items()
    }


def trajectory_part(
    layer: LayerFactors,
    *,
    name: str,
    topology: str,
    step: int,
    final: bool,
    groups: Mapping[str, list[int]],
    **parameters: Any,
) -> pd.DataFrame:
    """Score the heads of one layer of one checkpoint, and say which checkpoint that is.

    Parameters
    ----------
    layer : LayerFactors
    name, topology : str
        The lineage's.
    step : int
    final : bool
    groups : mapping of str to list of int
        As in `trajectory_layer`.
    **parameters
        As in `trajectory`.

    Returns
    -------
    DataFrame
        The columns of `Trajectory.heads`.
    """
    search = {key: parameters[key] for key in ("every_head", "n_starts", "max_steps")}
    table = trajectory_layer(layer, name, groups, **search)
    whose = {"lineage": name, "topology": topology, "step": step, "final": final}
    for place, (column, value) in enumerate(whose.items()):
        table.insert(place, column, value)
    return table


def trajectory_layer(
    layer: LayerFactors,
    name: str,
    groups: Mapping[str, list[int]],
    every_head: bool,
    n_starts: int,
    max_steps: int,
) -> pd.DataFrame:
    """Score the heads of one layer of one checkpoint.

    Parameters
    ----------
    layer : LayerFactors
    name : str
        The lineage's; with it scrambles and searches of a head are seeded alike at every step.
    groups : mapping of str to list of int
        Heads of the groups, fixed at the final checkpoint.
    every_head : bool
    n_starts, max_steps : int

    Returns
    -------
    DataFrame
        Columns of `Trajectory.heads` from ``layer`` on.
    """
    V = layer.V[layer.value_head]
    scores = closure_scores(layer.O, V)
    undefined = scores.status != 0
    s = singular_values(layer.O, V)
    null = null_closure(s).masked_fill(undefined, np.nan)
    H = len(layer.O)
    group = np.full(H, "other", dtype=object)
    for label, members in groups.items():
        group[members] = label
    table = pd.DataFrame(
        {
            "layer": layer.index,
            "head": np.arange(H),
            "group": group,
            "closure": scores.closure.numpy(),
            "null": null.numpy(),
            "null_ratio": (scores.closure / null).numpy(),
            "effective_rank": effective_rank(s).masked_fill(undefined, np.nan).numpy(),
        }
    )
    wanted = ~undefined.numpy() & ((group != "other") | every_head)
    heads = np.flatnonzero(wanted).tolist()
    found = pd.DataFrame(np.nan, index=range(H), columns=["capacity", "scramble", "attainment"])
    if heads:
        searched = search_heads(
            layer.O[heads], V[heads], name, layer.index, heads, n_starts, max_steps
        )
        found.loc[heads] = searched[found.columns].to_numpy()
    return pd.concat([table, found], axis=1)


def trajectory_gaps(
    heads: pd.DataFrame, *, n_resamples: int = 2000, confidence: float = 0.95
) -> pd.DataFrame:
    """Median gaps between heads that end strong and ordinary ones, at every step.

    Parameters
    ----------
    heads : DataFrame
        Of a `Trajectory`.
    n_resamples, confidence : int, float
        Of the bootstrap, which draws lineages, then layers.

    Returns
    -------
    DataFrame
        As `Trajectory.gaps`.
    """
    part = heads[heads.group.isin(("strong", "matched"))]
    count = heads.lineage.nunique()
    sets = [
        (name, step, rows) for (name, step), rows in part.groupby(["lineage", "step"], sort=False)
    ]
    if count > 1:
        # Steps that all lineages have; and the ends, which need not be at one step.
        for step, rows in part[~part.final].groupby("step"):
            if rows.lineage.nunique() == count:
                sets.append((POOLED, step, rows))
        final = part[part.final]
        sets.append((POOLED, final.step.max(), final))
    found = []
    for name, step, rows in sets:
        for quantity in QUANTITIES:
            gap = hierarchical_gap(
                rows[quantity],
                rows.group == "strong",
                rows.lineage,
                rows.layer,
                n_resamples=n_resamples,
                confidence=confidence,
            )
            found.append((name, step, bool(rows.final.all()), quantity, *gap))
    columns = ["lineage", "step", "final", "quantity", "strong", "matched", "gap", "low", "high"]
    return pd.DataFrame(found, columns=columns)


def step_medians(heads: pd.DataFrame) -> pd.DataFrame:
    """Medians over the heads of each lineage and checkpoint.

    Parameters
    ----------
    heads : DataFrame
        Of a `Trajectory`.

    Returns
    -------
    DataFrame
        Columns ``lineage``, ``step``, ``closure``, ``null``, ``null_ratio``, ``scramble``,
        ``capacity``, ``attainment``, ``effective_rank``.
    """
    columns = [
        "closure", "null", "null_ratio", "scramble", "capacity", "attainment", "effective_rank"
    ]  # fmt: skip
    return heads.groupby(["lineage", "step"], sort=False)[columns].median().reset_index()


def random_median(n: int, probability: float) -> float:
    """Quantile of the median of P / P0 over heads of random orientation.

    Parameters
    ----------
    n : int
        Heads, taken as independent.
    probability : float

    Returns
    -------
    float
        The median of ``n`` chi-square variables of one degree of freedom is an order statistic,
        whose distribution is exact; for an even ``n`` the upper of the two in the middle.

    Examples
    --------
    >>> [round(random_median(48, p), 2) for p in (0.025, 0.5, 0.975)]
    [0.23, 0.48, 0.87]
    """
    middle = stats.beta.ppf(probability, n // 2 + 1, n - n // 2)
    return float(stats.chi2.ppf(middle, df=1))


def departures(heads: pd.DataFrame, level: float = 0.01) -> pd.DataFrame:
    """Say when the heads of each lineage leave their null for good.

    Parameters
    ----------
    heads : DataFrame
        Of a `Trajectory`.
    level : float
        Of the test.

    Returns
    -------
    DataFrame
        A row a lineage: ``heads``; ``start`` and ``end``, medians of the null ratio at its first
        and last checkpoint; ``bound``, which the median of as many random orientations exceeds with
        probability `level`; ``left``, the first step from which on the median stays above it, NaN
        if there is none.
    """
    rows = []
    for name, part in heads.groupby("lineage", sort=False):
        medians = part.groupby("step").null_ratio.median()
        n = int(part.groupby("step").null_ratio.count().min())
        bound = random_median(n, 1 - level)
        below = np.flatnonzero(medians.to_numpy() <= bound)
        after = below[-1] + 1 if len(below) else 0
        left = medians.index[after] if after < len(medians) else np.nan
        rows.append((name, n, medians.iloc[0], medians.iloc[-1], bound, left))
    return pd.DataFrame(rows, columns=["lineage", "heads", "start", "end", "bound", "left"])


EXPERIMENT = Experiment(
    __name__,
    trajectory_part,
    tables=("trajectory", "trajectory_checkpoints", "trajectory_gaps"),
    part_tables=("trajectory",),
    finish=_with_gaps,
)
