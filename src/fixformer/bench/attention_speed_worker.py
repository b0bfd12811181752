"""One kind of attention over growing sequences, in a process of its own (`python -m THIS`).

Shapes: one frame of S x S = N tokens, h heads, E head width.
"""

import ctypes
import gc
import json
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fixformer.config import ModelConfig
from fixformer.models.attention.module import Attention, build_attention
from fixformer.runtime.machine import sgemm_gmacs

MOST_REPEATS = 50


@dataclass(frozen=True)
class Job:
    """Sequences of `sides`² tokens, smallest first, through the attention that settings of our Transformer describe."""

    settings: dict[str, Any]
    sides: list[int]
    heads: int = 8
    head_dim: int = 64
    backward: bool = False
    threads: int = 1
    seconds: float = 0.5


@dataclass(frozen=True)
class Measured:
    """Seconds of each repeat, and the most memory the attention took beyond its inputs, in bytes."""

    side: int
    seconds: list[float]
    memory: int


def measure(job: Job) -> Iterator[Measured]:
    torch.set_num_threads(job.threads)
    _run(*_prepare(job, job.sides[0]), job.backward)  # the first call of all loads code, which is no one's memory
    for side in job.sides:
        attention, inputs = _prepare(job, side)
        before = _reset_peak()
        _run(attention, inputs, job.backward)
        memory = max(_status("VmHWM") - before, 0)
        yield Measured(side, _repeat(attention, inputs, job), memory)


def _prepare(job: Job, side: int) -> tuple[Attention, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    config = ModelConfig(embed_dim=job.heads * job.head_dim, num_heads=job.heads, **job.settings)
    config.validate()
    attention = build_attention(config.filled(), "space", (1, side, side)).train(job.backward)
    # Half of what randn gives: queries and keys as they come out of a LayerNorm and a projection.
    qkv = 0.5 * torch.randn(3, 1, 1, side, side, job.heads, job.head_dim)
    return attention, tuple(x.clone().requires_grad_(job.backward) for x in qkv)


def _run(attention: Attention, inputs: tuple[Tensor, ...], backward: bool) -> None:
    """All of an attention between its two projections, which are the same for every kind."""
    with torch.set_grad_enabled(backward):
        y_BTHWD = attention.between_projections(*inputs)
    if backward:
        y_BTHWD.backward(torch.ones_like(y_BTHWD))
        for x in (*inputs, *attention.parameters()):
            x.grad = None


def _repeat(attention: Attention, inputs: tuple[Tensor, ...], job: Job) -> list[float]:
    seconds: list[float] = []
    while not seconds or (sum(seconds) < job.seconds and len(seconds) < MOST_REPEATS):
        start = time.perf_counter()
        _run(attention, inputs, job.backward)
        seconds.append(time.perf_counter() - start)
    return seconds


def _reset_peak() -> int:
    """Give free memory back, forget the peak so far, and return what is in use."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)
    with suppress(OSError):  # Linux only; elsewhere lengths grow, so that the peak so far is the last one's
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _status(field: str) -> int:
    """A field of this process's memory in bytes; elsewhere than on Linux its peak so far."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    line = next(line for line in status.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    job = Job(**json.loads(sys.argv[1]))
    rows = [asdict(measured) for measured in measure(job)]
    print(json.dumps({"rows": rows, "sgemm_gmacs": sgemm_gmacs()}))
