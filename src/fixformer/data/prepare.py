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

from fixformer.data.decode import DecodeError, Policy
from fixformer.data.index import Index, Sample, load_index
from fixformer.data.index_base import VIDEO_SUFFIXES
from fixformer.data.reencode import Recipe, reencode, require_encoder
from fixformer.data.robust import surviving_map
from fixformer.errors import InputError, SettingsConflict, UserError
from fixformer.files import replacing, write_json, write_text
from fixformer.progress import counting

SETTINGS = "prepare.json"
JOURNAL = "done.jsonl"
CRASH = "the decoder crashed on it"


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
    """What became of one video: a file below `dst`, or a problem."""

    id: str
    path: str
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
    from fixformer.data.prepare_shards import make_shards

    require_encoder()
    index = load_index(src, kind=kind, videos=videos, labels=labels)
    recipe, target = Recipe(short_side, keyframes, quality, damaged), Path(dst)
    processes = workers or os.cpu_count() or 1
    settings = {"src": str(Path(src).resolve()), **asdict(recipe), "shard_videos": shard_videos if shards else None}
    claim(target, settings)
    if shards:
        report = make_shards(index, target, recipe, shard_videos, processes, settings)
    else:
        report = make_files(index, target, recipe, processes)
    report.src, report.missing = str(src), [sample.path for sample in index.missing]
    return report


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
    """`videos/…` and an `index.csv` that lists them."""
    paths = output_paths([sample.id for sample in index.samples])
    jobs = [FileJob(sample, path, target, recipe) for sample, path in zip(index.samples, paths, strict=True)]
    done = _read_journal(target)
    waiting = [job for job in jobs if job.sample.id not in done]
    with (target / JOURNAL).open("a", encoding="utf-8") as journal, counting("encoding", len(jobs)) as progress:
        for _ in range(len(jobs) - len(waiting)):
            progress.advance()
        for job, result in surviving_map(_make_file, waiting, workers):
            one = result or Done(job.sample.id, job.path, problem=CRASH)
            done[one.id] = one
            journal.write(json.dumps(asdict(one)) + "\n")
            journal.flush()
            progress.advance()
    return _finish(index, target, done)


def _make_file(job: FileJob) -> Done:
    try:
        encoded = reencode(job.sample, job.recipe)
    except (DecodeError, InputError) as error:
        return Done(job.sample.id, job.path, problem=str(error))
    with replacing(job.target / job.path) as temporary:
        temporary.write_bytes(encoded.data)
    return Done(job.sample.id, job.path, encoded.frames, encoded.fps, len(encoded.data))


def _read_journal(target: Path) -> dict[str, Done]:
    """The videos that are made; failures are tried again."""
    path = target / JOURNAL
    done = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            one = Done(**json.loads(line))
        except (json.JSONDecodeError, TypeError):
            continue  # the line that was being written when the work was interrupted
        if not one.problem and (target / one.path).is_file():
            done[one.id] = one
    return done


def _finish(index: Index, target: Path, done: dict[str, Done]) -> PrepareReport:
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["path", "label", "class", "split", "frames", "group", "id"])
    made = [(sample, done[sample.id]) for sample in index.samples if not done[sample.id].problem]
    for sample, one in made:
        name = index.labels[sample.label] if sample.label >= 0 else ""
        label = sample.label if sample.label >= 0 else ""
        writer.writerow([one.path, label, name, sample.split, one.frames, sample.group or "", sample.id])
    write_text(target / "index.csv", table.getvalue())
    write_text(target / "labels.txt", "".join(f"{name}\n" for name in index.labels))
    failed = [(s.path, done[s.id].problem) for s in index.samples if done[s.id].problem]
    return PrepareReport("", str(target), len(made), sum(one.size for _, one in made), failed)


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
