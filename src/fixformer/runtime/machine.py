"""The machine a speed was measured on: its processor, its load and its matrix-multiply rate."""

import os
import platform
import time
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
    out = torch.mm(a, a)
    products, start = 0, time.perf_counter()
    while time.perf_counter() < start + seconds:
        torch.mm(a, a, out=out)
        products += 1
    return products * SGEMM_SIZE**3 / (time.perf_counter() - start) / 1e9
