"""`fixformer.label`: a corpus of videos becomes a table, on this machine or on a Ray cluster.

The directory of a labelling holds `label.json` (its settings), `plan.parquet` (its rows, numbered), `rows/` (the
result), and in the end `summary.json` and `report.html`. What is in `rows/` is done.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from fixformer.config.data import Workers
from fixformer.config.eval import BatchSize, Views
from fixformer.config.schema import Expect, NonNegative, PositiveInt, Threads, check_path, checked
from fixformer.config.train import Device
from fixformer.errors import InputError, SettingsConflict, UserError, shown
from fixformer.labelling.decoding import Row
from fixformer.labelling.label_parts import Format, PartFiles, join_parts, result_schema
from fixformer.labelling.label_report import Summary, summarise_rows, write_label_report
from fixformer.labelling.labeller import RESULT, Labeller, LabelSettings
from fixformer.labelling.local_engine import run_local
from fixformer.labelling.ray_engine import require_server, run_ray
from fixformer.labelling.remote_files import is_url
from fixformer.labelling.row_sources import open_rows
from fixformer.labelling.work_plan import WorkPlan, write_plan
from fixformer.models.checkpoint import find_checkpoint, model_digest
from fixformer.runtime.console import note
from fixformer.runtime.files import (
    check_writable,
    claim_output,
    make_output,
    read_json,
    remove_temporary_files,
    require_outside_runs,
    write_json,
)
from fixformer.runtime.locks import locked
from fixformer.runtime.pools import processors
from fixformer.runtime.progress import Report
from fixformer.runtime.signals import StopRequest

SETTINGS, PLAN, ROWS, SUMMARY = "label.json", "plan.parquet", "rows", "summary.json"
Engine = Literal["local", "ray"]
Urls = Annotated[str, Expect("the beginning of URLs, such as s3://bucket/", is_url)]


@dataclass(frozen=True)
class Labelled:
    """A corpus with its labels. `summary` is the content of summary.json."""

    directory: Path
    format: str
    summary: Summary

    def rows(self) -> Iterator[Row]:
        """All rows of the result, file by file."""
        return PartFiles(self.directory / ROWS, self.format, None).rows()

    def to_json(self) -> dict[str, Any]:
        return {"directory": str(self.directory), **asdict(self.summary)}

    def __str__(self) -> str:
        return f"{self.summary}\nrows: {self.directory / ROWS}\nreport: {self.directory / 'report.html'}"


@checked
def label(
    source: str | Path,
    checkpoint: str | Path,
    out: str | Path,
    *,
    engine: Engine = "local",
    format: Format = "parquet",
    views: Views | None = None,
    top_k: PositiveInt = 5,
    logits: bool = False,
    features: bool = False,
    limit: PositiveInt | None = None,
    urls: Urls | None = None,
    batch_size: BatchSize = 4,
    workers: Workers | None = None,
    threads: Threads | None = None,
    rows_per_file: PositiveInt = 256,
    device: Device = "auto",
    address: str | None = None,
    num_gpus: NonNegative = 0.0,
    concurrency: PositiveInt | None = None,
    progress: Report | None = None,
) -> Labelled:
    """Label every video of a corpus; the same call goes on where it was stopped.

    Args:
        source: a folder, a pattern, a manifest (.csv or .parquet with a column path, and optionally id, start and end),
            tar shards, a video, or an fsspec URL of any of these.
        checkpoint: a checkpoint, or the directory of a run, whose last checkpoint is used.
        out: a new directory, or that of an earlier call with the same settings.
        engine: "local", or "ray" for a Ray cluster.
        format: of the files in `rows/`; "csv" and "jsonl" are joined into one file in the end.
        views: CLIPSxCROPS, such as "2x3"; by default the recipe's.
        top_k: how many of the best classes a row lists.
        logits: also give the logit of every class.
        features: also give the input of the model's last layer.
        limit: label the first so many rows only; a later call may label more.
        urls: what the URLs in a manifest must begin with; without it a manifest with URLs is refused.
        batch_size: videos at a time.
        workers: decoding processes; by default one per available core, with Ray one per actor.
        threads: batches at a time on a CPU; by default one per available core, with Ray one per actor.
        rows_per_file: of the result: what a kill may cost.
        device: "auto" (all GPUs, or the CPU), "cpu", "cuda" or "cuda:NUMBER".
        address: of a running Ray cluster; by default Ray runs on this machine.
        num_gpus: for each actor of Ray.
        concurrency: actors of Ray; by default as many as the cluster has room for.
        progress: called with (videos done, videos in all).
    """
    for name, path in (("source", source), ("checkpoint", checkpoint), ("out", out)):
        check_path(path, name)
    if progress is not None and not callable(progress):
        raise InputError(f"progress={shown(progress)}: expected a function of (videos done, videos in all).")
    _check_engine(engine, format, address, num_gpus, concurrency)
    require_server(address)
    source, out = str(source), Path(out)
    check_writable(out)
    require_outside_runs(out)
    if not is_url(source) and os.path.isdir(source):
        claim_output(out, source, "label")
    many = processors() if engine == "local" else 1
    settings = LabelSettings(
        str(find_checkpoint(checkpoint).resolve()),
        *(views, top_k, logits, features, batch_size),
        workers=many if workers is None else workers,
        threads=threads or many,
        device="cuda" if num_gpus else ("cpu" if engine == "ray" and device == "auto" else device),
    )
    digest = model_digest(settings.checkpoint)
    with locked(out):
        plan = _planned(out, source, urls, _record(source, urls, settings, digest, format))
        job = _Job(out, settings, digest, plan, format)
        todo_N = job.todo(limit)
        if todo_N.any():
            tell = progress or (lambda done, total, what=None: None)
            begin = time.monotonic()
            if engine == "local":
                job.run_here(todo_N, rows_per_file, tell)
            else:
                places: dict[str, Any] = {"address": address, "num_gpus": num_gpus, "concurrency": concurrency}
                arguments = (settings, digest, plan, todo_N, job.parts)
                run_ray(*arguments, rows_per_file=rows_per_file, progress=tell, **places)
            job.finish(int(todo_N.sum()), time.monotonic() - begin, engine)
        return job.result()


def _check_engine(engine: str, kind: str, address: str | None, num_gpus: float, concurrency: int | None) -> None:
    if engine == "ray" and kind != "parquet":
        raise SettingsConflict(f"engine='ray' writes Parquet, not format={kind!r}; use engine='local' or convert it.")
    of_ray = {"address": address, "num_gpus": num_gpus or None, "concurrency": concurrency}
    given = [f"{name}={value}" for name, value in of_ray.items() if value is not None]
    if engine == "local" and given:
        raise SettingsConflict(f"{given[0]} is for engine='ray'; give that too, or leave it out.")


def _record(source: str, urls: str | None, settings: LabelSettings, digest: str, kind: str) -> dict[str, Any]:
    """What a directory's rows follow from."""
    record = {"source": source if is_url(source) else os.path.abspath(source), "urls": urls}
    if not is_url(source) and os.path.isfile(source):
        state = os.stat(source)
        record["source_state"] = f"{state.st_size} bytes, changed at {state.st_mtime:.3f}"
    return {**record, "model": digest, **{name: getattr(settings, name) for name in RESULT}, "format": kind}


