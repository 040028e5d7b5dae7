"""An experiment as a declaration, and the one way to run it: read, resumed, or computed.

A finished table is named by everything that can change its numbers: weights, norm, parameters,
what else goes in (a text), and the code of the modules that the experiment imports. What has the
same identity is read, and never made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import pandas as pd
from filelock import FileLock

from ..checkpoints.model import OVModel
from .executors import Task
from .identity import PACKAGE, code_of
from .parts import Finished, Tables, compute_parts
from .results import provenance, read_all_if_whole, result_path, write_table

Identity = dict[str, Any]

#: A time in seconds since 1970: tables that were written before are made anew. For processes that
#: cannot be told otherwise: notebooks' kernels.
FORCE_VARIABLE = "SCALED_IDEMPOTENCE_FORCE"


class RunOptions(TypedDict, total=False):
    """How an experiment is run, which changes none of its numbers.

    Parameters
    ----------
    results_dir : str or Path, optional
        Write the tables as parquet into ``<results_dir>/<model>/``, or read them there if they
        are current. Until they are written each finished part is kept beside them, and an
        interrupted run goes on from those.
    progress : bool
        Show a bar; the default.
    executor : concurrent.futures.Executor, optional
        Its workers read and compute the parts. In-process if left out.
    force : bool
        Compute also what is current.
    """

    results_dir: str | Path | None
    progress: bool
    executor: Executor | None
    force: bool


@dataclass(frozen=True)
class Subject:
    """Whose numbers a table holds.

    Attributes
    ----------
    label : str
        Folder of the results.
    weights : str or mapping of str to str
        What identifies the weights.
    norm : str
    facts : mapping
        Entries of ``attrs``.
    """

    label: str
    weights: str | Mapping[str, str]
    norm: str
    facts: Mapping[str, object] = field(repr=False)

    @classmethod
    def of(cls, model: OVModel) -> Subject:
        """Make a model the subject."""
        facts = provenance(model)
        return cls(model.label, str(facts["weights"]), model.norm, facts)


@dataclass(frozen=True)
class Part:
    """What is computed at a time.

    Attributes
    ----------
    model : OVModel
    position : int or None
        Of the layer; None for a part of the prepared context.
    arguments : mapping
        Keyword arguments, further to the parameters.
    """

    model: OVModel
    position: int | None = None
    arguments: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """What there is to do, once it is certain that it must be done.

    Attributes
    ----------
    parts : sequence of Part
    remarks : mapping
        Further entries of ``attrs``. ``measured=False`` with a ``reason`` says of a table that it
        lacks what could not be had; it is current only for as long as the reason stays.
    context : object
        What `Experiment.prepare` gives, of this process; needed where parts are no layers.
    tables : mapping of str to DataFrame
        What the plan itself could make: further tables, or all where there are no parts.
    """

    parts: Sequence[Part]
    remarks: Mapping[str, object] = field(default_factory=dict)
    context: object = None
    tables: Tables = field(default_factory=dict)

    @classmethod
    def by_layer(cls, model: OVModel, **remarks: object) -> Plan:
        """Make each layer a part."""
        return cls([Part(model, position) for position in range(len(model))], remarks)


@dataclass(frozen=True)
class Experiment:
    """What an experiment is.

    Attributes
    ----------
    module : str
        Its ``__name__``, whose last part names the experiment. The code of this module and of those
        that it imports inside the package is a part of the tables' identity.
    part : callable
        Function of a module: takes `LayerFactors`, or what `prepare` gives, and by keyword exactly
        the parameters and the part's arguments; gives a table, or several by name.
    tables : tuple of str
        Names of the finished tables, and of their files; the experiment's own if left out.
    part_tables : tuple of str
        Names of a part's tables, where they are others.
    unit : str
        What a part is, for the bar.
    prepare : callable, optional
        Function of a module: takes the `OVModel` and the parameters, gives what all parts share. It
        is called once a process.
    finish : callable, optional
        Takes the tables of all parts and the parameters, gives the finished ones; what is in their
        ``attrs`` stays.
    """

    module: str
    part: Callable[..., pd.DataFrame | Tables]
    tables: tuple[str, ...] = ()
    part_tables: tuple[str, ...] = ()
    unit: str = "layer"
    prepare: Callable[..., object] | None = None
    finish: Callable[[Tables, Mapping[str, Any]], Tables] | None = None

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self.module.rsplit(".", 1)[-1]

    @property
    def table_names(self) -> tuple[str, ...]:
        """Names of the finished tables."""
        return self.tables or (self.name,)

    @property
    def kept_names(self) -> tuple[str, ...]:
        """Names of the tables of a part."""
        return self.part_tables or self.table_names

    def code(self) -> dict[str, str]:
        """Hash the modules that make the numbers."""
        return code_of(self.module.removeprefix(f"{PACKAGE}."))

    def identity(
        self, subject: Subject, parameters: Mapping[str, object], inputs: Mapping[str, object]
    ) -> Identity:
        """Name a finished table by all that can change its numbers; JSON values."""
        weights = subject.weights
        whole = {
            "weights": weights if isinstance(weights, str) else dict(weights),
            "norm": subject.norm,
            "parameters": dict(parameters),
            "inputs": dict(inputs),
            "code": self.code(),
        }
        return json.loads(json.dumps(whole))

    def table(
        self, model: OVModel, parameters: Mapping[str, object] | None = None, **options: Any
    ) -> pd.DataFrame:
        """Run an experiment of one table on a model; see `run`."""
        return self.run(model, parameters, **options)[self.name]

    def run(
        self,
        subject: OVModel | Subject,
        parameters: Mapping[str, object] | None = None,
        *,
        inputs: Mapping[str, object] | None = None,
        plan: Callable[[], Plan] | None = None,
        results_dir: str | Path | None = None,
        progress: bool = True,
        executor: Executor | None = None,
        force: bool = False,
    ) -> dict[str, pd.DataFrame]:
        """Read the tables, or compute them.

        Parameters
        ----------
        subject : OVModel or Subject
        parameters : mapping, optional
            Keyword arguments of every part; JSON values.
        inputs : mapping, optional
            What else the numbers depend on, and no function needs to be told; JSON values.
        plan : callable, optional
            Called if anything must be computed. A part for each of the model's layers if left out.
        results_dir, progress, executor, force
            As in `RunOptions`.

        Returns
        -------
        dict of str to DataFrame
            The same whether they were read or computed.

        Raises
        ------
        ScaledIdempotenceError
            If a worker died. What was finished is kept in `results_dir`.
        """
        parameters = dict(parameters or {})
        if not isinstance(subject, Subject):
            model, subject = subject, Subject.of(subject)
            plan = plan or (lambda: Plan.by_layer(model))
        assert plan is not None
        identity = self.identity(subject, parameters, inputs or {})
        if results_dir is None:
            return self._compute(subject, parameters, identity, plan(), None, progress, executor)
        folder = Path(results_dir) / subject.label
        parts = f".{self.name}-{_digest(identity)}-"
        current = None if force else self._current(results_dir, subject.label, identity)
        if current is None or not _measured(current):
            made = plan()
            if current is not None and _reason(current) != made.remarks.get("reason"):
                current = None
        if current is not None:
            # Who was killed just before the end leaves parts that nobody else will ask for.
            for left in folder.glob(f"{parts}*"):
                shutil.rmtree(left, ignore_errors=True)
            return current
        # Parts of another text, or of other reasons for what is lacking, are not this run's.
        kept = Finished(folder / (parts + _digest(made.remarks)), self.kept_names)
        tables = self._compute(subject, parameters, identity, made, kept, progress, executor)
        # Two runs with different parameters must not leave tables of which each has some.
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            for name, table in tables.items():
                path = result_path(results_dir, subject.label, name)
                write_table(table, path, scratch=kept.folder)
        kept.remove()
        return tables

    def _compute(
        self,
        subject: Subject,
        parameters: dict[str, object],
        identity: Identity,
        plan: Plan,
        kept: Finished | None,
        progress: bool,
        executor: Executor | None,
    ) -> dict[str, pd.DataFrame]:
        tasks = [
            Task(
                one.model,
                one.position,
                self.part,
                parameters | dict(one.arguments),
                self.prepare and (self.prepare, parameters, plan.context),
            )
            for one in plan.parts
        ]
        tables = dict(plan.tables)
        if tasks:
            title = f"{self.name} {subject.label}"
            tables |= compute_parts(
                tasks, self.kept_names, kept, title, self.unit, progress, executor
            )
            if self.finish:
                tables = dict(self.finish(tables, parameters))
        tables = {name: tables[name] for name in self.table_names}
        for table in tables.values():
            table.attrs = {
                **subject.facts,
                **parameters,
                **plan.remarks,
                **table.attrs,
                "identity": identity,
            }
        return tables

    def _current(
        self, results_dir: str | Path, label: str, identity: Identity
    ) -> dict[str, pd.DataFrame] | None:
        """Read the tables if all of them are there and have this identity."""
        paths = {name: result_path(results_dir, label, name) for name in self.table_names}
        since = float(os.environ.get(FORCE_VARIABLE, 0))
        if not all(path.is_file() and path.stat().st_mtime >= since for path in paths.values()):
            return None
        tables = read_all_if_whole(paths)
        if tables is None:
            return None
        same = all(table.attrs.get("identity") == identity for table in tables.values())
        return tables if same else None


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def _measured(tables: Tables) -> bool:
    return all(table.attrs.get("measured", True) for table in tables.values())


def _reason(tables: Tables) -> object:
    return next(iter(tables.values())).attrs.get("reason")


def differences(made: Identity, now: Identity) -> list[str]:
    """Say in which parts two identities differ.

    Parameters
    ----------
    made, now : dict
        From `Experiment.identity`; of a part that either lacks nothing is said.

    Returns
    -------
    list of str
        A phrase a difference, such as ``"code of linalg.closure"``.

    Examples
    --------
    >>> differences({"norm": "raw", "code": {"a": "1"}}, {"norm": "raw", "code": {"a": "2"}})
    ['code of a']
    """
    found = []
    for key, title in (("weights", "weights"), ("norm", "norm")):
        if key in made and key in now and made[key] != now[key]:
            found.append(title)
    for key, title in (("parameters", "parameter"), ("inputs", "input"), ("code", "code of")):
        if key in made and key in now:
            before, after = made[key], now[key]
            found += [
                f"{title} {name}"
                for name in sorted({*before, *after})
                if before.get(name) != after.get(name)
            ]
    return found
