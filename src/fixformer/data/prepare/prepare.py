"""`fixformer prepare`: encode a data set again so that training reads it fast, as files or in tar shards.

An interrupted `prepare` resumes: a file or shard is either complete and recorded, or made again.
"""

import csv
import io
import json
import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from fixformer.data.listing import Index, Sample, load_index
from fixformer.data.prepare.encode import FAILURES, EncodeSettings, reencode, require_encoder, source_of
from fixformer.data.video import Policy
from fixformer.data.video.suffixes import VIDEO_SUFFIXES
from fixformer.errors import InputError, SettingsConflict
from fixformer.runtime.files import replacing, write_json, write_text
from fixformer.runtime.pools import crash_safe_map, processors
from fixformer.runtime.progress import counting

SETTINGS = "prepare.json"
JOURNAL = "done.jsonl"
CRASH = "the decoder crashed on it"
MISSING = "listed, but the file does not exist"


@dataclass
class PrepareReport:
    """What was encoded. `failed` holds (path, problem) of the videos that could not be."""

    src: str
    dst: str
    videos: int = 0
    bytes: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class FileResult:
    """The outcome for one video: a file below `dst`, or a problem. `source` is what it was made from."""

    path: str
    source: str
    frames: int = 0
    fps: float | None = None
    size: int = 0
    problem: str = ""


@dataclass(frozen=True)
class FileJob:
    """One video to encode."""

    sample: Sample
    path: str
    target: Path
    encoding: EncodeSettings

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
        src: the data set, in any layout that training accepts; `kind`, `videos` and `labels` as for `load_index`.
        dst: a new directory, or that of an interrupted `prepare` with the same settings.
        short_side: this, `keyframes`, `quality` and `damaged` are explained at `EncodeSettings`.
        shards: write tar shards of `shard_videos` videos each, with an index, instead of files with a CSV.
        workers: processes; by default one per available core.
    """
    from fixformer.data.prepare.shard_files import make_shards  # which imports this module

    require_encoder()
    index = load_index(src, kind=kind, videos=videos, labels=labels)
    encoding, target = EncodeSettings(short_side, keyframes, quality, damaged), Path(dst)
    processes = workers or processors()
    settings = {
        "src": str(Path(src).resolve()),
        "kind": index.kind,
        "videos": str(Path(videos).resolve()) if videos else None,
        "labels": str(Path(labels).resolve()) if labels else None,
        **asdict(encoding),
        "shard_videos": shard_videos if shards else None,
    }
    claim(target, settings)
    if shards:
        report = make_shards(index, target, encoding, shard_videos, processes, settings)
    else:
        report = make_files(index, target, encoding, processes)
    report.src, report.missing = str(src), [sample.path for sample in index.missing]
    return report


def claim(target: Path, settings: dict[str, Any]) -> None:
    """Record the settings in a new directory; in one that was begun before, require them to be the same."""
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


def make_files(index: Index, target: Path, encoding: EncodeSettings, workers: int) -> PrepareReport:
    """Encode into `videos/…`, and list all videos in `index.csv`, those that failed under paths that do not exist."""
    listed = [*index.samples, *index.missing]
    paths = output_paths([sample.id for sample in listed])
    every = [FileJob(sample, path, target, encoding) for sample, path in zip(listed, paths, strict=True)]
    jobs, absent = every[: len(index.samples)], every[len(index.samples) :]
    before = _read_journal(target)
    results = {job.path: old for job in jobs if (old := before.get(job.path)) and old.source == job.source}
    waiting = [job for job in jobs if job.path not in results]
    with (target / JOURNAL).open("a", encoding="utf-8") as journal, counting("encoding", len(jobs)) as progress:
        for _ in results:
            progress.advance()
        for job, made in crash_safe_map(_make_file, waiting, workers):
            result = made or FileResult(job.path, job.source, problem=CRASH)
            results[result.path] = result
            journal.write(json.dumps(asdict(result)) + "\n")
            journal.flush()
            progress.advance()
    rows = [(job.sample, results[job.path]) for job in jobs]
    failed = [(sample.path, result.problem) for sample, result in rows if result.problem]
    _write_table(index, target, rows + [(job.sample, FileResult(job.path, "", problem=MISSING)) for job in absent])
    good = [result for _, result in rows if not result.problem]
    return PrepareReport("", str(target), len(good), sum(result.size for result in good), failed)


def _make_file(job: FileJob) -> FileResult:
    source = job.source  # taken before reading: a file that changes meanwhile must be encoded again
    try:
        encoded = reencode(job.sample, job.encoding)
    except FAILURES as error:
        return FileResult(job.path, source, problem=str(error))
    with replacing(job.target / job.path) as temporary:
        temporary.write_bytes(encoded.data)
    return FileResult(job.path, source, encoded.frames, encoded.fps, len(encoded.data))


def _read_journal(target: Path) -> dict[str, FileResult]:
    """The finished videos by path, by the last line about each; failures are tried again."""
    path = target / JOURNAL
    results = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            result = FileResult(**json.loads(line))
        except (json.JSONDecodeError, TypeError):
            continue  # the line that was being written at the interruption
        results[result.path] = result
    return {path: result for path, result in results.items() if not result.problem and (target / path).is_file()}


def _write_table(index: Index, target: Path, rows: list[tuple[Sample, FileResult]]) -> None:
    """`index.csv`, which also lists the videos that failed, and `labels.txt`."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["path", "label", "class", "split", "frames", "group", "id", "problem"])
    for sample, result in rows:
        if result.problem:
            # a file that an earlier run made there, from another source, would be taken for this video
            (target / result.path).unlink(missing_ok=True)
        label, name = (sample.label, index.labels[sample.label]) if sample.label >= 0 else ("", "")
        video = [sample.split, result.frames or "", sample.group or "", sample.id, result.problem]
        writer.writerow([_as_text(str(cell)) for cell in (result.path, label, name, *video)])
    write_text(target / "index.csv", table.getvalue())
    write_text(target / "labels.txt", "".join(f"{_as_text(name)}\n" for name in index.labels))


def _as_text(text: str) -> str:
    """Valid UTF-8: in a file name that is not, the other bytes are written as escapes."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")


def output_paths(ids: list[str]) -> list[str]:
    """A path below `dst` for every id: its folders and name where possible, always distinct, never outside `dst`."""
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
