"""The machine a speed was measured on: its processor, its load and its matrix-multiply rate."""

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import fixformer
from fixformer.runtime.openmp import openmp_settings
from fixformer.runtime.provenance import source_commit

# Large enough to reach the peak rate of a few cores, small enough for several products in half a second.
SGEMM_SIZE = 2048


def describe_machine(threads: int) -> dict[str, Any]:
    """What must be reported beside every speed."""
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "threads": threads,
        "load_average": os.getloadavg()[0],
        "openmp": openmp_settings(),
        "torch": torch.__version__,
        "fixformer": fixformer.__version__,
        "commit": source_commit(),
        "date": time.strftime("%Y-%m-%d"),
    }


def cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def sgemm_gmacs(seconds: float = 0.5) -> float:
    """The rate of float32 matrix products the machine sustains now, in billions of multiply-accumulates per second."""
    a = torch.randn(SGEMM_SIZE, SGEMM_SIZE)
    out = torch.empty_like(a)
    return billions_per_second(lambda: torch.mm(a, a, out=out), SGEMM_SIZE**3, seconds)


def billions_per_second(run: Callable[[], Any], amount: float, seconds: float) -> float:
    """The rate of calls that do `amount` of something each, repeated for so many seconds after a first one."""
    run()
    calls, start = 0, time.perf_counter()
    while time.perf_counter() < start + seconds:
        run()
        calls += 1
    return calls * amount / (time.perf_counter() - start) / 1e9
