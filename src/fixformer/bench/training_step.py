"""Time and memory of a training step with activations kept or recomputed, and the share of time spent waiting for data.

Each case runs in a process of its own (`python -m THIS JOB`), so that its peak memory is its own.
"""

import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from fixformer.bench.process import answer, measure_apart
from fixformer.config.schema import PositiveInt, Threads, checked
from fixformer.errors import UserError
from fixformer.runtime.machine import describe_machine, sgemm_gmacs
from fixformer.runtime.memory import peak_memory

ONE_EPOCH: dict[str, Any] = {
    "epochs": 1,
    "stages": "",
    "warmup_epochs": 0,
    "eval.every": 0,
    "views": "1x1",
    "cache": "auto",
}
ROWS_SKIPPED = 1  # the first row of a log includes the start of the workers


@dataclass(frozen=True)
class TrainingStepJob:
    """Steps of one model on random clips."""

    model: str
    frames: int
    size: int
    batch: int
    threads: int
    checkpointing: bool
    repeats: int


@dataclass(frozen=True)
class TrainingStep:
    """Seconds of each step; resident memory in bytes before the first step, and its peak."""

    seconds: list[float]
    memory_before: int
    memory_peak: int
    sgemm_gmacs: float


@checked
def bench_train(
    name: str = "fixformer_base",
    *,
    frames: PositiveInt = 16,
    size: PositiveInt = 224,
    batch: PositiveInt = 1,
    threads: Threads = 2,
    repeats: PositiveInt = 1,
) -> dict[str, Any]:
    """A whole step (forward, backward, SGD), activations kept and recomputed."""
    machine = describe_machine(threads)
    rows = []
    for checkpointing in (False, True):
        job = TrainingStepJob(name, frames, size, batch, threads, checkpointing, repeats)
        measured = TrainingStep(**measure_apart("fixformer.bench.training_step", job, f"{name} at {frames}x{size}"))
        rows.append({"checkpointing": checkpointing, **asdict(measured), "seconds": min(measured.seconds)})
    clip = {"model": name, "frames": frames, "size": size, "batch": batch, "dtype": "float32", "optimiser": "sgd"}
    return {**clip, "machine": machine, "rows": rows}


def measure(job: TrainingStepJob) -> TrainingStep:
    """The job, in this process."""
    from fixformer.config import OptimConfig
    from fixformer.models.registry import create_model
    from fixformer.training.optim import build_optimiser

    torch.set_num_threads(job.threads)
    torch.manual_seed(0)
    model = create_model(job.model, num_frames=job.frames, image_size=job.size).train()
    model.set_grad_checkpointing(job.checkpointing)
    optimiser = build_optimiser(model, OptimConfig(optimiser="sgd"))
    video_BCTHW = torch.randn(job.batch, 3, job.frames, job.size, job.size)
    before, seconds = peak_memory(video_BCTHW.device), []
    for _ in range(1 + job.repeats):
        start = time.perf_counter()
        model(video_BCTHW).logsumexp(-1).mean().backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
    return TrainingStep(seconds[1:], before, peak_memory(video_BCTHW.device), sgemm_gmacs(0.5))


def check_data(recipe: str, data: str | Path) -> None:
    """Raise a `UserError` if `bench_data_wait` cannot train on this."""
    from fixformer.training.run import load_checked_index, resolve_config

    load_checked_index(resolve_config(recipe, data=data, **ONE_EPOCH))


def bench_data_wait(recipe: str, data: str | Path, **overrides: Any) -> dict[str, Any]:
    """The share of its time that a run of one epoch waits for data, with the cache filled."""
    from fixformer.training.log import read_log
    from fixformer.training.run import resolve_config, train

    config = resolve_config(recipe, data=data, **ONE_EPOCH)
    with tempfile.TemporaryDirectory() as folder:
        result = train(config, output=Path(folder) / "run", **overrides)
        rows = [row for row in read_log(result.output / "log.jsonl") if row["kind"] == "step"][ROWS_SKIPPED:]
    if not rows:
        raise UserError(f"{data} is too small to measure: one epoch has {result.steps} steps; lower batch_size.")
    return {
        "recipe": recipe,
        "steps": result.steps,
        "data_wait": sum(row["data_wait"] for row in rows) / len(rows),
        "clips_per_second": sum(row["clips_per_second"] for row in rows) / len(rows),
        "workers": result.config.data.workers,
    }


if __name__ == "__main__":
    answer(TrainingStepJob, lambda job: asdict(measure(job)))
