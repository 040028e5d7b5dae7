"""Where layers are computed: here, or on whatever `concurrent.futures.Executor` there is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from ..checkpoints.model import OVModel
from ..checkpoints.origin import Origin
from ..errors import ScaledIdempotenceError

#: Address of a Dask scheduler, for processes that cannot be given an executor: notebooks' kernels.
DASK_VARIABLE = "SCALED_IDEMPOTENCE_DASK"


@cache
def dask_executor(address: str) -> Executor:
    """Connect to a Dask cluster.

    Parameters
    ----------
    address : str
        Of the scheduler, such as ``"tcp://10.0.0.1:8786"``. The workers need this package in the
        same version, and the model where this process has it.

    Returns
    -------
    Executor
        The cluster as an executor, for the ``executor=`` of every experiment. One connection a
        process and address.

    Raises
    ------
    ScaledIdempotenceError
        If Dask is not installed, or nothing answers at the address.
    """
    try:
        from distributed import Client
    except ImportError:
        raise ScaledIdempotenceError(
            "a Dask cluster needs distributed, which is not installed: "
            "pip install 'scaled-idempotence[cluster]'"
        ) from None
    try:
        return Client(address, timeout="10s", set_as_default=False).get_executor()
    except (OSError, ValueError) as error:
        raise ScaledIdempotenceError(
            f"no Dask scheduler answers at {address!r} ({error}); start one with `dask scheduler` "
            "and give its address, such as tcp://10.0.0.1:8786"
        ) from error


def executor_or_default(executor: Executor | None) -> Executor | None:
    """Give the executor that an experiment was not given.

    Parameters
    ----------
    executor : Executor or None

    Returns
    -------
    Executor or None
        The cluster that the environment variable ``SCALED_IDEMPOTENCE_DASK`` names, if it does.
    """
    if executor is None and (address := os.environ.get(DASK_VARIABLE)):
        return dask_executor(address)
    return executor


#: A function that makes what all parts of a model share, its parameters, and what it has made in
#: this process.
Preparation = tuple[Callable[..., object], Mapping[str, object], object]


@dataclass(frozen=True)
class Task:
    """A function to be applied to a layer, or to what was prepared of a model.

    Parameters
    ----------
    model : OVModel or Origin
        Other processes get the origin, and read the layer themselves.
    position : int or None
        Of the layer in the model; None for a function of what is prepared.
    part : callable
        Takes `LayerFactors`, or what is prepared, and the parameters. For other processes, a
        function of a module.
    parameters : mapping
        Keyword arguments.
    preparation : tuple, optional
        Of what is no layer.
    """

    model: OVModel | Origin
    position: int | None
    part: Callable[..., object]
    parameters: Mapping[str, object]
    preparation: Preparation | None = None

    def elsewhere(self, origin: Origin) -> Task:
        """Make this a task for another process, which prepares for itself."""
        preparation = self.preparation and (*self.preparation[:2], None)
        return replace(self, model=origin, preparation=preparation)

    def read(self) -> object:
        """Read the layer, or prepare the model."""
        if self.position is not None:
            model = self.model.open() if isinstance(self.model, Origin) else self.model
            return model[self.position]
        prepare, parameters, context = self.preparation
        if context is not None:
            return context
        return _prepared(prepare, self.model, tuple(parameters.items()))

    def score(self, layer: object) -> object:
        """Apply the function."""
        return self.part(layer, **self.parameters)

    def read_and_score(self) -> object:
        """Do both."""
        return self.score(self.read())


# A worker computes several parts of a model one after another.
@lru_cache(maxsize=1)
def _prepared(prepare: Callable[..., object], origin: Origin, parameters: tuple) -> object:
    return prepare(origin.open(), **dict(parameters))


def computed(tasks: Sequence[Task], executor: Executor | None) -> Iterator[tuple[int, object]]:
    """Compute tasks as they come to an end.

    Parameters
    ----------
    tasks : sequence of Task
    executor : Executor or None
        None is this process, unless the environment names a cluster: in order, and the next layer
        is read while one is computed.

    Yields
    ------
    number : int
        Of the task.
    result : object

    Raises
    ------
    ScaledIdempotenceError
        If a worker died.
    CheckpointError
        If other processes cannot open a model.
    """
    executor = executor_or_default(executor)
    return _here(tasks) if executor is None else _elsewhere(executor, tasks)


def _here(tasks: Sequence[Task]) -> Iterator[tuple[int, object]]:
    with ThreadPoolExecutor(1, "layer-reader") as reader:
        # Never more than two layers are in memory, so nothing here may hold on to a third.
        ahead = reader.submit(tasks[0].read) if tasks else None
        for number, task in enumerate(tasks):
            layer = ahead.result()
            ahead = reader.submit(tasks[number + 1].read) if number + 1 < len(tasks) else None
            result = task.score(layer)
            del layer
            yield number, result


def _elsewhere(executor: Executor, tasks: Sequence[Task]) -> Iterator[tuple[int, object]]:
    if not isinstance(executor, ThreadPoolExecutor):
        origins = {id(task.model): task.model.origin for task in tasks}
        tasks = [task.elsewhere(origins[id(task.model)]) for task in tasks]
    futures = {executor.submit(task.read_and_score): number for number, task in enumerate(tasks)}
    finished = 0
    try:
        for future in as_completed(futures):
            result = future.result()
            finished += 1
            yield futures[future], result
    except BrokenExecutor as error:
        raise ScaledIdempotenceError(
            f"a worker died ({error}). {finished} of {len(tasks)} parts were finished before; "
            "where results_dir= was given those are kept, and the same call goes on from them"
        ) from error
    finally:
        for future in futures:
            future.cancel()
