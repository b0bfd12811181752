"""The paper's table of throughput on this machine: ours, softmax and Orthoformer in one backbone, clip by clip.

The whole of it takes an hour, so every measurement is kept in a file as soon as it is made, and the same command goes
on where it stopped. `grid_table.py` turns the result into a table and a figure.
"""

import hashlib
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import fixformer
from fixformer.bench import model_speed, paper_throughput
from fixformer.bench.model_speed import check_twin, measure_model, repeats_of, share_of_sgemm, summarise
from fixformer.bench.model_speed_worker import ModelSpeed, ModelSpeedJob
from fixformer.config.schema import (
    Count,
    PositiveInt,
    PositiveInts,
    Settings,
    Threads,
    check_path,
    checked,
    coerce,
    load,
)
from fixformer.errors import OutOfMemory, SettingsConflict, UserError, shown
from fixformer.models.cost import cost
from fixformer.runtime.console import note, printable
from fixformer.runtime.files import read_bytes, read_json, write_json
from fixformer.runtime.locks import locked
from fixformer.runtime.machine import describe_machine
from fixformer.runtime.memory import free_memory
from fixformer.runtime.progress import counting
from fixformer.runtime.provenance import source_commit

# Neighbours are compared, so they are measured one after the other. 64 landmarks as in the paper's speed test.
ORTHOFORMER = {**model_speed.TWIN, "attention": "orthoformer", "landmarks": 64}
VARIANTS: dict[str, dict[str, Any]] = {**model_speed.VARIANTS, "orthoformer": ORTHOFORMER}
# What a measurement may take of the memory that is free: the rest is for what else begins meanwhile.
MEMORY_SHARE = 0.9
# The rooms a forward pass runs through: if they change, earlier measurements are of another program.
MEASURED_CODE = ("ops", "models", "models/attention", "models/layers")


class Cell(NamedTuple):
    """A number of the table."""

    frames: int
    size: int
    variant: str


@dataclass(frozen=True)
class GridMeasurement(Settings):
    """One cell in one round: its speed, or why there is none. `memory_limit` is what its process was allowed."""

    frames: PositiveInt
    size: PositiveInt
    variant: str
    round: Count
    gmacs: float
    date: str
    commit: str
    load_average: float
    memory_limit: int | None
    speed: ModelSpeed | None = None
    out_of_memory: str = ""

    def check_together(self) -> None:
        if self.variant not in VARIANTS or (self.speed is None) != bool(self.out_of_memory):
            raise SettingsConflict(f"a measurement of {shown(self.variant)} is not one of `bench grid`.")
        if self.speed and len(self.speed.seconds) != len(self.speed.sgemm_gmacs):
            raise SettingsConflict("a measurement has not as many rates of SGEMM as times.")

    @property
    def cell(self) -> Cell:
        return Cell(self.frames, self.size, self.variant)


@checked
def bench_grid(
    name: str = "fixformer_base",
    frames: PositiveInts = paper_throughput.FRAMES,
    sizes: PositiveInts = paper_throughput.SIZES,
    threads: Threads = 2,
    rounds: PositiveInt = 3,
    out: str | Path | None = None,
) -> dict[str, Any]:
    """Forward passes of every cell, each in a process of its own, the whole grid once a round.

    A cell that does not fit into memory is recorded as such and not tried again. With `out` the result so far is
    written there after every measurement, and what is there already is not measured again.
    """
    check_twin(name)
    machine = describe_machine(threads)
    common = _common_settings(name, machine)
    clips = dict.fromkeys((count, size) for size in sizes for count in frames)
    cells = [Cell(*clip, variant) for clip in clips for variant in VARIANTS]
    with _kept_in(out) as file:
        measured = _read_measurements(file, common) if file and file.exists() else []
        done = {(one.round, *one.cell) for one in measured}
        turns = [(turn, cell) for turn in range(rounds) for cell in cells if (turn, *cell) not in done]
        if measured:
            note(printable(f"{file} continues: {len(measured)} measurements are kept, at most {len(turns)} are left"))
        with counting("", len(turns)) as progress:
            for turn, cell in turns:
                progress.begin(f"{cell.variant} {cell.frames}x{cell.size}, round {turn + 1}")
                ran_out = any(one.cell == cell and one.out_of_memory for one in measured)
                if not ran_out:
                    measured.append(_measure(cell, turn, name, threads))
                    if file:
                        write_json(file, _result(common, machine, cells, rounds, measured))
                progress.advance()
    return _result(common, machine, cells, rounds, measured)


@contextmanager
def _kept_in(out: str | Path | None) -> Iterator[Path | None]:
    """The file of the result, which no other process writes to; says how to go on if it is interrupted."""
    if out is not None:
        check_path(out, "out")
    file = Path(out) if out else None
    with locked(file.parent) if file else nullcontext():
        try:
            yield file
        except KeyboardInterrupt:
            if file and file.exists():
                note(printable(f"interrupted; the same command goes on with what {file} has"))
            raise


def _common_settings(name: str, machine: dict[str, Any]) -> dict[str, Any]:
    """What all measurements of one file have in common."""
    return {
        "model": name,
        "dtype": "float32",
        "batch": 1,
        "variants": VARIANTS,
        "code": _measured_code(),
        **{key: machine[key] for key in ("cpu", "threads", "openmp", "torch")},
    }


