"""The shards of `fixformer prepare --shards`: each is made by one process, shuffled over the whole data set."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fixformer.data.listing import Index, Sample
from fixformer.data.listing.shards import Entry, Member, ShardSet, write_index, write_shard
from fixformer.data.listing.split import stable_key
from fixformer.data.prepare.encode import FAILURES, Encoded, Recipe, reencode, source_of
from fixformer.data.prepare.prepare import CRASH, MISSING, PrepareReport
from fixformer.runtime.crash_safe_pool import surviving_map
from fixformer.runtime.files import write_json
from fixformer.runtime.progress import counting

SEED = 0


@dataclass(frozen=True)
class ShardJob:
    """One shard to make; `first` is the number of its first video."""

    name: str
    first: int
    samples: list[Sample]
    labels: list[str]
    target: Path
    recipe: Recipe

    @property
    def listed(self) -> list[list[Any]]:
        """What is to be in the shard, as its sidecar records it: a shard made from another list is not finished."""
        return [
            [number, *source_of(s), s.label, *self.labels[s.label : s.label + 1], s.split, s.group]
            for number, s in enumerate(self.samples, self.first)
        ]


@dataclass(frozen=True)
class ShardDone:
    """What became of the videos of a shard."""

    entries: list[Entry]
    failed: list[dict[str, Any]]


Attempt = Encoded | str


def make_shards(
    index: Index, target: Path, recipe: Recipe, shard_videos: int, workers: int, settings: dict[str, Any]
) -> PrepareReport:
    """Tar shards and `index.json`."""
    jobs = list(_plan(index, target, recipe, shard_videos))
    done = {job.name: known for job in jobs if (known := _read_sidecar(job))}
    waiting = [job for job in jobs if job.name not in done]
    with counting("encoding shards", len(jobs)) as progress:
        for _ in done:
            progress.advance()
        for job, result in surviving_map(_make_shard, waiting, workers):
            done[job.name] = result or _make_shard_carefully(job)
            progress.advance()
    parts = [done[job.name] for job in jobs]
    entries = [entry for part in parts for entry in part.entries]
    failed = [row for part in parts for row in part.failed]
    missing = [_failure(sample, MISSING) for sample in index.missing]
    write_index(ShardSet(target, index.labels, entries, failed + missing, settings))
    _remove_leftovers(target, {job.name for job in jobs})
    size = sum(entry.size for entry in entries)
    return PrepareReport("", str(target), len(entries), size, [(row["path"], row["problem"]) for row in failed])


def _plan(index: Index, target: Path, recipe: Recipe, shard_videos: int) -> Iterator[ShardJob]:
    """Shards of one split each; every shard is a random sample of its split, so that reading in order is no order."""
    number = 0
    for split in index.splits:
        order = sorted(index.split(split), key=lambda sample: stable_key(sample.id, SEED))
        for part, begin in enumerate(range(0, len(order), shard_videos)):
            samples = order[begin : begin + shard_videos]
            yield ShardJob(f"{split}-{part:06d}.tar", number, samples, index.labels, target, recipe)
            number += len(samples)


def _remove_leftovers(target: Path, names: set[str]) -> None:
    """Shards of a longer list than today's: whoever reads `train-*.tar` would take them for part of the set."""
    for tar in target.glob("*-[0-9][0-9][0-9][0-9][0-9][0-9].tar"):
        if tar.name not in names and tar.with_suffix(".json").is_file():
            tar.with_suffix(".json").unlink()
            tar.unlink()


def _make_shard(job: ShardJob) -> ShardDone:
    return _write(job, ((sample, _attempt(sample, job.recipe)) for sample in job.samples))


def _make_shard_carefully(job: ShardJob) -> ShardDone:
    """One process per video, after one of them took the process of the whole shard down."""
    found: dict[Sample, Attempt] = {}
    for sample, result in surviving_map(partial(_attempt, recipe=job.recipe), job.samples, workers=2):
        found[sample] = result or CRASH
    return _write(job, ((sample, found[sample]) for sample in job.samples))


def _attempt(sample: Sample, recipe: Recipe) -> Attempt:
    try:
        return reencode(sample, recipe)
    except FAILURES as error:
        return str(error)


def _write(job: ShardJob, attempts: Iterable[tuple[Sample, Attempt]]) -> ShardDone:
    failed: list[dict[str, Any]] = []
    listed = job.listed  # before they are read: a file that changes meanwhile must be made again

    def members() -> Iterator[Member]:
        for number, (sample, result) in enumerate(attempts, job.first):
            if isinstance(result, str):
                failed.append(_failure(sample, result))
            else:
                yield Member(f"{number:09d}", result.data, sample, result.frames, result.fps)

    # until the new list is written, the old one must not vouch for the new tar
    _sidecar(job).unlink(missing_ok=True)
    done = ShardDone(write_shard(job.target / job.name, members(), job.labels), failed)
    # written last: a shard is finished when its list is there
    rows = {"listed": listed, "samples": [asdict(entry) for entry in done.entries], "failed": done.failed}
    write_json(_sidecar(job), rows)
    return done


def _failure(sample: Sample, problem: str) -> dict[str, Any]:
    return {
        "id": sample.id,
        "path": sample.path,
        "label": sample.label,
        "split": sample.split,
        "group": sample.group,
        "problem": problem,
    }


def _sidecar(job: ShardJob) -> Path:
    return (job.target / job.name).with_suffix(".json")


def _read_sidecar(job: ShardJob) -> ShardDone | None:
    """A finished shard of these very videos. One with failures is made again: they may have been of the moment."""
    if not _sidecar(job).is_file() or not (job.target / job.name).is_file():
        return None
    rows = json.loads(_sidecar(job).read_text(encoding="utf-8"))
    return (
        None
        if rows["failed"] or rows.get("listed") != job.listed
        else ShardDone([Entry(**row) for row in rows["samples"]], [])
    )
