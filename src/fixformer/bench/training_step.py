"""Time and memory of a training step, ours beside what it is compared with, activations kept or recomputed; and the
share of time spent waiting for data.

Each step is measured in a process of its own (`python -m THIS JOB`), so that its peak memory is its own.
"""

import os
import re
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch

from fixformer.bench.model_speed import TWIN, check_twin
from fixformer.bench.process import answer, measure_apart
from fixformer.config.schema import Expect, PositiveInt, Threads, checked
from fixformer.errors import UserError
from fixformer.models.cost import cost
from fixformer.models.video_transformer import VideoTransformer
from fixformer.runtime.machine import describe_machine, sgemm_gmacs
from fixformer.runtime.memory import peak_memory
from fixformer.runtime.progress import counting

CLIPS = ("16x224", "32x224", "16x336")
Clips = Annotated[tuple[str, ...], Expect("one or more of FRAMESxSIZE", bool)]
# The same backbone each time.
VARIANTS: dict[str, dict[str, Any]] = {
    "ours": {},
    "softmax": TWIN,
    "linear": {"fixation": "none", "association": "none"},
    "ours, autograd": {},
    "released": {"reading": "released"},
}
# Without the backward passes written by hand, activations kept: the released network as its authors run it.
BY_AUTOGRAD = ("ours, autograd", "released")
COMPARED = ("seconds", "seconds_first", "memory_peak")
STEPS = 3  # the first takes its memory from the system, the others have it
BACKWARD_MACS = 2  # of a forward pass: one product for the inputs and one for the weights

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
    """Steps of one model on random clips; `fused` as in `models/fused.py`."""

    model: str
    frames: int
    size: int
    batch: int
    threads: int
    checkpointing: bool
    repeats: int
    settings: dict[str, Any] = field(default_factory=dict)
    fused: bool = True


@dataclass(frozen=True)
class TrainingStep:
    """Seconds of each step; resident memory in bytes before the first step, and its peak; the machine's rate of matrix
    products after them."""

    seconds: list[float]
    memory_before: int
    memory_peak: int
    sgemm_gmacs: float


class Case(NamedTuple):
    """A row of the table."""

    frames: int
    size: int
    variant: str
    checkpointing: bool


@checked
def bench_train(
    name: str = "fixformer_base",
    *,
    clips: Clips = CLIPS,
    batch: PositiveInt = 1,
    threads: Threads = 2,
    rounds: PositiveInt = 1,
) -> dict[str, Any]:
    """Whole steps (forward, backward, SGD); every row once in each round, the best step of each counts.

    The first step of each process is told apart: it waits for the system to give it memory, and those after it do not.
    """
    check_twin(name)
    cases = _cases([parse_clip(clip) for clip in clips])
    machine = describe_machine(threads)
    measured: dict[Case, list[TrainingStep]] = {case: [] for case in cases}
    with counting("", rounds * len(cases)) as progress:
        for case in cases * rounds:
            progress.begin(f"{case.variant} {case.frames}x{case.size}")
            measured[case].append(_measure_apart(name, case, batch, threads))
            progress.advance()
    machine["load_average_after"] = os.getloadavg()[0]
    rows = [_row(case, measured[case], _step_gmacs(name, case, batch)) for case in cases]
    result = {"model": name, "batch": batch, "dtype": "float32", "optimiser": "sgd", "rounds": rounds}
    return {**result, "machine": machine, "rows": rows, "ratios": _ratios(rows)}


def parse_clip(clip: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,9})x(\d{1,9})", clip)
    if match is None:
        raise UserError(f"clip {clip!r}: expected FRAMESxSIZE, such as {CLIPS[0]}.")
    return int(match[1]), int(match[2])


def _cases(clips: list[tuple[int, int]]) -> list[Case]:
    """Neighbours are compared, so they are measured one after the other."""
    compared = [variant for variant in VARIANTS if variant not in BY_AUTOGRAD]
    rows = [Case(*clip, variant, recomputed) for clip in clips for recomputed in (False, True) for variant in compared]
    return [*rows, *(Case(*clips[0], variant, False) for variant in BY_AUTOGRAD)]


