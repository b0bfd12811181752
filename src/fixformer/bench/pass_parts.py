"""Where the time of a pass goes: its operations in groups, each with its multiply-accumulates and the bytes it moves,
beside the least that the machine needs for them.

The operations are those of a real pass, seen by torch's profiler; each pass is measured in a process of its own
(`python -m THIS JOB`). The floor of a group is the time of its products at the rate of plain matrix products, or of
its bytes at the rate of a copy within the cache, both measured in the same process.

Shapes: M x K times K x N is a product, a batch of them one of B.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from fixformer.bench.model_speed_worker import run_pass
from fixformer.bench.process import answer, measure_apart
from fixformer.config.schema import PositiveInt, Threads, checked
from fixformer.models.fused_parts import CHUNK_BYTES
from fixformer.runtime.machine import billions_per_second, describe_machine, sgemm_gmacs
from fixformer.runtime.progress import counting

FLOAT_BYTES = 4
# Operations by the names that torch's profiler prints, in-place or not; every other one is "other".
GROUPS = {
    "products": ("mm", "addmm"),
    "attention": ("bmm", "baddbmm"),
    "LayerNorm": ("native_layer_norm", "native_layer_norm_backward"),
    "convolution": ("mkldnn_convolution", "convolution_backward", "mkldnn_convolution_backward"),
    "GELU": ("gelu", "gelu_backward"),
    "gate, kernel": ("mul", "sigmoid", "sigmoid_backward", "relu", "clamp_min", "threshold_backward", "addcmul", "div"),
    "shift, layout": ("copy", "fill", "zero", "cat"),
    "sums": ("add", "sub", "sum", "neg"),
}
GROUP_OF = {name: group for group, names in GROUPS.items() for name in names}
# Matrices of the arguments of a product: those of mm and bmm come first, the others after what is added to.
MATRICES_AT = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}
PROFILED = 3  # passes under the profiler, of which the fastest is told
SECONDS_ALONE = 0.2  # of a product by itself
LEAST_SHARE = 0.01  # of the pass, for a product to have a line of its own


@dataclass(frozen=True)
class PartsJob:
    """One pass of a model on one random clip."""

    model: str
    frames: int
    size: int
    threads: int
    training: bool


class Operation(NamedTuple):
    """One that the profiler saw: name without "aten::" and "_" of in-place ones, the shapes of its tensors."""

    name: str
    shapes: list[list[int]]
    seconds: float

    @property
    def group(self) -> str:
        return GROUP_OF.get(self.name, "other")

    @property
    def product(self) -> tuple[int, int, int, int] | None:
        """B, M, K, N of a product."""
        if self.name not in MATRICES_AT:
            return None
        a, b = self.shapes[MATRICES_AT[self.name] :][:2]
        return prod(a[:-2]), a[-2], a[-1], b[-1]

    @property
    def macs(self) -> int:
        return prod(self.product or (0,))

    @property
    def bytes_moved(self) -> int:
        """Every argument read once and the result written once; that of an element-wise operation is as large as its
        largest argument."""
        if self.product is not None:
            batch, rows, inner, columns = self.product
            return FLOAT_BYTES * batch * (rows * inner + inner * columns + rows * columns)
        sizes = [prod(shape) for shape in self.shapes if shape]
        read = sizes[1:] if self.name == "copy" else sizes
        return FLOAT_BYTES * (sum(read) + max(sizes, default=0))


@checked
def bench_parts(
    name: str = "fixformer_base", *, frames: PositiveInt = 16, size: PositiveInt = 224, threads: Threads = 2
) -> dict[str, Any]:
    """The groups of a forward pass and of one with its backward pass."""
    machine, passes = describe_machine(threads), []
    with counting("", 2) as progress:
        for training in (False, True):
            progress.begin("forward + backward" if training else "forward")
            job = PartsJob(name, frames, size, threads, training)
            passes.append(measure_apart("fixformer.bench.pass_parts", job, f"{name} at {frames}x{size}"))
            progress.advance()
    machine["load_average_after"] = os.getloadavg()[0]
    return {"model": name, "frames": frames, "size": size, "dtype": "float32", "machine": machine, "passes": passes}


def measure(job: PartsJob) -> dict[str, Any]:
    """The job, in this process."""
    from fixformer.models.registry import create_model

    torch.set_num_threads(job.threads)
    torch.manual_seed(0)
    model = create_model(job.model, num_frames=job.frames, image_size=job.size).train(job.training)
    video_BCTHW = torch.randn(1, 3, job.frames, job.size, job.size)

    def one_pass() -> None:
        run_pass(model, video_BCTHW, job.training)

    one_pass()
    plain, rate = min(_seconds(one_pass) for _ in range(2)), sgemm_gmacs()
    # the profiler takes memory, too, so the first profiled pass has to ask the system for more of its own
    profiled, operations = min((_profiled(one_pass) for _ in range(PROFILED)), key=lambda found: found[0])
    rates = {"sgemm_gmacs": (rate + sgemm_gmacs()) / 2, "copy_gbytes": copy_gbytes()}
    groups = _groups(operations, profiled, **rates)
    return {
        "training": job.training,
        "seconds": plain,
        "seconds_profiled": profiled,
        **rates,
        "groups": groups,
        "floor_seconds": sum(group["floor_seconds"] for group in groups),
        "products": _products(operations, profiled),
    }


def _profiled(run: Callable[[], None]) -> tuple[float, list[Operation]]:
    """Seconds of a pass under the profiler, and its operations."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, acc_events=True) as profiler:
        seconds = _seconds(run)
    return seconds, [
        Operation(event.name.removeprefix("aten::").rstrip("_"), event.input_shapes, event.self_cpu_time_total / 1e6)
        for event in profiler.events()
        if event.name.startswith("aten::")
    ]


