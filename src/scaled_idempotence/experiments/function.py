"""Function: does the model's prediction depend on closure? (section 9)

Heads are changed inside the running model, the rest is left alone, and the change of the loss is
paired segment by segment with the unchanged model. Towards the algebra, at random by the same
amount, and to zero: only against the other two does the first mean something.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Any, NamedTuple, Unpack

import pandas as pd
import torch
from torch import Tensor

from ..checkpoints.model import OVModel
from ..compute.study import Experiment, Part, Plan, RunOptions
from ..errors import CannotRun, ScaledIdempotenceError
from ..linalg.interventions import orientation_changes, random_change
from ..paper import STRONG
from ..running.heads import RunningHeads
from ..running.loading import MAX_BYTES, RunningModel, run_model
from ..running.meter import Changes, Head, Meter
from ..running.text import Segments, TextSource, segments, text_inputs
from ..statistics import mean_interval
from .attainment import best_orientation, samples

#: What the change of a model is measured by, for each task of its trained head.
MEASURES = {"causal": "next-token loss", "masked": "masked-token loss", "none": "output change"}
UNITS = {"causal": "nats a token", "masked": "nats a masked token", "none": "share of |output|^2"}

#: Positions of the dose-response curves: 0 is as trained, 1 the member or the best orientation.
DOSES = (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5)

#: Share of all heads that stand in for the strong ones where there are none.
HIGHEST_SHARE = 0.05

#: Shares of the random draws that do where the first-order effect is taken off, of all heads at
#: once where changes are large.
CONTROLLED_SHARE, LARGE_SHARE = 1 / 3, 2 / 3

#: More segments than any text has.
EVERY = sys.maxsize
KEYS = ["scope", "group", "layer", "head", "n_heads", "intervention"]
DOSE_KEYS = ["scope", "group", "layer", "head", "path", "t"]


@dataclass(frozen=True)
class Function:
    """Tables of `function`.

    Attributes
    ----------
    effects : DataFrame
        A row an intervention.
    segments : DataFrame
        A row an intervention, random draw (-1 where nothing is drawn) and segment, with the effect
        to ``first_order``.
    dose : DataFrame
        A row a point of a dose-response curve.
    """

    effects: pd.DataFrame = field(repr=False)
    segments: pd.DataFrame = field(repr=False)
    dose: pd.DataFrame = field(repr=False)

    @property
    def measured(self) -> bool:
        """Whether the model ran; if not, ``attrs["reason"]`` of the tables says why."""
        return bool(self.effects.attrs["measured"])


def function(
    model: OVModel,
    text: TextSource = None,
    *,
    n_segments: int = 8,
    length: int = 256,
    draws: int = 3,
    single_heads: int | None = 3,
    single_segments: int = 2,
    threshold: float = STRONG,
    tokenizer: Any = None,
    max_bytes: float = MAX_BYTES,
    **options: Unpack[RunOptions],
) -> Function:
    """Change heads inside a running model and measure what its prediction loses.

    Parameters
    ----------
    model : OVModel
        From `open_model`. Its factors must be those that the model runs on, so ``norm="folded"``
        works only where no norm follows the output projection.
    text : str, Path, Tensor or Segments, optional
        A text file, the id of a data set, or tokens; prose that ships with Python if left out.
    n_segments, length : int
        Segments of the text, and tokens of each.
    draws : int
        Random changes for each head *and segment*: every segment meets draws of its own, over which
        its delta is the mean, so that the interval over segments has the spread of both in it. For
        heads changed together fewer do where the model has a loss: see Notes.
    single_heads : int, optional
        Heads of each group that are also changed one at a time, those of the highest closure (of
        the lowest, in the lowest group); None for all.
    single_segments : int
        First segments that are used for one head at a time and for dose-response curves.
    threshold : float
        Closure from which a head counts as strong.
    tokenizer : optional
        For a model in memory.
    max_bytes : float
        Size of the stored weights up to which a model is run.
    **options : RunOptions
        ``results_dir``, ``progress``, ``executor``, ``force``. Parts are segments: an executor's
        workers run the model, each on others.

    Returns
    -------
    Function
        Heads are changed with ``V`` held. ``intervention`` is ``"projected"`` (to the nearest exact
        member of the algebra), ``"random"`` (every entry of ``O`` at random, with the projection's
        ``|T' - T|``), ``"random return"`` (as large, and at random in the return core alone, where
        the projection acts; strong and matched groups), or ``"zeroed"``. ``group`` is ``"strong"``
        (``"highest"``, a twentieth of all heads, where no head is strong), ``"matched"`` (ordinary
        heads of the same layers, as many), ``"lowest"`` (as many with the lowest closure) or
        ``"all"``; ``scope`` says whether its heads are changed together or one is. ``base`` and
        ``value`` are the measure before and after, ``delta`` their difference with the bootstrap
        interval ``low``, ``high`` over segments; ``relative_change`` is ``|T' - T| / |T|`` over the
        changed heads.

        ``dose`` moves heads by ``t`` along two paths: ``"algebra"``, a straight line to the exact
        member, and ``"orientation"``, a geodesic to the best orientation that a search finds.

        Where the model cannot run all three are empty, and ``attrs["reason"]`` says why. Weights
        have their old bytes again afterwards, also after an exception.

    Raises
    ------
    ScaledIdempotenceError
        If a number is too small, the text is too short or cannot be read, or a worker died.

    Notes
    -----
    To first order a change costs ``<dL/dO, O' - O>``: zero in the mean over random changes, and the
    larger part of what differs between them. One gradient a segment gives it for every change
    (``first_order`` in ``segments``), and it is taken off the delta of random changes of several
    heads together, as a control variate: the mean is the same, and a third of the draws (two thirds
    for all heads at once, where changes are large) gives intervals as narrow. On
    `single_segments` only, one head at a time, nothing is taken off.
    """
    counts = {"draws": draws, "single_heads": single_heads, "single_segments": single_segments}
    for name, count in counts.items():
        if count is not None and count < 1:
            raise ScaledIdempotenceError(f"{name} is {count}, expected at least 1")
    settings = _Settings(threshold, draws, single_heads, single_segments)
    tables = EXPERIMENT.run(
        model,
        settings._asdict(),
        inputs=text_inputs(model, text, n_segments, length, tokenizer),
        plan=lambda: _plan(model, settings, text, n_segments, length, tokenizer, max_bytes),
        **options,
    )
    return Function(tables["function"], tables["function_segments"], tables["dose"])


def _plan(
    model: OVModel,
    settings: _Settings,
    text: TextSource,
    n_segments: int,
    length: int,
    tokenizer: Any,
    max_bytes: float,
) -> Plan:
    """Choose segments and heads; where the model cannot run, empty tables say why."""
    try:
        running = run_model(model, tokenizer=tokenizer, max_bytes=max_bytes)
        chosen = segments(running, text, n_segments, length)
        if running.task == "masked":
            chosen.masked()  # before any work: there may be no mask
        study = _Study(model, running, settings)
    except CannotRun as error:
        columns = {
            "function": [*KEYS, *_STATISTICS],
            "function_segments": _SEGMENT_COLUMNS,
            "dose": _DOSE_COLUMNS,
        }
        tables = {name: pd.DataFrame(columns=names) for name, names in columns.items()}
        remarks = {"measured": False, "reason": str(error), "measure": "", "unit": ""}
        return Plan([], remarks, tables=tables)
    remarks = {
        "measured": True,
        "reason": "",
        "measure": MEASURES[running.task],
        "unit": UNITS[running.task],
    } | chosen.identity
    parts = [Part(model, None, {"chosen": chosen, "segment": n}) for n in range(len(chosen.tokens))]
    return Plan(parts, remarks, context=study)


def prepare(model: OVModel, **settings: Any) -> _Study:
    """Run the model and choose the heads, in a worker.

    Parameters
    ----------
    model : OVModel
    **settings
        As in `function`.

    Returns
    -------
    object
        What `function_segment` takes.
    """
    return _Study(model, run_model(model, max_bytes=float("inf")), _Settings(**settings))


_STATISTICS = ["n_segments", "base", "value", "delta", "low", "high", "relative_change"]
_SEGMENT_COLUMNS = [*KEYS, "draw", "segment", "base", "value", "delta", "first_order"]
_DOSE_COLUMNS = [*DOSE_KEYS, *_STATISTICS, "closure"]


def function_segment(
    study: _Study, *, chosen: Segments, segment: int, **settings: Any
) -> dict[str, pd.DataFrame]:
    """Make all changes, one after another, and measure each on one segment.

    Parameters
    ----------
    study : object
        From `prepare`, with the same settings.
    chosen : Segments
    segment : int
    **settings
        As in `function`.

    Returns
    -------
    dict of str to DataFrame
        ``function_segments`` and ``dose``, a row a change.
    """
    assert study.settings == _Settings(**settings)
    # Threads share the running model, and what one of them changes in it the others would see.
    with study.lock:
        meter = Meter(study.running, chosen, [segment])
        rows = {
            name: [job.row(meter, study.heads, segment) for job in jobs if segment < job.n_segments]
            for name, jobs in (("function_segments", study.jobs), ("dose", study.curves))
        }
    columns = {
        "function_segments": [*_SEGMENT_COLUMNS, "relative_change"],
        "dose": [*DOSE_KEYS, "segment", "base", "value", "delta", "relative_change", "closure"],
    }
    return {name: pd.DataFrame(rows[name], columns=columns[name]) for name in rows}


def _summaries(tables: Mapping[str, pd.DataFrame], _: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    by_segment = tables["function_segments"]
    # A change's segments one below another, in the order of the first segment, which has them all.
    change = by_segment.groupby([*KEYS, "draw"], sort=False).ngroup()
    by_segment = by_segment.iloc[change.argsort(kind="stable")].reset_index(drop=True)
    result = {
        "function": _summary(by_segment, KEYS),
        "function_segments": by_segment[_SEGMENT_COLUMNS],
        "dose": _summary(tables["dose"], DOSE_KEYS),
    }
    base = by_segment.drop_duplicates("segment").base.mean()
    for table in result.values():
        table.attrs = {"base": float(base)}
    return result


def choose_groups(heads: RunningHeads, name: str, threshold: float) -> dict[str, list[Head]]:
    """Choose the heads that are changed.

    Parameters
    ----------
    heads : RunningHeads
    name : str
        The model's, a part of the hash that chooses ordinary heads.
    threshold : float

    Returns
    -------
    dict of str to list of (position, head)
        ``"strong"`` or ``"highest"``, ``"matched"``, ``"lowest"`` and ``"all"``. Empty groups are
        left out.
    """
    every = heads.sorted()
    if not every:
        raise CannotRun("no head of this model has a defined closure and a V of full rank")
    high = [head for head in every if heads.closure[head] >= threshold]
    title = "strong" if high else "highest"
    high = high or every[: max(2, round(HIGHEST_SHARE * len(every)))]
    bound = min(float(heads.closure[head]) for head in high)
    matched = []
    for position, layer in enumerate(heads.layers):
        if any(head[0] == position for head in high):
            chosen = samples(heads.closure[position], name, layer.index, bound)
            matched += [(position, head) for head in chosen["matched"]]
    taken = {*high, *matched}
    lowest = [head for head in every[::-1] if head not in taken][: len(high)]
    groups = {title: high, "matched": matched, "lowest": lowest, "all": every}
    return {title: members for title, members in groups.items() if members}


@dataclass(frozen=True)
class _Measurement:
    """One change, and on how many of the segments to measure it."""

    keys: dict[str, object]
    changes: Callable[[int], Changes]  # of a segment
    n_segments: int
    controlled: bool = False  # its first-order effect is zero in the mean, and taken off

    def row(self, meter: Meter, heads: RunningHeads, segment: int) -> dict[str, object]:
        changes = self.changes(segment)
        base, value = meter.base[segment], meter.measure(changes, segment)
        first_order = meter.first_order(changes, segment)
        return self.keys | {
            "segment": segment,
            "base": base,
            "value": value,
            "delta": value - base - first_order if self.controlled else value - base,
            "first_order": first_order,
            "relative_change": heads.relative_change(changes),
        }


class _Settings(NamedTuple):
    """Which changes are made; see `function`."""

    threshold: float
    draws: int
    single_heads: int | None
    single_segments: int


class _Study:
    """A running model, the heads to be changed in it, and all the changes."""

    def __init__(self, model: OVModel, running: RunningModel, settings: _Settings):
        self.settings = settings
        self.lock = Lock()
        self.running = running
        self.heads = RunningHeads(model, running)
        self._name = model.name
        self._groups = choose_groups(self.heads, model.name, settings.threshold)

    @cached_property
    def jobs(self) -> list[_Measurement]:
        """Interventions."""
        controlled = self.running.has_loss
        return list(_jobs(self.heads, self._groups, self._name, self.settings, controlled))

    @cached_property
    def curves(self) -> list[_Measurement]:
        """Points of the dose-response curves."""
        return list(_curves(self.heads, self._groups, self._name, self.settings.single_segments))


def _jobs(
    heads: RunningHeads,
    groups: Mapping[str, Sequence[Head]],
    name: str,
    settings: _Settings,
    controlled: bool,
) -> Iterator[_Measurement]:
    main = next(iter(groups))
    for group, members in groups.items():
        kinds = ["projected", "random", "zeroed"]
        if group in (main, "matched"):
            kinds.insert(2, "random return")
        share = (LARGE_SHARE if group == "all" else CONTROLLED_SHARE) if controlled else 1
        draws = math.ceil(settings.draws * share)
        keys = {"scope": "together", "group": group, "layer": -1, "head": -1}
        for one in _interventions(heads, name, keys, members, kinds, draws, EVERY):
            drawn = one.keys["draw"] != -1
            yield replace(one, controlled=controlled and drawn)
    for group, members in groups.items():
        if group == "all":
            continue
        order = sorted(members, key=lambda head: float(heads.closure[head]))
        order = order if group == "lowest" else order[::-1]
        kinds = ["projected", "random", "zeroed"]
        for head in order[: settings.single_heads]:
            keys = {"scope": "single", "group": group, "layer": heads.number(head), "head": head[1]}
            yield from _interventions(
                heads, name, keys, [head], kinds, settings.draws, settings.single_segments
            )


def _interventions(
    heads: RunningHeads,
    name: str,
    keys: Mapping[str, object],
    members: Sequence[Head],
    kinds: Sequence[str],
    draws: int,
    n_segments: int,
) -> Iterator[_Measurement]:
    for kind in kinds:
        drawn = kind.startswith("random")
        for draw in range(draws) if drawn else [-1]:

            def changes(segment: int, kind: str = kind, draw: int = draw) -> Changes:
                return {
                    h: _change(heads, h, kind, (name, heads.number(h), h[1], draw, segment))
                    for h in members
                }

            own = {"n_heads": len(members), "intervention": kind, "draw": draw}
            yield _Measurement({**keys, **own}, changes if drawn else _once(changes), n_segments)


def _once(changes: Callable[[int], Changes]) -> Callable[[int], Changes]:
    """Make what is the same for every segment only once, and only when it is needed."""
    made: list[Changes] = []

    def first(segment: int) -> Changes:
        if not made:
            made.append(changes(segment))
        return made[0]

    return first


def _change(heads: RunningHeads, head: Head, kind: str, identity: tuple) -> Tensor:
    O, V = heads.factors(head)
    if kind == "zeroed":
        return -O
    projection = heads.projection(head)
    if kind == "projected":
        return projection
    return random_change(projection, V, *identity, kind, returning=kind == "random return")


def _curves(
    heads: RunningHeads, groups: Mapping[str, Sequence[Head]], name: str, n_segments: int
) -> Iterator[_Measurement]:
    """Points of the dose-response curves: the high group, its first head, a matched one."""
    main = next(iter(groups))
    top = max(groups[main], key=lambda head: float(heads.closure[head]))
    curves = [("together", main, groups[main]), ("single", main, [top])]
    if "matched" in groups:
        near = min(groups["matched"], key=lambda head: (abs(head[0] - top[0]), head))
        curves.append(("single", "matched", [near]))
    for scope, group, members in curves:
        straight = {head: heads.projection(head) for head in members}
        paths = {"algebra": {t: {h: t * x for h, x in straight.items()} for t in DOSES}}
        if scope == "single":
            (head,) = members
            paths["orientation"] = {
                t: {head: x} for t, x in zip(DOSES, _turns(heads, head, name), strict=True)
            }
        for path, points in paths.items():
            for t, changes in points.items():
                keys = {
                    "scope": scope,
                    "group": group,
                    "layer": -1 if scope == "together" else heads.number(members[0]),
                    "head": -1 if scope == "together" else members[0][1],
                    "path": path,
                    "t": t,
                    "closure": heads.mean_closure(changes),
                }
                yield _Measurement(keys, lambda _, changes=changes: changes, n_segments)


def _turns(heads: RunningHeads, head: Head, name: str) -> Tensor:
    O, V = heads.factors(head)
    s, _, trained, best = best_orientation(heads.layers[head[0]], head[1], name, n_starts=1)
    t = torch.tensor(DOSES, dtype=torch.float64)
    return orientation_changes(O, V, trained, best, s, t)


def _summary(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Means over segments, with intervals of the paired differences."""
    table = []
    # Draws are averaged inside each segment: the segments are what is drawn from the text.
    rows = rows.groupby([*keys, "segment"], sort=False).mean().reset_index()
    for values, part in rows.groupby(keys, sort=False):
        low, high = mean_interval(part.delta.to_numpy())
        row = dict(zip(keys, values, strict=True)) | {
            "n_segments": len(part),
            **part[["base", "value", "delta"]].mean().to_dict(),
            "low": low,
            "high": high,
            "relative_change": part.relative_change.iloc[0],
        }
        if "closure" in part:
            row["closure"] = part.closure.iloc[0]
        table.append(row)
    return pd.DataFrame(table)


