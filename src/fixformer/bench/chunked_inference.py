"""Inference in chunks (`models/fused.py`) against the plain forward: time and peak memory."""

import os
import re
from pathlib import Path
from typing import Annotated, Any

import torch

from fixformer.bench.model_speed import measure_model, repeats_of, summarise
from fixformer.bench.model_speed_worker import ModelSpeed, ModelSpeedJob
from fixformer.config.schema import Expect, PositiveInt, Threads, checked
from fixformer.errors import UserError
from fixformer.models.cost import cost
from fixformer.models.registry import create_model
from fixformer.models.video_transformer import VideoTransformer
from fixformer.runtime.machine import describe_machine
from fixformer.runtime.progress import counting

# From clips that fit the cache to the longest and largest one; chunks are forced at every size.
CASES = (
    *("fixformer_tiny:8x96", "fixformer_tiny:16x224"),
    *("fixformer_base:16x224", "fixformer_base:32x224", "fixformer_base:16x448", "fixformer_base:96x448"),
)
Cases = Annotated[tuple[str, ...], Expect("one or more of MODEL:FRAMESxSIZE", bool)]
PATHS = {"plain": False, "chunked": True}


@checked
def bench_chunked(cases: Cases = CASES, threads: Threads = 2, rounds: PositiveInt = 3) -> dict[str, Any]:
    """Every case in a process of its own, plain and chunked in turn; best and median of all repeats."""
    clips = [_parse(case) for case in cases]
    repeats = {clip: repeats_of(cost(*clip).executed_macs) for clip in clips}
    turns = [(clip, path) for _ in range(rounds) for clip in clips for path in PATHS]
    machine = describe_machine(threads)
    measured: dict[tuple[tuple[str, int, int], str], list[ModelSpeed]] = {}
    with counting("", len(turns)) as progress:
        for clip, path in turns:
            progress.begin("{} {}x{} {}".format(*clip, path))
            job = ModelSpeedJob(*clip, threads=threads, chunked=PATHS[path], **repeats[clip])
            measured.setdefault((clip, path), []).append(measure_model(job))
            progress.advance()
    machine["load_average_after"] = os.getloadavg()[0]
    rows = [_row(*clip, {path: measured[clip, path] for path in PATHS}) for clip in clips]
    return {"dtype": "float32", "batch": 1, "rounds": rounds, "machine": machine, "rows": rows}


def _parse(case: str) -> tuple[str, int, int]:
    match = re.fullmatch(r"(\w+):(\d{1,9})x(\d{1,9})", case)
    if match is None:
        raise UserError(f"case {case!r}: expected MODEL:FRAMESxSIZE, such as {CASES[0]}.")
    with torch.device("meta"):
        model = create_model(match[1])
    if not isinstance(model, VideoTransformer):
        raise UserError(f"case {case!r}: {match[1]} cannot run in chunks; expected one of our own, such as {CASES[0]}.")
    return match[1], int(match[2]), int(match[3])


def _row(model: str, frames: int, size: int, measured: dict[str, list[ModelSpeed]]) -> dict[str, Any]:
    row: dict[str, Any] = {"model": model, "frames": frames, "size": size}
    row |= {path: summarise(parts) for path, parts in measured.items()}
    plain, chunked = row["plain"], row["chunked"]
    row["time_ratio"] = plain["seconds_median"] / chunked["seconds_median"]
    row["memory_ratio"] = plain["peak_memory_bytes"] / chunked["peak_memory_bytes"]
    return row


def plot_chunked(result: dict[str, Any], path: Path) -> None:
    """What the plain forward takes, as a multiple of the chunked one."""
    from fixformer.runtime.figures import new_figure, save_figure

    figure, axes = new_figure(columns=2)
    names = [f"{row['model'].removeprefix('fixformer_')} {row['frames']}x{row['size']}" for row in result["rows"]]
    for one, what in zip(axes, ("time", "memory"), strict=True):
        one.barh(names, [row[f"{what}_ratio"] for row in result["rows"]])
        one.axvline(1, color="black", linewidth=1)
        one.invert_yaxis()
        one.set(xlabel="plain / chunked", title={"time": "time", "memory": "peak memory of the process"}[what])
    save_figure(figure, path)
