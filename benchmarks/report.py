"""What every benchmark shares: timing in turns, and the one file that all of them write.

``benchmarks/results.json`` has a section a benchmark and says on which machine each was measured.
It is committed, and the book's page on cost is made of it.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

import torch

from scaled_idempotence.files import replacing

RESULTS = Path(__file__).with_name("results.json")


def machine() -> dict[str, str | int]:
    """Describe where and when a figure was measured."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        cpu = platform.processor() or platform.machine()
    return {
        "cpu": cpu,
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": version("torch"),
        "package": version("scaled-idempotence"),
        "date": datetime.date.today().isoformat(),
    }


def write(section: str, data: Mapping[str, object]) -> None:
    """Put a benchmark's figures into the file, whole or not at all."""
    content = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    content[section] = {"machine": machine(), **data}
    with replacing(RESULTS) as unfinished:
        unfinished.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


def seconds(function: Callable[[], object]) -> float:
    """Time one call."""
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def in_turns(functions: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Least time of each function, which whatever else runs on the machine disturbs least.

    They take turns, so that each has the same chance of a quiet moment; each is called once before,
    which pays for thread pools and first pages.
    """
    for function in functions.values():
        function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            times[name].append(seconds(function))
    return {name: min(found) for name, found in times.items()}


def peak_of(command: list[str], **environment: str) -> int:
    """Peak resident bytes of a process that prints it as its last word."""
    # One arena: how much free memory malloc keeps back is no property of the survey.
    environment = os.environ | {"MALLOC_ARENA_MAX": "1"} | environment
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return int(found.stdout.split()[-1])


def peak_so_far() -> int:
    """Peak resident bytes of this process, on Linux.

    Not `resource.getrusage`, whose peak a process inherits from the one that started it.
    """
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if "VmHWM" in line).split()[1])