def contrasts(result: Function) -> pd.DataFrame:
    """Compare the projection with the random changes of the same size, segment by segment.

    Parameters
    ----------
    result : Function

    Returns
    -------
    DataFrame
        A row a group and control (``"random"``, ``"random return"``), heads changed together:
        ``projected`` and ``control`` deltas, their ``difference`` and its 95% interval ``low``,
        ``high`` over segments.
    """
    together = result.segments[result.segments.scope == "together"]
    # Draws are averaged inside each segment.
    deltas = together.pivot_table(
        index=["group", "segment"], columns="intervention", values="delta", sort=False
    )
    rows = []
    for group, part in deltas.groupby(level="group", sort=False):
        for control in ("random", "random return"):
            if control in part and part[control].notna().all():
                difference = part["projected"] - part[control]
                low, high = mean_interval(difference.to_numpy())
                rows.append(
                    {
                        "group": group,
                        "control": control,
                        "projected": part["projected"].mean(),
                        "control_delta": part[control].mean(),
                        "difference": difference.mean(),
                        "low": low,
                        "high": high,
                    }
                )
    return pd.DataFrame(rows)


EXPERIMENT = Experiment(
    __name__,
    function_segment,
    tables=("function", "function_segments", "dose"),
    part_tables=("function_segments", "dose"),
    unit="segment",
    prepare=prepare,
    finish=_summaries,
)
