"""Training while another process keeps one core busy: how much of its speed is left, by the way threads wait, and with
one process of one thread for each core, which `train` prefers.

Each measurement runs in processes of its own (`python -m THIS JOB`), because OpenMP reads its settings once.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fixformer.bench.process import answer, measure_apart
from fixformer.config.schema import Positive, PositiveInt, Threads, checked
from fixformer.runtime.distributed import Seat, World, join_world
from fixformer.runtime.machine import describe_machine
from fixformer.runtime.openmp import limit_spinning
from fixformer.runtime.parent import kill_with_parent
from fixformer.runtime.progress import counting

LABELS = 12  # classes of the set of the recipe
BURN = "while True: pass"


@dataclass(frozen=True)
class BusyJob:
    """Steps of the recipe `demo` on random clips, for so many seconds; `seat` is its place among several processes."""

    threads: int
    seconds: float
    seat: dict[str, Any] | None = None


@dataclass(frozen=True)
class Way:
    """How many processes share the threads, and whether OpenMP's spinning is limited."""

    processes: int
    limited: bool

    def environment(self) -> dict[str, str]:
        """This process's environment, without what it says about waiting."""
        names = [name for name in os.environ if not name.startswith("GOMP_") and name != "OMP_WAIT_POLICY"]
        plain = {name: os.environ[name] for name in names}
        if self.limited:
            limit_spinning(plain)
        return plain


@checked
def bench_busy(threads: Threads = 2, seconds: Positive = 8.0, rounds: PositiveInt = 3) -> dict[str, Any]:
    """Clips per second, quiet and with one busy core, of every way to use the threads; best of all rounds."""
    machine = describe_machine(threads)
    ways = [Way(1, True), Way(1, False), *([Way(threads, True)] if threads > 1 else [])]
    cases = [(way, is_busy) for way in ways for is_busy in (False, True)]
    measured: dict[tuple[Way, bool], list[float]] = {case: [] for case in cases}
    with counting("", rounds * len(cases)) as progress:
        for way, is_busy in cases * rounds:
            progress.begin(f"{way.processes} x {threads // way.processes}, {'busy' if is_busy else 'quiet'}")
            with _busy_core() if is_busy else nullcontext():
                rate = _measure_apart(way, BusyJob(threads // way.processes, seconds))
            measured[way, is_busy].append(rate)
            progress.advance()
    machine["load_average_after"] = os.getloadavg()[0]
    rows = [_row(way, threads // way.processes, measured[way, False], measured[way, True]) for way in ways]
    return {"recipe": "demo", "seconds": seconds, "rounds": rounds, "machine": machine, "rows": rows}


def _row(way: Way, threads: int, quiet: list[float], busy: list[float]) -> dict[str, Any]:
    return {
        "processes": way.processes,
        "threads": threads,
        "spin_count": way.environment().get("GOMP_SPINCOUNT"),
        "quiet": max(quiet),
        "busy": max(busy),
        "kept": max(busy) / max(quiet),
        "quiet_all": quiet,
        "busy_all": busy,
    }


def _measure_apart(way: Way, job: BusyJob) -> float:
    """Clips per second of all processes together."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(way.processes) as pool:
        meeting = str(Path(folder) / "meeting")
        seats = [asdict(Seat(rank, way.processes, meeting)) for rank in range(way.processes)]
        jobs = [replace(job, seat=seat) for seat in seats] if way.processes > 1 else [job]
        environment = {**way.environment(), "OMP_NUM_THREADS": str(job.threads)}
        found = pool.map(lambda one: measure_apart("fixformer.bench.busy", one, "training", environment), jobs)
        return sum(answer["clips_per_second"] for answer in found)


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
    torch.set_num_threads(job.threads)
    with join_world("cpu", Seat(**job.seat) if job.seat else None) as world:
        return {"clips_per_second": _train(world, job.seconds)}


def _train(world: World, seconds: float) -> float:
    """Clips of this process per second. All take the same number of steps: each of them waits for the others."""
    from fixformer.config.recipes import get_recipe
    from fixformer.training.initialise import build_model
    from fixformer.training.learner import Learner

    torch.manual_seed(0)
    config = get_recipe("demo")
    learner = Learner(build_model(config, LABELS).train(), config, world)
    clips = config.batch_size // world.size
    video_BCTHW = torch.randn(clips, 3, config.clip.frames, config.clip.size, config.clip.size)
    steps, start, is_over = -1, 0.0, False  # the first step warms up
    while steps < 1 or not is_over:
        learner.forward(video_BCTHW).logsumexp(-1).mean().backward()
        learner.apply_gradients(max(steps, 0))
        steps += 1
        start = start if steps else time.perf_counter()
        (is_over,) = world.any(time.perf_counter() > start + seconds)
    return steps * clips / (time.perf_counter() - start)


if __name__ == "__main__":
    answer(BusyJob, measure)