def _measure_apart(name: str, case: Case, batch: int, threads: int) -> TrainingStep:
    job = TrainingStepJob(
        *(name, case.frames, case.size, batch, threads, case.checkpointing),
        repeats=STEPS,
        settings=VARIANTS[case.variant],
        fused=case.variant not in BY_AUTOGRAD,
    )
    what = f"{name} at {case.frames}x{case.size}"
    return TrainingStep(**measure_apart("fixformer.bench.training_step", job, what))


def _step_gmacs(name: str, case: Case, batch: int) -> float:
    """Billions of multiply-accumulates of a step whose activations are kept."""
    forward = cost(name, case.frames, case.size, **VARIANTS[case.variant]).executed_macs
    return (1 + BACKWARD_MACS) * batch * forward / 1e9


def _row(case: Case, measured: list[TrainingStep], gmacs: float) -> dict[str, Any]:
    steady = [second for one in measured for second in one.seconds[1:]]
    shares = [gmacs / second / one.sgemm_gmacs for one in measured for second in one.seconds[1:]]
    return {
        **case._asdict(),
        "gmacs": gmacs,
        "seconds": min(steady),
        "seconds_first": min(one.seconds[0] for one in measured),
        "seconds_all": [one.seconds for one in measured],
        "share_of_sgemm": None if case.checkpointing else statistics.median(shares),
        "memory_before": min(one.memory_before for one in measured),
        "memory_peak": min(one.memory_peak for one in measured),
        "sgemm_gmacs": max(one.sgemm_gmacs for one in measured),
    }


def _ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What each row takes as a multiple of ours on the same clips, activations kept or recomputed alike."""
    clip = ("frames", "size", "checkpointing")
    ours = {tuple(row[key] for key in clip): row for row in rows if row["variant"] == "ours"}
    return [
        {
            **{key: row[key] for key in (*clip, "variant")},
            **{key: row[key] / ours[tuple(row[k] for k in clip)][key] for key in COMPARED},
        }
        for row in rows
        if row["variant"] != "ours"
    ]


def measure(job: TrainingStepJob) -> TrainingStep:
    """The job, in this process. What is first used is loaded by a step on a small clip."""
    from fixformer.config import OptimConfig
    from fixformer.models.registry import create_model
    from fixformer.training.optim import build_optimiser

    torch.set_num_threads(job.threads)
    torch.manual_seed(0)
    model = create_model(job.model, num_frames=job.frames, image_size=job.size, **job.settings).train()
    model.set_grad_checkpointing(job.checkpointing)
    if isinstance(model, VideoTransformer):
        model.set_fused_training(job.fused)
    optimiser = build_optimiser(model, OptimConfig(optimiser="sgd"))
    video_BCTHW = torch.randn(job.batch, 3, job.frames, job.size, job.size)
    before, seconds = peak_memory(video_BCTHW.device), []
    for i in range(1 + job.repeats):
        start = time.perf_counter()
        model(video_BCTHW if i else video_BCTHW[:, :, :2]).logsumexp(-1).mean().backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
    return TrainingStep(seconds[1:], before, peak_memory(video_BCTHW.device), sgemm_gmacs(0.5))


def check_data(recipe: str, data: str | Path) -> None:
    """Raise a `UserError` if `bench_data_wait` cannot train on this."""
    from fixformer.training.request import load_checked_index, resolve_config

    load_checked_index(resolve_config(recipe, data=data, **ONE_EPOCH))


def bench_data_wait(recipe: str, data: str | Path, **overrides: Any) -> dict[str, Any]:
    """The share of its time that a run of one epoch waits for data, with the cache filled."""
    from fixformer.training.log import read_log
    from fixformer.training.request import resolve_config
    from fixformer.training.run import train

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
