"""Speed and memory of a model against its softmax twin and against the machine's own matrix-multiply rate."""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from fixformer.bench.model_speed_worker import Job, Measured
from fixformer.bench.process import measure_apart
from fixformer.errors import UserError
from fixformer.models.cost import Cost, cost
from fixformer.runtime.console import console
from fixformer.runtime.machine import describe_machine
from fixformer.runtime.progress import counting

# The twin keeps the backbone and has softmax attention alone: at 16x224 both cost 254 GFLOPs.
VARIANTS: dict[str, dict[str, Any]] = {
    "ours": {},
    "softmax": {"attention": "softmax", "fixation": "none", "association": "none"},
}
LONG_MACS = 0.7e12


class Case(NamedTuple):
    """What is timed: forward, or forward and backward, of one variant on one clip size."""

    frames: int
    size: int
    backward: bool
    variant: str


def bench_model(
    name: str = "fixformer_base",
    frames: Sequence[int] = (16, 32, 64, 96),
    sizes: Sequence[int] = (224, 336, 448),
    threads: int = 2,
    rounds: int = 2,
) -> dict[str, Any]:
    """Forward at every size, forward and backward at the first; ours and twin by turns, each in its own process."""
    if not frames or not sizes or min(*frames, *sizes, rounds, threads) < 1:
        raise UserError(f"frames={frames}, sizes={sizes}, rounds={rounds}, threads={threads}: all must be at least 1.")
    grid = [(count, size, False) for size in sizes for count in frames] + [(frames[0], sizes[0], True)]
    cases = [Case(*point, variant) for point in grid for variant in VARIANTS]
    costs = {case: cost(name, case.frames, case.size, **VARIANTS[case.variant]) for case in cases}
    # A pass that takes a minute is its own average.
    turns = [case for turn in range(rounds) for case in cases if turn == 0 or not _is_long(costs[case])]
    machine = describe_machine(threads)
    measured: dict[Case, list[Measured]] = {case: [] for case in cases}
    with counting("", len(turns)) as progress:
        for case in turns:
            progress.begin(f"{case.variant} {case.frames}x{case.size}")
            measured[case].append(_run(name, case, threads, _is_long(costs[case])))
            progress.advance()
    rows = [_row(case, costs[case], measured[case]) for case in cases]
    return {"model": name, "dtype": "float32", "batch": 1, "machine": machine, "rows": rows, "slope": _slopes(rows)}


def _is_long(cost: Cost) -> bool:
    return cost.executed_macs > LONG_MACS


def _run(name: str, case: Case, threads: int, is_long: bool) -> Measured:
    repeats = 1 if is_long or case.backward else 3
    settings = VARIANTS[case.variant]
    job = Job(name, case.frames, case.size, settings, case.backward, threads, repeats, warm_up=not is_long)
    return Measured(**measure_apart("fixformer.bench.model_speed_worker", job, f"{name} at {case.frames}x{case.size}"))


def _row(case: Case, cost: Cost, measured: list[Measured]) -> dict[str, Any]:
    seconds = [second for one in measured for second in one.seconds]
    rates = [rate for one in measured for rate in one.sgemm_gmacs]
    shares = [cost.executed_macs / second / 1e9 / rate for second, rate in zip(seconds, rates, strict=True)]
    return {
        **case._asdict(),
        "gmacs": cost.executed_macs / 1e9,
        "seconds": min(seconds),
        "seconds_median": statistics.median(seconds),
        "repeats": len(seconds),
        "sgemm_gmacs_per_second": statistics.median(rates),
        "share_of_sgemm": None if case.backward else statistics.median(shares),
        "peak_memory_bytes": max(one.memory_peak for one in measured),
        "memory_before_bytes": min(one.memory_before for one in measured),
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


def print_bench(result: dict[str, Any]) -> None:
    """The rows, ours beside the twin."""
    machine = result["machine"]
    title = f"{result['model']}, float32, batch 1, {machine['threads']} threads, {machine['cpu']}"
    table = Table(box=None, title=title, title_justify="left", header_style="bold")
    for column in ("clip", "pass", "ours s", "softmax s", "softmax / ours", "ours of SGEMM", "ours GB", "softmax GB"):
        table.add_column(column, justify="right")
    for ours, twin in _pairs(result["rows"]):
        table.add_row(
            f"{ours['frames']}x{ours['size']}",
            "forward+backward" if ours["backward"] else "forward",
            f"{ours['seconds']:.2f}",
            f"{twin['seconds']:.2f}",
            f"{twin['seconds'] / ours['seconds']:.2f}",
            f"{ours['share_of_sgemm']:.1%}" if ours["share_of_sgemm"] else "",
            f"{ours['peak_memory_bytes'] / 2**30:.2f}",
            f"{twin['peak_memory_bytes'] / 2**30:.2f}",
        )
    console().print(table)
    slopes = ", ".join(f"{variant} {slope:.3f}" for variant, slope in result["slope"].items())
    console().print(
        f"log-log slope of time over pixels: {slopes}; load average {machine['load_average']:.2f}", style="dim"
    )


def _pairs(rows: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return list(zip(rows[::2], rows[1::2], strict=True))


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
