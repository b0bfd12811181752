"""The shards of `fixformer prepare --shards`: each is made by one process, shuffled over the whole data set.

The layout is described in `listing/shards.py`.
"""

import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fixformer.config.schema import load
from fixformer.data.listing import Index, Sample
from fixformer.data.listing.shards import FORMAT, INDEX, FailedVideo, ShardEntry
from fixformer.data.listing.split import stable_key
from fixformer.data.prepare.encode import FAILURES, Encoded, EncodeSettings, reencode, source_of
from fixformer.data.prepare.prepare_report import CRASH, MISSING, PrepareReport
from fixformer.errors import UserError
from fixformer.runtime.files import read_json, replacing, write_json
from fixformer.runtime.pools import crash_safe_map
from fixformer.runtime.progress import counting

SEED = 0  # of the order of videos in the shards: the same list gives the same shards

Attempt = Encoded | str
"""An encoded video, or why there is none."""


@dataclass(frozen=True)
class ShardJob:
    """One shard to make; `first` is the number of its first video."""

    name: str
    first: int
    samples: list[Sample]
    labels: list[str]
    target: Path
    encoding: EncodeSettings

    @property
    def tar(self) -> Path:
        return self.target / self.name

    @property
    def sidecar(self) -> Path:
        """The list of the shard's videos. It is written last: a shard with a sidecar is finished."""
        return self.tar.with_suffix(".json")

    def listed(self) -> list[list[Any]]:
        """What should be in the shard, as its sidecar records it: a shard made from another list is not finished."""
        return [
            [number, *source_of(s), s.label, *self.labels[s.label : s.label + 1], s.split, s.group]
            for number, s in enumerate(self.samples, self.first)
        ]


@dataclass(frozen=True)
class ShardDone:
    """The videos of a finished shard, and those that could not be encoded."""

    entries: list[ShardEntry]
    failed: list[FailedVideo]


@dataclass(frozen=True)
class _Sidecar:
    """The file beside a shard."""

    listed: Any
    samples: tuple[ShardEntry, ...]
    failed: tuple[FailedVideo, ...]


def make_shards(
    index: Index, target: Path, encoding: EncodeSettings, shard_videos: int, workers: int, settings: dict[str, Any]
) -> PrepareReport:
    """Tar shards and `index.json`. Finished shards of an interrupted run are kept."""
    jobs = list(_plan(index, target, encoding, shard_videos))
    done = {job.name: known for job in jobs if (known := _read_sidecar(job))}
    waiting = [job for job in jobs if job.name not in done]
    with counting("encoding shards", len(jobs)) as progress:
        for _ in done:
            progress.advance()
        for job, result in crash_safe_map(_make_shard, waiting, workers):
            done[job.name] = result or _make_shard_carefully(job)
            progress.advance()
    parts = [done[job.name] for job in jobs]
    entries = [entry for part in parts for entry in part.entries]
    failed = [row for part in parts for row in part.failed]
    content = {
        "format": FORMAT,
        "labels": index.labels,
        "settings": settings,
        "failed": [asdict(row) for row in (*failed, *(_failure(sample, MISSING) for sample in index.missing))],
        "samples": [asdict(entry) for entry in entries],
    }
    write_json(target / INDEX, content)
    _remove_leftovers(target, {job.name for job in jobs})
    size = sum(entry.size for entry in entries)
    return PrepareReport("", str(target), len(entries), size, [(row.path, row.problem) for row in failed])


def _plan(index: Index, target: Path, encoding: EncodeSettings, shard_videos: int) -> Iterator[ShardJob]:
    """Shards of one split each; every shard is a random sample of its split, so that reading in order is shuffled."""
    number = 0
    for split in index.splits:
        order = sorted(index.split(split), key=lambda sample: stable_key(sample.id, SEED))
        for part, begin in enumerate(range(0, len(order), shard_videos)):
            samples = order[begin : begin + shard_videos]
            yield ShardJob(f"{split}-{part:06d}.tar", number, samples, index.labels, target, encoding)
            number += len(samples)