def _groups(
    operations: Sequence[Operation], total: float, sgemm_gmacs: float, copy_gbytes: float
) -> list[dict[str, Any]]:
    """Every group with its floor; the time between the operations is another one without."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for operation in operations:
        found = (operation.seconds, operation.macs / 1e9, operation.bytes_moved / 1e9)
        sums[operation.group] = [a + b for a, b in zip(sums[operation.group], found, strict=True)]
    rows: list[dict[str, Any]] = []
    for name in [*GROUPS, "other"]:
        seconds, gmacs, gbytes = sums[name]
        floor = gmacs / sgemm_gmacs if gmacs else gbytes / copy_gbytes
        is_known = name != "other"  # calls of several operations, and small ones, whose shapes say little
        rows.append(
            {
                "group": name,
                "seconds": seconds,
                "gmacs": gmacs,
                "gbytes": gbytes if is_known else 0.0,
                "floor_seconds": min(floor, seconds) if is_known else 0.0,
            }
        )
    between = total - sum(row["seconds"] for row in rows)
    return [*rows, {"group": "between", "seconds": between, "gmacs": 0.0, "gbytes": 0.0, "floor_seconds": 0.0}]


def _products(operations: Sequence[Operation], total: float) -> list[dict[str, Any]]:
    """The products that take most of the time, by their shapes, with their rate in the pass and by themselves."""
    seconds: dict[tuple[int, int, int, int], float] = defaultdict(float)
    counts: dict[tuple[int, int, int, int], int] = defaultdict(int)
    for operation in operations:
        if operation.product is not None:
            seconds[operation.product] += operation.seconds
            counts[operation.product] += 1
    rows = []
    for shape, spent in sorted(seconds.items(), key=lambda item: -item[1]):
        if spent >= LEAST_SHARE * total:
            gmacs = counts[shape] * prod(shape) / 1e9
            rows.append(
                {"shape": shape, "count": counts[shape], "seconds": spent, "gmacs_per_second": gmacs / spent}
                | {"alone_gmacs_per_second": _alone_gmacs(shape)}
            )
    return rows


def _alone_gmacs(shape: tuple[int, int, int, int]) -> float:
    """The rate of a product of these sizes on matrices of its own, which stay in the cache if they fit."""
    batch, rows, inner, columns = shape
    # as a Linear has its weights
    a, b = torch.randn(batch, rows, inner), torch.randn(batch, columns, inner).transpose(1, 2)
    out = torch.empty(batch, rows, columns)

    def multiply() -> None:
        if batch == 1:
            torch.mm(a[0], b[0], out=out[0])
        else:
            torch.bmm(a, b, out=out)

    return billions_per_second(multiply, prod(shape), SECONDS_ALONE)


def copy_gbytes() -> float:
    """Billions of bytes a second that a copy within the cache reads and writes, at the size of a chunk."""
    source = torch.randn(CHUNK_BYTES // FLOAT_BYTES)
    target = torch.empty_like(source)
    return billions_per_second(lambda: target.copy_(source), 2 * source.nbytes, SECONDS_ALONE)


def _seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


if __name__ == "__main__":
    answer(PartsJob, measure)
