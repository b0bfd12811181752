"""The output of `prepare` as files: `videos/…` with an `index.csv` that lists them."""

import csv
import io
import json
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fixformer.data.listing import Index, Sample
from fixformer.data.listing.escapes import ESCAPED_COLUMN, escape
from fixformer.data.prepare.encode import FAILURES, EncodeSettings, reencode, source_of
from fixformer.data.prepare.prepare_report import CRASH, MISSING, PrepareReport
from fixformer.data.video.suffixes import VIDEO_SUFFIXES
from fixformer.runtime.files import appending, read_records, replacing, shortened, write_text
from fixformer.runtime.pools import crash_safe_map
from fixformer.runtime.progress import counting

JOURNAL = "done.jsonl"
SUFFIX_BYTES = 12  # left in a name for `~123456` and `.mp4`


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


def make_files(index: Index, target: Path, encoding: EncodeSettings, workers: int) -> PrepareReport:
    """Encode into `videos/…`, and list all videos in `index.csv`, those that failed under paths that do not exist."""
    listed = [*index.samples, *index.missing]
    paths = output_paths([sample.id for sample in listed])
    every = [FileJob(sample, path, target, encoding) for sample, path in zip(listed, paths, strict=True)]
    jobs, absent = every[: len(index.samples)], every[len(index.samples) :]
    before = _read_journal(target)
    results = {job.path: old for job in jobs if (old := before.get(job.path)) and old.source == job.source}
    waiting = [job for job in jobs if job.path not in results]
    with appending(target / JOURNAL) as record, counting("encoding", len(jobs)) as progress:
        for _ in results:
            progress.advance()
        for job, made in crash_safe_map(_make_file, waiting, workers):
            result = made or FileResult(job.path, job.source, problem=CRASH)
            results[result.path] = result
            record(result)
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
    results = {result.path: result for result in read_records(target / JOURNAL, FileResult)}
    return {path: result for path, result in results.items() if not result.problem and (target / path).is_file()}


def _write_table(index: Index, target: Path, rows: list[tuple[Sample, FileResult]]) -> None:
    """`index.csv`, which also lists the videos that failed, and `labels.txt`."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["path", "label", "class", "split", "frames", "group", "id", "problem", ESCAPED_COLUMN])
    for sample, result in rows:
        if result.problem:
            # a file that an earlier run made there, from another source, would be taken for this video
            (target / result.path).unlink(missing_ok=True)
        label, name = (sample.label, index.labels[sample.label]) if sample.label >= 0 else ("", "")
        video = [sample.split, result.frames or "", sample.group or "", sample.id, result.problem]
        cells = [str(cell) for cell in (result.path, label, name, *video)]
        escaped = [escape(cell) for cell in cells]
        writer.writerow([*escaped, "yes" if escaped != cells else ""])
    write_text(target / "index.csv", table.getvalue())
    write_text(target / "labels.txt", "".join(f"{escape(name)}\n" for name in index.labels))


def output_paths(ids: list[str]) -> list[str]:
    """A path below `dst` for every id: its folders and name where possible, always distinct, never outside `dst`.

    Distinct also where the file system does not tell upper case from lower case, or `é` from `e` with an accent.
    """
    taken: Counter[str] = Counter()
    paths = []
    for name in ids:
        plain = PurePosixPath(name)
        plain = plain.with_suffix("") if plain.suffix.lower() in VIDEO_SUFFIXES else plain
        parts = [re.sub(r"[^\w.@=+-]", "_", part).lstrip(".") or "_" for part in plain.parts if part != "/"]
        stem = "/".join(shortened(part, SUFFIX_BYTES) for part in parts) or "_"
        key = unicodedata.normalize("NFC", stem).casefold()
        taken[key] += 1
        paths.append(f"videos/{stem}{f'~{taken[key]}' if taken[key] > 1 else ''}.mp4")
    return paths
