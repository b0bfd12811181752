"""`torch.compile` against the model as it is, for training and inference: seconds, and the time to compile.

Each measurement runs in a process of its own (`python -m THIS JOB`), with an empty cache of compiled code.
"""

import os
import tempfile
import time
from dataclasses import asdict, dataclass
from typing import Any

import torch

from fixformer.bench.model_speed_worker import run_pass
from fixformer.bench.process import answer, measure_apart
from fixformer.bench.training_step import Clips, parse_clip
from fixformer.config.schema import PositiveInt, Threads, checked
from fixformer.runtime.machine import describe_machine
from fixformer.runtime.memory import peak_memory
from fixformer.runtime.progress import counting


@dataclass(frozen=True)
class CompileJob:
    """Passes of one model on one random clip."""

    model: str
    frames: int
    size: int
    batch: int
    threads: int
    training: bool
    compile: bool
    repeats: int


@dataclass(frozen=True)
class Compiled:
    """Seconds of the first pass, which compiles, and of each that follows."""

    first: float
    seconds: list[float]
    memory_peak: int


@checked
def bench_compile(
    name: str = "fixformer_base",
    *,
    clips: Clips = ("16x224",),
    batch: PositiveInt = 1,
    threads: Threads = 2,
    repeats: PositiveInt = 2,
) -> dict[str, Any]:
    """Forward, and forward with backward, compiled and not."""
    sizes = [parse_clip(clip) for clip in clips]
    cases = [(*size, training, compiled) for size in sizes for training in (False, True) for compiled in (False, True)]
    machine, rows = describe_machine(threads), []
    with counting("", len(cases)) as progress:
        for frames, size, training, compiled in cases:
            progress.begin(f"{frames}x{size}, {'training' if training else 'inference'}{', compiled' * compiled}")
            job = CompileJob(name, frames, size, batch, threads, training, compiled, repeats)
            rows.append({"frames": frames, "size": size, "training": training, **_measure_apart(job)})
            progress.advance()
    machine["load_average_after"] = os.getloadavg()[0]
    return {"model": name, "batch": batch, "dtype": "float32", "machine": machine, "rows": rows}


def _measure_apart(job: CompileJob) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder}
        what = f"{job.model} at {job.frames}x{job.size}"
        found = Compiled(**measure_apart("fixformer.bench.compiled", job, what, environment))
    best = min(found.seconds)
    extra = max(0.0, found.first - best) if job.compile else 0.0
    return {"compiled": job.compile, "seconds": best, "compile_seconds": extra, "memory_peak": found.memory_peak}


def measure(job: CompileJob) -> Compiled:
    """The job, in this process."""
    from fixformer.models.registry import create_model

    torch.set_num_threads(job.threads)
    torch.manual_seed(0)
    model = create_model(job.model, num_frames=job.frames, image_size=job.size).train(job.training)
    if job.compile:
        model.compile()
    video_BCTHW = torch.randn(job.batch, 3, job.frames, job.size, job.size)
    seconds = []
    for _ in range(1 + job.repeats):
        start = time.perf_counter()
        run_pass(model, video_BCTHW, job.training)
        seconds.append(time.perf_counter() - start)
    return Compiled(seconds[0], seconds[1:], peak_memory())


if __name__ == "__main__":
    answer(CompileJob, lambda job: asdict(measure(job)))