def _planned(out: Path, source: str, urls: str | None, record: dict[str, Any]) -> WorkPlan:
    """The plan of a directory: a new one, or the one it has, if that was made with the same settings."""
    if os.path.lexists(out / PLAN):
        stored = read_json(out / SETTINGS)
        stored = stored if isinstance(stored, dict) else {}
        changed = [name for name in {**record, **stored} if record.get(name) != stored.get(name)]
        if changed:
            pairs = ", ".join(
                f"{name} is {shown(stored.get(name))} there and {shown(record.get(name))} now" for name in changed
            )
            raise UserError(f"{out} was labelled with other settings: {pairs}; use those, or another directory.")
        remove_temporary_files(out)
        remove_temporary_files(out / ROWS)
        return WorkPlan(out / PLAN)
    if any(name != SETTINGS and not name.startswith(".") for name in os.listdir(out)):
        raise UserError(f"{out} is not empty and holds no labelling; choose a new directory.")
    make_output(out, "label")
    remove_temporary_files(out)  # of a call that was stopped while it planned
    write_json(out / SETTINGS, record)
    write_plan(open_rows(source, urls), out / PLAN)
    return WorkPlan(out / PLAN)


class _Job:
    """What is done in a directory, and what is left."""

    def __init__(self, out: Path, settings: LabelSettings, digest: str, plan: WorkPlan, kind: str) -> None:
        self.out, self.settings, self.digest, self.plan, self.format = out, settings, digest, plan, kind
        schema = result_schema(plan.schema, logits=settings.logits, features=settings.features)
        self.parts = PartFiles(out / ROWS, kind, schema)

    def todo(self, limit: int | None) -> np.ndarray:
        done_N = self.parts.done(len(self.plan))
        done, todo_N = int(done_N.sum()), ~done_N
        if limit is not None:
            todo_N[limit:] = False
        left = f", {int(todo_N.sum()):,} to label now" if done or limit else ""
        note(f"{len(self.plan):,} videos listed, {done:,} labelled before{left}")
        return todo_N

    def run_here(self, todo_N: np.ndarray, rows_per_file: int, progress: Report) -> None:
        options: dict[str, Any] = {"rows_per_file": rows_per_file, "progress": progress}
        with StopRequest() as stop, Labeller(self.settings, self.digest) as labeller:
            count = run_local(labeller, self.plan, todo_N, self.parts, stop=stop, **options)
            if stop:
                raise stop.interruption(f"stopped after {count:,} videos, which are written; the same command goes on.")

    def finish(self, count: int, seconds: float, engine: str) -> None:
        """Require every row to be there once, then write the summary and the report."""
        done = int(self.parts.done(len(self.plan)).sum())
        if self.format != "parquet":
            join_parts(self.parts, self.out / f"labels.{self.format}")
        summary, shown_rows = summarise_rows(self.parts, len(self.plan), count, seconds, engine)
        assert summary.labelled == done, f"{summary.labelled} rows, {done} of them different"
        write_json(self.out / SUMMARY, asdict(summary))
        write_label_report(summary, shown_rows, self.out, self.settings.checkpoint)

    def result(self) -> Labelled:
        return Labelled(self.out, self.format, Summary(**read_json(self.out / SUMMARY)))
