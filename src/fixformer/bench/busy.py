"""Training while another process keeps one core busy: how much of its speed is left, by the way threads wait.

Each measurement runs in a process of its own (`python -m THIS JOB`), because OpenMP reads its settings once.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from fixformer.bench.process import answer, measure_apart
from fixformer.config.schema import Positive, PositiveInt, Threads, checked
from fixformer.runtime.machine import describe_machine
from fixformer.runtime.openmp import limit_spinning
from fixformer.runtime.parent import kill_with_parent
from fixformer.runtime.progress import counting

LABELS = 12  # classes of the set of the recipe
BURN = "while True: pass"


@dataclass(frozen=True)
class BusyJob:
    """Steps of the recipe `demo` on random clips, for so many seconds."""

    threads: int
    seconds: float


@checked
def bench_busy(threads: Threads = 2, seconds: Positive = 8.0, rounds: PositiveInt = 3) -> dict[str, Any]:
    """Clips per second, quiet and with one busy core, with the limit on spinning and without; best of all rounds."""
    machine = describe_machine(threads)
    environments = {"limited": _environment(True), "libgomp's own": _environment(False)}
    cases = [(spinning, is_busy) for spinning in environments for is_busy in (False, True)]
    measured: dict[tuple[str, bool], list[float]] = {case: [] for case in cases}
    with counting("", rounds * len(cases)) as progress:
        for spinning, is_busy in cases * rounds:
            progress.begin(f"spinning {spinning}, {'busy' if is_busy else 'quiet'}")
            with _busy_core() if is_busy else nullcontext():
                rate = _measure_apart(BusyJob(threads, seconds), environments[spinning])
            measured[spinning, is_busy].append(rate)
            progress.advance()
    machine["load_average_after"] = os.getloadavg()[0]
    rows = [_row(name, environments[name], measured[name, False], measured[name, True]) for name in environments]
    return {"recipe": "demo", "seconds": seconds, "rounds": rounds, "machine": machine, "rows": rows}


def _environment(limited: bool) -> dict[str, str]:
    """This process's environment, without what it says about waiting."""
    plain = {name: x for name, x in os.environ.items() if not name.startswith("GOMP_") and name != "OMP_WAIT_POLICY"}
    if limited:
        limit_spinning(plain)
    return plain


def _row(name: str, environment: Mapping[str, str], quiet: list[float], busy: list[float]) -> dict[str, Any]:
    return {
        "spinning": name,
        "spin_count": environment.get("GOMP_SPINCOUNT"),
        "quiet": max(quiet),
        "busy": max(busy),
        "kept": max(busy) / max(quiet),
        "quiet_all": quiet,
        "busy_all": busy,
    }


def _measure_apart(job: BusyJob, environment: Mapping[str, str]) -> float:
    return measure_apart("fixformer.bench.busy", job, "training", environment)["clips_per_second"]


@contextmanager
def _busy_core() -> Iterator[None]:
    burning = subprocess.Popen([sys.executable, "-c", BURN], preexec_fn=kill_with_parent)  # noqa: PLW1509 (no threads)
    try:
        yield
    finally:
        burning.kill()
        burning.wait()


def measure(job: BusyJob) -> dict[str, float]:
    """The job, in this process."""
    from fixformer.config.recipes import get_recipe
    from fixformer.models.registry import create_model
    from fixformer.training.optim import build_optimiser

    torch.set_num_threads(job.threads)
    torch.manual_seed(0)
    config = get_recipe("demo")
    assert config.model is not None
    frames, size = config.clip.frames, config.clip.size
    model = create_model(
        config.model, num_classes=LABELS, num_frames=frames, image_size=size, **config.model_settings
    ).train()
    optimiser = build_optimiser(model, config.optim)
    video_BCTHW = torch.randn(config.batch_size, 3, frames, size, size)
    steps, start = -1, 0.0  # the first step warms up
    while steps < 1 or time.perf_counter() < start + job.seconds:
        model(video_BCTHW).logsumexp(-1).mean().backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        steps += 1
        start = start if steps else time.perf_counter()
    return {"clips_per_second": steps * config.batch_size / (time.perf_counter() - start)}


if __name__ == "__main__":
    answer(BusyJob, measure)
