"""One measurement in a process of its own (`python -m THIS`), so that its peak memory is its own."""

import json
import sys
import time
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import torch

from fixformer.models.registry import create_model
from fixformer.runtime.machine import sgemm_gmacs
from fixformer.runtime.memory import peak_memory


@dataclass(frozen=True)
class Job:
    """Forward, or forward and backward, of one model on one random clip."""

    model: str
    frames: int
    size: int
    settings: dict[str, Any] = field(default_factory=dict)
    backward: bool = False
    threads: int = 2
    repeats: int = 2
    warm_up: bool = True


@dataclass(frozen=True)
class Measured:
    """Seconds of each repeat, the machine's matrix-multiply rate around each, resident memory in bytes."""

    seconds: list[float]
    sgemm_gmacs: list[float]
    memory_before: int
    memory_peak: int


def measure(job: Job) -> Measured:
    torch.set_num_threads(job.threads)
    torch.manual_seed(0)
    model = create_model(job.model, num_frames=job.frames, image_size=job.size, **job.settings).eval()
    video = torch.randn(1, 3, job.frames, job.size, job.size)
    before = peak_memory()
    if job.warm_up:
        _run(model, video, job.backward)
    seconds, rates = [], [sgemm_gmacs()]
    for _ in range(job.repeats):
        start = time.perf_counter()
        _run(model, video, job.backward)
        seconds.append(time.perf_counter() - start)
        rates.append(sgemm_gmacs())
    # A machine's clock and its neighbours change from second to second: each repeat is held against its own moment.
    return Measured(seconds, [sum(pair) / 2 for pair in pairwise(rates)], before, peak_memory())


def _run(model: torch.nn.Module, video: torch.Tensor, backward: bool) -> None:
    with torch.set_grad_enabled(backward):
        logits = model(video)
    if backward:
        logits.sum().backward()
        model.zero_grad(set_to_none=True)


if __name__ == "__main__":
    print(json.dumps(asdict(measure(Job(**json.loads(sys.argv[1]))))))
