"""One kind of attention over growing sequences, in a process of its own (`python -m THIS`).

Shapes: one frame of S x S = N tokens, h heads, E head width.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fixformer.bench.process import answer
from fixformer.config import ModelConfig
from fixformer.models.attention.module import Attention, build_attention
from fixformer.runtime.machine import sgemm_gmacs
from fixformer.runtime.memory import peak_memory, reset_peak_memory

MOST_REPEATS = 50  # of the shortest sequences: enough for a minimum


@dataclass(frozen=True)
class AttentionSpeedJob:
    """Sequences of `sides`² tokens, smallest first, through the attention that settings of our Transformer describe."""

    settings: dict[str, Any]
    sides: list[int]
    heads: int = 8
    head_dim: int = 64
    backward: bool = False
    threads: int = 1
    seconds: float = 0.5


@dataclass(frozen=True)
class AttentionSpeed:
    """Seconds of each repeat, and the most memory the attention took beyond its inputs, in bytes."""

    side: int
    seconds: list[float]
    memory: int


def measure(job: AttentionSpeedJob) -> Iterator[AttentionSpeed]:
    torch.set_num_threads(job.threads)
    # The first call loads code, which must not count as memory of the shortest sequence.
    _run(*_prepare(job, job.sides[0]), job.backward)
    for side in job.sides:
        attention, qkv_BTHWD = _prepare(job, side)
        before = reset_peak_memory()
        _run(attention, qkv_BTHWD, job.backward)
        memory = max(peak_memory() - before, 0)
        seconds: list[float] = []
        while not seconds or (sum(seconds) < job.seconds and len(seconds) < MOST_REPEATS):
            start = time.perf_counter()
            _run(attention, qkv_BTHWD, job.backward)
            seconds.append(time.perf_counter() - start)
        yield AttentionSpeed(side, seconds, memory)


def _prepare(job: AttentionSpeedJob, side: int) -> tuple[Attention, Tensor]:
    torch.manual_seed(0)
    config = ModelConfig(embed_dim=job.heads * job.head_dim, num_heads=job.heads, **job.settings)
    config.validate()
    attention = build_attention(config.filled(), "space", (1, side, side)).train(job.backward)
    # Only what differs between the kinds is measured: the module's own forward, its projections left out.
    attention.qkv = attention.proj = nn.Identity()  # type: ignore[assignment]
    # Half of what randn gives: queries and keys as they come out of a LayerNorm and a projection.
    qkv_BTHWD = 0.5 * torch.randn(1, 1, side, side, 3 * job.heads * job.head_dim)
    return attention, qkv_BTHWD.requires_grad_(job.backward)


def _run(attention: Attention, qkv_BTHWD: Tensor, backward: bool) -> None:
    with torch.set_grad_enabled(backward):
        y_BTHWD = attention(qkv_BTHWD)
    if backward:
        y_BTHWD.backward(torch.ones_like(y_BTHWD))
        for x in (qkv_BTHWD, *attention.parameters()):
            x.grad = None


if __name__ == "__main__":
    answer(
        AttentionSpeedJob,
        lambda job: {"rows": [asdict(measured) for measured in measure(job)], "sgemm_gmacs": sgemm_gmacs()},
    )
