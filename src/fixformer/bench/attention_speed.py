"""Speed and memory of every kind of attention over the number of tokens, and where each overtakes fused softmax.

What is timed is one attention within one frame, without its two projections: association,
kernel and fixation where a kind has them, the attention itself, and the copies into its layout and back. The
projections, which all kinds share, and the rest of a block are left out. "forward+backward" computes the gradients of
q, k, v and of the parameters between the projections.
"""

import math
import os
import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fixformer.bench.attention_speed_worker import AttentionSpeedJob
from fixformer.bench.process import measure_apart
from fixformer.config.schema import NonNegative, PositiveInt, PositiveInts, Threads, checked
from fixformer.errors import UnknownName
from fixformer.runtime.machine import describe_machine
from fixformer.runtime.progress import counting

PLAIN: dict[str, Any] = {"fixation": "none", "association": "none"}
# "linear" is the paper's baseline with ReLU, "elu1" the Linear Transformer.
KINDS: dict[str, dict[str, Any]] = {
    "softmax": {"attention": "softmax", **PLAIN},
    "linear": {"attention": "linear", **PLAIN},
    "elu1": {"attention": "linear", "kernel": "elu1", **PLAIN},
    "ours": {},
    **{
        kind: {"attention": kind, **PLAIN}
        for kind in ("performer", "cosformer", "linformer", "orthoformer", "lara", "nystrom", "mala", "inline", "rank")
    },
    "polar": {"attention": "linear", "kernel": "polar", **PLAIN},
}
TWIN = "softmax"
# A frame of side x side tokens: 196 to 16,384 of them.
SIDES = (14, 20, 28, 40, 56, 80, 112, 128)
HEADS, HEAD_DIM = 8, 64
PASSES = {False: "forward", True: "forward+backward"}


@checked
def bench_attention(
    kinds: tuple[str, ...] = tuple(KINDS),
    sides: PositiveInts = SIDES,
    threads: Threads = 1,
    rounds: PositiveInt = 3,
    seconds: NonNegative = 0.5,
) -> dict[str, Any]:
    """Every kind in turn, each turn in a process of its own, forward and forward+backward; best of all repeats."""
    kinds = tuple(dict.fromkeys([TWIN, *kinds]))
    for kind in kinds:
        if kind not in KINDS:
            raise UnknownName("attention", kind, KINDS)
    turns = [(kind, backward) for _ in range(rounds) for backward in PASSES for kind in kinds]
    machine, rates = describe_machine(threads), []
    measured: dict[tuple[str, bool, int], list[dict[str, Any]]] = {}
    with counting("", len(turns)) as progress:
        for kind, backward in turns:
            progress.begin(f"{kind} {PASSES[backward]}")
            job = AttentionSpeedJob(KINDS[kind], sorted(set(sides)), HEADS, HEAD_DIM, backward, threads, seconds)
            done = measure_apart("fixformer.bench.attention_speed_worker", job, f"{kind} attention")
            rates.append(done["sgemm_gmacs"])
            for row in done["rows"]:
                measured.setdefault((kind, backward, row["side"]), []).append(row)
            progress.advance()
    rows = [_row(*key, parts) for key, parts in measured.items()]
    return {
        **{"heads": HEADS, "head_dim": HEAD_DIM, "batch": 1, "dtype": "float32", "rounds": rounds},
        "machine": {**machine, "load_average_after": os.getloadavg()[0], "sgemm_gmacs_per_second": max(rates)},
        "sgemm_gmacs_per_second_of_each_turn": rates,
        "settings": {kind: KINDS[kind] for kind in kinds},
        "rows": rows,
        "crossover_tokens": crossovers(rows),
    }


def _row(kind: str, backward: bool, side: int, parts: list[dict[str, Any]]) -> dict[str, Any]:
    seconds = [second for part in parts for second in part["seconds"]]
    return {
        **{"attention": kind, "pass": PASSES[backward], "tokens": side * side},
        "seconds": min(seconds),
        "seconds_median": statistics.median(seconds),
        "repeats": len(seconds),
        "memory_bytes": max(part["memory"] for part in parts),
    }


def crossovers(rows: list[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Tokens from which on a kind is faster than softmax, between two measured lengths on logarithmic scales.

    The shortest length measured if it is faster throughout, nothing if it is slower at the longest.
    """
    found: dict[str, dict[str, float | None]] = {}
    for kind in dict.fromkeys(row["attention"] for row in rows if row["attention"] != TWIN):
        found[kind] = {name: _crossover(_times(rows, kind, name), _times(rows, TWIN, name)) for name in PASSES.values()}
    return found


def _times(rows: list[dict[str, Any]], kind: str, name: str) -> dict[int, float]:
    times = {row["tokens"]: row["seconds"] for row in rows if (row["attention"], row["pass"]) == (kind, name)}
    return dict(sorted(times.items()))


def _crossover(times: dict[int, float], twin: dict[int, float]) -> float | None:
    # The logarithm of the ratio: above zero where softmax is faster.
    slower = [(math.log(tokens), math.log(times[tokens] / twin[tokens])) for tokens in times]
    if slower[-1][1] >= 0:
        return None
    for (x, y), (later_x, later_y) in reversed(list(pairwise(slower))):
        if y >= 0:
            return math.exp(x + (later_x - x) * y / (y - later_y))
    return float(min(times))


def plot_attention_bench(result: dict[str, Any], path: Path) -> None:
    """Time and memory over tokens on logarithmic axes; a cross where a kind overtakes softmax."""
    from fixformer.runtime.figures import new_figure, save_figure

    figure, axes = new_figure(columns=3)
    for one, name in zip(axes, PASSES.values(), strict=False):
        for kind in result["settings"]:
            times = _times(result["rows"], kind, name)
            style = {"color": "black", "linewidth": 2} if kind == TWIN else {}
            (line,) = one.loglog(list(times), [1e3 * second for second in times.values()], label=kind, **style)
            _mark_crossover(one, result, kind, name, line.get_color())
        one.set(xlabel="tokens", ylabel="milliseconds", title=f"{name} (x: overtakes softmax)")
    _plot_memory(axes[2], result)
    axes[0].legend(fontsize=7)
    save_figure(figure, path)


def _mark_crossover(axes: Any, result: dict[str, Any], kind: str, name: str, colour: str) -> None:
    tokens = result["crossover_tokens"].get(kind, {}).get(name)
    twin = _times(result["rows"], TWIN, name)
    if tokens is None or tokens <= min(twin):
        return
    seconds = np.exp(np.interp(np.log(tokens), np.log(list(twin)), np.log(list(twin.values()))))
    axes.plot(tokens, 1e3 * seconds, "x", color=colour, markersize=8, markeredgewidth=2)


def _plot_memory(axes: Any, result: dict[str, Any]) -> None:
    name = PASSES[True]
    for kind in result["settings"]:
        rows = [row for row in result["rows"] if (row["attention"], row["pass"]) == (kind, name)]
        rows.sort(key=lambda row: row["tokens"])
        style = {"color": "black", "linewidth": 2} if kind == TWIN else {}
        megabytes = [max(row["memory_bytes"], 1) / 2**20 for row in rows]
        axes.loglog([row["tokens"] for row in rows], megabytes, label=kind, **style)
    axes.set(xlabel="tokens", ylabel="MB beyond q, k, v", title=f"peak memory, {name}")
