"""`fixformer prepare`: encode a data set once more so that training reads it at speed; as files, or in tar shards.

Work goes on where it was interrupted: a file or shard is either whole and recorded, or made again.
"""

import csv
import io
import json
import os
import re
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from fixformer.data.listing import Index, Sample, load_index
from fixformer.data.prepare.encode import FAILURES, Recipe, reencode, require_encoder, source_of
from fixformer.data.video import Policy
from fixformer.data.video.suffixes import VIDEO_SUFFIXES
from fixformer.errors import InputError, SettingsConflict, UserError
from fixformer.runtime.files import replacing, write_json, write_text
from fixformer.runtime.pools import crash_safe_map
from fixformer.runtime.progress import counting

SETTINGS = "prepare.json"
JOURNAL = "done.jsonl"
CRASH = "the decoder crashed on it"
MISSING = "listed, but there is no such file"


@dataclass
class PrepareReport:
    """What was made. `failed` holds (path, problem) of the videos that were not."""

    src: str
    dst: str
    videos: int = 0
    bytes: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Done:
    """What became of one video: a file below `dst`, or a problem. `source` is what it was made from."""

    path: str
    source: str
    frames: int = 0
    fps: float | None = None
    size: int = 0
    problem: str = ""


@dataclass(frozen=True)
class FileJob:
    """One video to make."""

    sample: Sample
    path: str
    target: Path
    recipe: Recipe

    @property
    def source(self) -> str:
        return json.dumps(source_of(self.sample))


def prepare(
    src: str | Path,
    dst: str | Path,
    *,
    short_side: int = 256,
    keyframes: int = 16,
    quality: int = 20,
    damaged: Policy = "strict",
    shards: bool = False,
    shard_videos: int = 256,
    workers: int | None = None,
    kind: str = "auto",
    videos: str | Path | None = None,
    labels: str | Path | None = None,
) -> PrepareReport:
    """Encode every video of a data set again: smaller, upright, with key frames close together.

    Args:
        src: the data set, in any layout that training accepts.
        dst: a new directory, or one that an interrupted `prepare` with the same settings left.
        short_side: pixels of the shorter side; smaller videos keep their size.
        keyframes: frames from one key frame to the next.
        quality: x264's constant rate factor, lower is better.
        damaged: "strict" leaves out a video that breaks in the middle, "partial" keeps its good frames.
        shards: write tar shards with an index instead of files with a CSV.
        shard_videos: videos in a shard.
        workers: processes; by default as many as the machine has cores.
        kind: the layout, if it is not to be recognised.
        videos: where the files lie, if not beside the annotations.
        labels: a file of label names, one per line.
    """
    from fixformer.data.prepare.shard_files import make_shards

    require_encoder()
    index = load_index(src, kind=kind, videos=videos, labels=labels)
    recipe, target = Recipe(short_side, keyframes, quality, damaged), Path(dst)
    processes = workers or os.cpu_count() or 1
    settings = {
        "src": _absolute(src),
        "kind": index.kind,
        "videos": _absolute(videos),
        "labels": _absolute(labels),
        **asdict(recipe),
        "shard_videos": shard_videos if shards else None,
    }
    claim(target, settings)
    if shards:
        report = make_shards(index, target, recipe, shard_videos, processes, settings)
    else:
        report = make_files(index, target, recipe, processes)
    report.src, report.missing = str(src), [sample.path for sample in index.missing]
    return report


def _absolute(path: str | Path | None) -> str | None:
    return None if path is None else str(Path(path).resolve())


def run_prepare(src: str, dst: str, *, json: bool = False, **settings: Any) -> None:
    """`prepare`, printed; a `UserError`, hence exit status 1, if nothing could be made."""
    import json as text

    report = prepare(src, dst, **settings)
    if json:
        print(text.dumps(asdict(report), indent=1))
    else:
        print(f"{report.videos:,} videos, {report.bytes / 2**20:,.1f} MiB in {report.dst}")
        for path, problem in report.failed:
            print(f"failed: {path}: {problem}", file=sys.stderr)
        if report.missing:
            print(f"missing: {len(report.missing)} listed files, first {report.missing[0]}", file=sys.stderr)
    if not report.videos:
        raise UserError(f"nothing was prepared: none of {len(report.failed)} videos in {src} could be encoded.")


