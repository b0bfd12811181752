"""Speed and memory of a model against its softmax twin and against the machine's own matrix-multiply rate."""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fixformer.bench.model_speed_worker import ModelSpeed, ModelSpeedJob
from fixformer.bench.process import measure_apart
from fixformer.config.schema import PositiveInt, PositiveInts, Threads, checked, load
from fixformer.errors import UserError
from fixformer.models.cost import Cost, cost
from fixformer.models.registry import list_settings
from fixformer.runtime.machine import describe_machine
from fixformer.runtime.progress import counting

# The twin keeps the backbone and has softmax attention alone: at 16x224 both cost 254 GFLOPs.
TWIN: dict[str, Any] = {"attention": "softmax", "fixation": "none", "association": "none"}
VARIANTS: dict[str, dict[str, Any]] = {"ours": {}, "softmax": TWIN}
# A pass of more multiply-accumulates takes over 7 seconds on 2 threads: long enough to run it once, without a warm-up.
LONG_MACS = 0.7e12


class Case(NamedTuple):
    """What is timed: forward, or forward and backward, of one variant on one clip size."""

    frames: int
    size: int
    backward: bool
    variant: str


@checked
def bench_model(
    name: str = "fixformer_base",
    frames: PositiveInts = (16, 32, 64, 96),
    sizes: PositiveInts = (224, 336, 448),
    threads: Threads = 2,
    rounds: PositiveInt = 2,
) -> dict[str, Any]:
    """Forward at every size, forward and backward at the first; ours and twin in turn, each in its own process."""
    check_twin(name)
    grid = [(count, size, False) for size in sizes for count in frames] + [(frames[0], sizes[0], True)]
    cases = [Case(*point, variant) for point in grid for variant in VARIANTS]
    costs = {case: cost(name, case.frames, case.size, **VARIANTS[case.variant]) for case in cases}
    is_long = {case: costs[case].executed_macs > LONG_MACS for case in cases}
    turns = [case for turn in range(rounds) for case in cases if turn == 0 or not is_long[case]]
    machine = describe_machine(threads)
    measured: dict[Case, list[ModelSpeed]] = {case: [] for case in cases}
    with counting("", len(turns)) as progress:
        for case in turns:
            progress.begin(f"{case.variant} {case.frames}x{case.size}")
            once = is_long[case] or case.backward
            job = ModelSpeedJob(
                *(name, case.frames, case.size, VARIANTS[case.variant], case.backward, threads),
                repeats=1 if once else 3,
                warm_up=not is_long[case],
            )
            measured[case].append(measure_model(job))
            progress.advance()
    rows = [_row(case, costs[case], measured[case]) for case in cases]
    return {"model": name, "dtype": "float32", "batch": 1, "machine": machine, "rows": rows, "slope": _slopes(rows)}


def check_twin(name: str) -> None:
    """Raise a `UserError` for a model whose attention cannot be exchanged."""
    if not TWIN.keys() <= set(list_settings(name)):
        raise UserError(f"{name} has no softmax twin to compare with; expected one of ours, such as fixformer_base.")


def repeats_of(macs: float) -> dict[str, Any]:
    """How often one process runs a pass of so many multiply-accumulates."""
    return {"repeats": 1, "warm_up": False} if macs > LONG_MACS else {"repeats": 3, "warm_up": True}


def measure_model(job: ModelSpeedJob) -> ModelSpeed:
    """One job in a process of its own."""
    what = f"{job.model} at {job.frames}x{job.size}"
    return load(ModelSpeed, measure_apart("fixformer.bench.model_speed_worker", job, what))


def summarise(measured: Sequence[ModelSpeed]) -> dict[str, Any]:
    """The best and the median of all repeats, and the most memory any of them took."""
    seconds = [second for one in measured for second in one.seconds]
    return {
        "seconds": min(seconds),
        "seconds_median": statistics.median(seconds),
        "repeats": len(seconds),
        "sgemm_gmacs_per_second": statistics.median(rate for one in measured for rate in one.sgemm_gmacs),
        "peak_memory_bytes": max(one.memory_peak for one in measured),
        "memory_before_bytes": min(one.memory_before for one in measured),
    }


def share_of_sgemm(macs: float, measured: Sequence[ModelSpeed]) -> float:
    """The rate of a pass's multiply-accumulates as a share of the rate of matrix products around it."""
    shares = (
        macs / second / 1e9 / rate
        for one in measured
        for second, rate in zip(one.seconds, one.sgemm_gmacs, strict=True)
    )
    return statistics.median(shares)


def _row(case: Case, cost: Cost, measured: list[ModelSpeed]) -> dict[str, Any]:
    return {
        **case._asdict(),
        "gmacs": cost.executed_macs / 1e9,
        **summarise(measured),
        "share_of_sgemm": None if case.backward else share_of_sgemm(cost.executed_macs, measured),
    }


def _slopes(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Slope of log time over log pixels, least squares over all forward rows; 1 is linear."""
    slopes = {}
    for variant in VARIANTS:
        points = [
            (math.log(row["frames"] * row["size"] ** 2), math.log(row["seconds"]))
            for row in rows
            if row["variant"] == variant and not row["backward"]
        ]
        if len(set(points)) > 1:
            slopes[variant] = statistics.linear_regression(*zip(*points, strict=True)).slope
    return slopes


def plot_bench(result: dict[str, Any], path: Path) -> None:
    """Time over pixels on logarithmic axes, and peak memory."""
    from fixformer.runtime.figures import new_figure, save_figure

    figure, (time_axes, memory_axes) = new_figure(columns=2)
    for variant in VARIANTS:
        rows = [row for row in result["rows"] if row["variant"] == variant and not row["backward"]]
        rows.sort(key=lambda row: row["frames"] * row["size"] ** 2)
        pixels = [row["frames"] * row["size"] ** 2 / 1e6 for row in rows]
        time_axes.loglog(pixels, [row["seconds"] for row in rows], "o-", label=variant)
        memory_axes.loglog(pixels, [row["peak_memory_bytes"] / 2**30 for row in rows], "o-", label=variant)
    time_axes.set(xlabel="megapixels in the clip", ylabel="seconds, forward", title=result["model"])
    memory_axes.set(xlabel="megapixels in the clip", ylabel="peak memory, GB", title="one process, weights included")
    time_axes.legend()
    save_figure(figure, path)