def _read_sidecar(job: ShardJob) -> ShardDone | None:
    """A finished shard of these very videos; None if it has to be made.

    One with failures is made again, because their cause may have been temporary; so is a damaged one.
    """
    if not job.sidecar.is_file() or not job.tar.is_file():
        return None
    try:
        sidecar = load(_Sidecar, read_json(job.sidecar))
    except UserError:
        return None
    if sidecar.failed or sidecar.listed != job.listed():
        return None
    described = [(entry.shard, entry.id, entry.label, entry.split, entry.group) for entry in sidecar.samples]
    wanted = [(job.name, sample.id, sample.label, sample.split, sample.group) for sample in job.samples]
    size = job.tar.stat().st_size
    is_whole = described == wanted and all(entry.offset + entry.size <= size for entry in sidecar.samples)
    return ShardDone(list(sidecar.samples), []) if is_whole else None


def _remove_leftovers(target: Path, names: set[str]) -> None:
    """Remove shards of an earlier, longer list: a reader of `train-*.tar` would take them for part of the set."""
    for tar in target.glob("*-[0-9][0-9][0-9][0-9][0-9][0-9].tar"):
        if tar.name not in names and tar.with_suffix(".json").is_file():
            tar.with_suffix(".json").unlink()
            tar.unlink()


def _make_shard(job: ShardJob) -> ShardDone:
    return _write(job, (_attempt(sample, job.encoding) for sample in job.samples))


def _make_shard_carefully(job: ShardJob) -> ShardDone:
    """One process per video, after one of them crashed the process that made the whole shard."""
    found: dict[Sample, Attempt] = {}
    for sample, result in crash_safe_map(partial(_attempt, encoding=job.encoding), job.samples, workers=2):
        found[sample] = result or CRASH
    return _write(job, (found[sample] for sample in job.samples))


def _attempt(sample: Sample, encoding: EncodeSettings) -> Attempt:
    try:
        return reencode(sample, encoding)
    except FAILURES as error:
        return str(error)


def _write(job: ShardJob, attempts: Iterable[Attempt]) -> ShardDone:
    """Write the tar, then its sidecar."""
    listed = job.listed()  # before the files are read: one that changes meanwhile must be encoded again
    job.sidecar.unlink(missing_ok=True)  # an old one must not describe the new tar
    entries, failed = [], []
    with replacing(job.tar) as temporary, tarfile.open(temporary, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number, (sample, result) in enumerate(zip(job.samples, attempts, strict=True), job.first):
            if isinstance(result, str):
                failed.append(_failure(sample, result))
            else:
                entries.append(append_video(tar, job.name, f"{number:09d}", sample, result, job.labels))
    write_json(job.sidecar, asdict(_Sidecar(listed, tuple(entries), tuple(failed))))
    return ShardDone(entries, failed)


def append_video(
    tar: tarfile.TarFile, shard: str, key: str, sample: Sample, video: Encoded, labels: list[str]
) -> ShardEntry:
    """Append `KEY.mp4` and its description `KEY.json` to a shard."""
    name = labels[sample.label] if sample.label >= 0 else None
    description = {"label": sample.label, "class": name, "id": sample.id, "frames": video.frames, "fps": video.fps}
    offset = tar.offset + tarfile.BLOCKSIZE  # the content begins after the header
    for suffix, data in (("mp4", video.data), ("json", json.dumps(description).encode())):
        header = tarfile.TarInfo(f"{key}.{suffix}")
        header.size = len(data)
        tar.addfile(header, io.BytesIO(data))
    return ShardEntry(
        key=key,
        shard=shard,
        offset=offset,
        size=len(video.data),
        label=sample.label,
        split=sample.split,
        frames=video.frames,
        fps=video.fps,
        id=sample.id,
        group=sample.group,
    )


def _failure(sample: Sample, problem: str) -> FailedVideo:
    return FailedVideo(sample.id, sample.path, sample.label, sample.split, sample.group, problem)