def _measured_code() -> str:
    """Identifies the source of what is measured, which unlike a commit does not change with a page of the docs."""
    package, digest = Path(fixformer.__file__).parent, hashlib.blake2b(digest_size=8)
    for file in sorted(file for room in MEASURED_CODE for file in (package / room).glob("*.py")):
        digest.update(f"{file.relative_to(package)}\n".encode() + read_bytes(file))
    return digest.hexdigest()


def _read_measurements(file: Path, common: dict[str, Any]) -> list[GridMeasurement]:
    """Those of an earlier call; a `UserError` if it measured something else, rather than to overwrite them."""
    advice = "delete it, or write to another file"
    try:
        stored = coerce(read_json(file), dict, "result")
        entries = coerce(stored.get("measurements"), list, "measurements")
        measured = [load(GridMeasurement, entry) for entry in entries]
    except UserError as error:
        raise UserError(f"{file} cannot be continued, it is no result of `bench grid` ({error}); {advice}.") from None
    for key, value in common.items():
        if stored.get(key) != value:
            raise UserError(
                f"{file} cannot be continued: it was measured with {key}={shown(stored.get(key))}, not {shown(value)}; "
                f"{advice}."
            )
    return measured


def _measure(cell: Cell, turn: int, name: str, threads: int) -> GridMeasurement:
    """One cell in a process that gets an error, and is not killed, when it needs more memory than is free."""
    settings, free = VARIANTS[cell.variant], free_memory()
    limit = None if free is None else int(MEMORY_SHARE * free)
    load_average, macs = os.getloadavg()[0], cost(name, cell.frames, cell.size, **settings).executed_macs
    speed, reason = None, ""
    try:
        clip = (cell.frames, cell.size)
        job = ModelSpeedJob(name, *clip, settings, threads=threads, memory=limit, **repeats_of(macs))
        speed = measure_model(job)
    except OutOfMemory as error:
        reason = str(error)
    return GridMeasurement(
        **cell._asdict(),
        round=turn,
        gmacs=macs / 1e9,
        date=time.strftime("%Y-%m-%d %H:%M"),
        commit=source_commit(),
        load_average=load_average,
        memory_limit=limit,
        speed=speed,
        out_of_memory=reason,
    )


def _result(
    common: dict[str, Any], machine: dict[str, Any], cells: list[Cell], rounds: int, measured: list[GridMeasurement]
) -> dict[str, Any]:
    """Everything that is printed, drawn and kept; also the cells of a file that this call does not ask for."""
    # a table has whole lines, also for a clip of the file that was left before all were measured
    clips = dict.fromkeys(cell[:2] for cell in [*cells, *(one.cell for one in measured)])
    of_cell: dict[Cell, list[GridMeasurement]] = {Cell(*clip, variant): [] for clip in clips for variant in VARIANTS}
    for one in measured:
        of_cell[one.cell].append(one)
    return {
        **common,
        "rounds": rounds,
        "machine": {**machine, "load_average_after": os.getloadavg()[0]},
        "paper": paper_throughput.SOURCE,
        "rows": [_row(cell, found) for cell, found in of_cell.items()],
        "ratios": [
            _ratio(cell, of_cell[cell._replace(variant="ours")], found)
            for cell, found in of_cell.items()
            if cell.variant != "ours"
        ],
        "measurements": [asdict(one) for one in measured],
    }


def _row(cell: Cell, measured: list[GridMeasurement]) -> dict[str, Any]:
    """Times and memory are None for a cell without any; `out_of_memory` then says why, if it has been tried."""
    speeds = [one.speed for one in measured if one.speed]
    row = {
        **cell._asdict(),
        "rounds": len(speeds),
        "videos_per_second": None,
        "paper_videos_per_second": paper_throughput.PAPER.get(cell),
        "out_of_memory": None,
        "memory_limit": None,
    }
    if not speeds:  # in no round: memory that is short once says nothing about the cell
        failed = next((one for one in measured if not one.speed), None)
        return {**row, "out_of_memory": failed.out_of_memory, "memory_limit": failed.memory_limit} if failed else row
    share = share_of_sgemm(measured[0].gmacs * 1e9, speeds)
    speed = _with_range([1 / second for one in speeds for second in one.seconds])
    return {**row, "videos_per_second": speed, **summarise(speeds), "share_of_sgemm": share}


def _ratio(cell: Cell, ours: list[GridMeasurement], others: list[GridMeasurement]) -> dict[str, Any]:
    """How many times as fast ours is: of each round by itself, in which one was measured just after the other."""
    seconds = [
        {one.round: statistics.median(one.speed.seconds) for one in measured if one.speed}
        for measured in (ours, others)
    ]
    pairs = [seconds[1][turn] / seconds[0][turn] for turn in seconds[0] if turn in seconds[1]]
    ratio = _with_range(pairs) if pairs else None
    return {**cell._asdict(), "times_as_fast": ratio, "paper_times_as_fast": paper_throughput.paper_ratio(*cell)}


def _with_range(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}
