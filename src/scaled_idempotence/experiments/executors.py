"""Where layers are computed: here, or on whatever `concurrent.futures.Executor` there is."""

from __future__ import annotations

import os
from concurrent.futures import Executor
from functools import cache

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