def claim(target: Path, settings: dict[str, Any]) -> None:
    """Make the directory ours, or find that it already is."""
    path = target / SETTINGS
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        for name, value in settings.items():
            if before.get(name) != value:
                was = f"{target} was begun with {name}={before.get(name)!r}"
                raise SettingsConflict(f"{was}, this run has {name}={value!r}; choose another directory.")
    elif target.is_dir() and any(target.iterdir()):
        raise InputError(f"{target} is not empty and was not made by prepare; choose a new directory.")
    else:
        write_json(path, settings)


def make_files(index: Index, target: Path, recipe: Recipe, workers: int) -> PrepareReport:
    """`videos/…` and an `index.csv` that lists them, and those that could not be made under paths that do not exist."""
    listed = [*index.samples, *index.missing]
    paths = output_paths([sample.id for sample in listed])
    every = [FileJob(sample, path, target, recipe) for sample, path in zip(listed, paths, strict=True)]
    jobs, absent = every[: len(index.samples)], every[len(index.samples) :]
    before = _read_journal(target)
    done = {job.path: one for job in jobs if (one := before.get(job.path)) and one.source == job.source}
    waiting = [job for job in jobs if job.path not in done]
    with (target / JOURNAL).open("a", encoding="utf-8") as journal, counting("encoding", len(jobs)) as progress:
        for _ in range(len(jobs) - len(waiting)):
            progress.advance()
        for job, result in crash_safe_map(_make_file, waiting, workers):
            one = result or Done(job.path, job.source, problem=CRASH)
            done[one.path] = one
            journal.write(json.dumps(asdict(one)) + "\n")
            journal.flush()
            progress.advance()
    rows = [(job.sample, done[job.path]) for job in jobs]
    rows += [(job.sample, Done(job.path, job.source, problem=MISSING)) for job in absent]
    _write_table(index, target, rows)
    made = [one for _, one in rows if not one.problem]
    failed = [(sample.path, one.problem) for sample, one in rows[: len(jobs)] if one.problem]
    return PrepareReport("", str(target), len(made), sum(one.size for one in made), failed)


def _make_file(job: FileJob) -> Done:
    source = job.source  # before it is read: a file that changes meanwhile must be made again
    try:
        encoded = reencode(job.sample, job.recipe)
    except FAILURES as error:
        return Done(job.path, source, problem=str(error))
    with replacing(job.target / job.path) as temporary:
        temporary.write_bytes(encoded.data)
    return Done(job.path, source, encoded.frames, encoded.fps, len(encoded.data))


def _read_journal(target: Path) -> dict[str, Done]:
    """The videos that are made, by path, as last written; failures are tried again."""
    path = target / JOURNAL
    done = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            one = Done(**json.loads(line))
        except (json.JSONDecodeError, TypeError):
            continue  # the line that was being written when the work was interrupted
        done[one.path] = one
    return {path: one for path, one in done.items() if not one.problem and (target / path).is_file()}


def _write_table(index: Index, target: Path, rows: list[tuple[Sample, Done]]) -> None:
    """`index.csv`, in which a video that was not made is listed all the same, and `labels.txt`."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["path", "label", "class", "split", "frames", "group", "id", "problem"])
    for sample, one in rows:
        if one.problem:
            # what an earlier run made there, from another source, would be taken for this video
            (target / one.path).unlink(missing_ok=True)
        name, label = (index.labels[sample.label], sample.label) if sample.label >= 0 else ("", "")
        row = [one.path, label, name, sample.split, one.frames or "", sample.group or "", sample.id, one.problem]
        writer.writerow([_plain(str(cell)) for cell in row])
    write_text(target / "index.csv", table.getvalue())
    write_text(target / "labels.txt", "".join(f"{_plain(name)}\n" for name in index.labels))


def _plain(text: str) -> str:
    """The same text where it is text; a file name that is not has its odd bytes written out."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")


def output_paths(ids: list[str]) -> list[str]:
    """A path below `dst` for every id: its own folders and name where possible, always distinct and never outside."""
    taken: dict[str, int] = {}
    paths = []
    for name in ids:
        plain = PurePosixPath(name)
        plain = plain.with_suffix("") if plain.suffix.lower() in VIDEO_SUFFIXES else plain
        parts = [re.sub(r"[^\w.@=+-]", "_", part).lstrip(".") or "_" for part in plain.parts if part != "/"]
        stem = "/".join(parts) or "_"
        taken[stem] = taken.get(stem, 0) + 1
        paths.append(f"videos/{stem}{f'~{taken[stem]}' if taken[stem] > 1 else ''}.mp4")
    return paths
