"""One measurement in a process of its own (`python -m THIS`), so that its peak memory is its own."""

import time
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Annotated, Any

import torch

from fixformer.bench.process import answer
from fixformer.config.schema import Expect, Positive
from fixformer.models import fused
from fixformer.models.registry import create_model
from fixformer.models.video_transformer import VideoTransformer
from fixformer.runtime.machine import sgemm_gmacs
from fixformer.runtime.memory import limit_memory, peak_memory


@dataclass(frozen=True)
class ModelSpeedJob:
    """Forward, or forward and backward, of one model on one random clip.

    `chunked` forces inference in chunks on or off at any clip size; None leaves it to the model. `memory` is how many
    bytes it may take beside the program itself; None is no limit.
    """

    model: str
    frames: int
    size: int
    settings: dict[str, Any] = field(default_factory=dict)
    backward: bool = False
    threads: int = 2
    repeats: int = 2
    warm_up: bool = True
    chunked: bool | None = None
    memory: int | None = None


Repeated = Annotated[tuple[Positive, ...], Expect("one or more numbers more than 0", bool)]


@dataclass(frozen=True)
class ModelSpeed:
    """Seconds of each repeat, the machine's matrix-multiply rate around each, resident memory in bytes."""

    seconds: Repeated
    sgemm_gmacs: Repeated
    memory_before: int
    memory_peak: int


def measure(job: ModelSpeedJob) -> ModelSpeed:
    torch.set_num_threads(job.threads)
    if job.memory is not None:
        sgemm_gmacs(0)  # first, because libgomp ends the process if it has no memory to start its threads
        limit_memory(job.memory)
    torch.manual_seed(0)
    model = create_model(job.model, num_frames=job.frames, image_size=job.size, **job.settings).eval()
    if job.chunked is not None:
        assert isinstance(model, VideoTransformer)
        model.set_chunked_inference(job.chunked)
        fused.SMALLEST_BYTES = 0
    video = torch.randn(1, 3, job.frames, job.size, job.size)
    before = peak_memory()
    if job.warm_up:
        run_pass(model, video, job.backward)
    seconds, rates = [], [sgemm_gmacs()]
    for _ in range(job.repeats):
        start = time.perf_counter()
        run_pass(model, video, job.backward)
        seconds.append(time.perf_counter() - start)
        rates.append(sgemm_gmacs())
    # A machine's clock and its load change from second to second: each repeat is compared with its own moment.
    return ModelSpeed(tuple(seconds), tuple(sum(pair) / 2 for pair in pairwise(rates)), before, peak_memory())


def run_pass(model: torch.nn.Module, video: torch.Tensor, backward: bool) -> None:
    """Forward, or forward and backward without a step."""
    with torch.set_grad_enabled(backward):
        logits = model(video)
    if backward:
        logits.sum().backward()
        model.zero_grad(set_to_none=True)


if __name__ == "__main__":
    answer(ModelSpeedJob, lambda job: asdict(measure(job)))
