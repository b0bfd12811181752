"""Decode once: every video's kept frames as bytes in memory-mapped files.

What is stored is exactly what `open_frames` gives under a `ClipSpec` (part of the file, `keep_frames`,
`keep_short_side`), so clips made from the cache equal clips made from the files, whatever is sampled and augmented.

A directory per setting holds shards: `NAME.bin` (for each video its times as float64, then its frames `T,H,W,3`, padded
to 8 bytes) and `NAME.json` (digest, place and shape of each). Videos are found by the digest of their content, so moved
or renamed files are still known and changed ones are not. A shard appears by renaming, its JSON last: an interrupted
build loses at most the shards being written and goes on where it was. Several builds at once do not disturb each other.
A video without a clock (a folder of images) has nan for times.
"""

import hashlib
import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fixformer.data.clips.frames import FrameReader, FrameSource
from fixformer.data.listing import Sample
from fixformer.data.video import DecodeError
from fixformer.data.video.content import content_digest, stamp_of
from fixformer.errors import InputError, UserError
from fixformer.runtime.pools import unordered_map
from fixformer.runtime.progress import Report

FORMAT = 1
SHARD_VIDEOS = 32
ABANDONED_SECONDS = 86400


@dataclass(frozen=True)
class Entry:
    """Where a video lies in its shard. `shape` is T, H, W."""

    digest: str
    offset: int
    shape: tuple[int, int, int]
    fps: float | None

    @property
    def frames_offset(self) -> int:
        return self.offset + 8 * self.shape[0]


class CachedFrames:
    """A `FrameSource` whose frames are already decoded."""

    def __init__(self, frames_THWC: np.ndarray, timestamps: np.ndarray, fps: float | None, file: str) -> None:
        self.fps = fps
        self._frames, self._times, self._file = frames_THWC, timestamps, file

    @property
    def timestamps(self) -> np.ndarray:
        if np.isnan(self._times).any():
            raise InputError(f"{self._file} has no clock, as folders of images have none; sample it by frames.")
        return self._times

    def __len__(self) -> int:
        return len(self._frames)

    def get_frames(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(self._frames[np.asarray(indices)])


class CacheTable:
    """The entries of a list of samples, in arrays (see `table`); a sample that could not be cached has none."""

    def __init__(self, shards: list[Path], rows: Sequence[tuple[int, Entry] | None]) -> None:
        self._shards = [str(path) for path in shards]
        self._shard = np.array([-1 if row is None else row[0] for row in rows], np.int32)
        entries = [row[1] if row else Entry("", 0, (0, 0, 0), None) for row in rows]
        self._offset = np.array([entry.offset for entry in entries], np.int64)
        self._shape = np.array([entry.shape for entry in entries], np.int32).reshape(-1, 3)
        self._fps = np.array([np.nan if entry.fps is None else entry.fps for entry in entries], np.float64)
        self._maps: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self._shard)

    def __contains__(self, index: int) -> bool:
        return bool(self._shard[index] >= 0)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_maps": {}}

    @property
    def left_out(self) -> list[int]:
        """Places of the samples that are not in the cache."""
        return [int(index) for index in np.flatnonzero(self._shard < 0)]

    @property
    def bytes(self) -> int:
        return sum(os.path.getsize(path) for path in self._shards)

    def frames(self, index: int, file: str = "the video") -> CachedFrames:
        """`file` is its name in messages."""
        data = self._map(int(self._shard[index]))
        count, height, width = (int(size) for size in self._shape[index])
        begin = int(self._offset[index])
        middle = begin + 8 * count
        times = data[begin:middle].view(np.float64)
        frames = data[middle : middle + count * height * width * 3].reshape(count, height, width, 3)
        fps = float(self._fps[index])
        return CachedFrames(frames, times, None if np.isnan(fps) else fps, file)

    def _map(self, shard: int) -> np.ndarray:
        if shard not in self._maps:
            self._maps[shard] = np.memmap(self._shards[shard], np.uint8, "r")
        return self._maps[shard]


class CachedReader:
    """Opens samples from the cache, and by decoding those that are not in it."""

    def __init__(self, table: CacheTable, decoding: FrameReader) -> None:
        self.table, self.decoding = table, decoding

    @contextmanager
    def open(self, index: int, sample: Sample) -> Iterator[FrameSource]:
        if index in self.table:
            yield self.table.frames(index, sample.path)
        else:
            with self.decoding.open(index, sample) as frames:
                yield frames


def fill_cache(
    samples: Sequence[Sample],
    reader: FrameReader,
    folder: str | Path,
    *,
    workers: int = 0,
    progress: Report | None = None,
) -> CacheTable:
    """Store what is not stored yet and return the entries of the samples. Unreadable videos are `left_out`."""
    home = Path(folder) / _settings_key(reader)
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"the cache directory {home} cannot be made: {error}.") from None
    _sweep(home)
    digests = _digests(samples, home, workers)
    known = _read_shards(home)
    missing = [(digest, s) for digest, s in zip(digests, samples, strict=True) if digest and digest not in known]
    jobs = [_Job(home, reader, tuple(missing[i : i + SHARD_VIDEOS])) for i in range(0, len(missing), SHARD_VIDEOS)]
    done = len(samples) - len(missing)
    for job, _ in unordered_map(_write_shard, jobs, workers):
        done += len(job.videos)
        if progress:
            progress(done, len(samples))
    known = _read_shards(home)
    shards = sorted({path for path, _ in known.values()})
    place = {path: i for i, path in enumerate(shards)}
    rows = [(place[known[d][0]], known[d][1]) if d in known else None for d in digests]
    return CacheTable(shards, rows)


@dataclass(frozen=True)
class _Job:
    home: Path
    reader: FrameReader
    videos: tuple[tuple[str, Sample], ...]


def _settings_key(reader: FrameReader) -> str:
    spec = reader.spec
    settings = (FORMAT, spec.keep_frames, spec.keep_short_side, reader.backend, reader.damaged)
    name = f"{spec.keep_frames or 'all'}x{spec.keep_short_side or 'full'}"
    return f"{name}-{hashlib.blake2b(repr(settings).encode(), digest_size=6).hexdigest()}"


def _write_shard(job: _Job) -> None:
    """Decode the job's videos into one new shard."""
    temporary = _temporary(job.home)
    try:
        with temporary.open("wb") as file:
            entries = [entry for digest, sample in job.videos if (entry := _append(file, digest, sample, job.reader))]
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        if entries:
            target = temporary.with_suffix(".bin")
            temporary.replace(target)
            write_json(target.with_suffix(".json"), {"bytes": size, "videos": [asdict(entry) for entry in entries]})
    except OSError as error:
        raise UserError(f"the cache in {job.home} cannot be written: {error}.") from None
    finally:
        temporary.unlink(missing_ok=True)


def _append(file: BinaryIO, digest: str, sample: Sample, reader: FrameReader) -> Entry | None:
    try:
        with reader.open(0, sample) as source:
            frames = source.get_frames(range(len(source)))
            times = _times(source)
            fps = source.fps
    except (DecodeError, InputError, FileNotFoundError):
        return None
    count, height, width, _ = frames.shape
    entry = Entry(digest, file.tell(), (count, height, width), fps)
    file.write(times.tobytes())
    file.write(frames.tobytes())
    file.write(b"\0" * (-file.tell() % 8))
    return entry


def _times(source: FrameSource) -> np.ndarray:
    try:
        return source.timestamps.astype(np.float64)
    except InputError:
        return np.full(len(source), np.nan)


def _read_shards(home: Path) -> dict[str, tuple[Path, Entry]]:
    """Digest -> shard and entry; a shard that is not described, or not as long as described, is ignored."""
    known: dict[str, tuple[Path, Entry]] = {}
    for path in sorted(home.glob("*.json")):
        if path.name == "files.json":
            continue
        content = _read_json(path)
        data = path.with_suffix(".bin")
        if data.exists() and data.stat().st_size == content.get("bytes"):
            for row in content["videos"]:
                known[row["digest"]] = (data, Entry(row["digest"], row["offset"], tuple(row["shape"]), row["fps"]))
    return known


def _digests(samples: Sequence[Sample], home: Path, workers: int) -> list[str | None]:
    """Of each sample's content and part; None if the file cannot be read. Unchanged files are not read again."""
    memory_path = home / "files.json"
    memory = _read_json(memory_path)
    stamps = {s.path: stamp for s in samples if (stamp := _stamp(s.path))}
    unknown = [path for path, stamp in stamps.items() if memory.get(path, [None])[0] != stamp]
    for path, digest in unordered_map(_digest, unknown, workers if len(unknown) > 100 else 0):
        if digest is None:
            del stamps[path]
        else:
            memory[path] = [stamps[path], digest]
    if unknown:
        write_json(memory_path, memory)
    return [_digest_of_part(memory[s.path][1], s) if s.path in stamps else None for s in samples]


def _stamp(path: str) -> str | None:
    try:
        size, changed = stamp_of(path)
    except OSError:
        return None
    return f"{size}/{changed}"


def _digest(path: str) -> str | None:
    try:
        return content_digest(path)
    except OSError:
        return None


def _digest_of_part(digest: str, sample: Sample) -> str:
    return digest if sample.start is None and sample.end is None else f"{digest}@{sample.start}-{sample.end}"


def _read_json(path: Path) -> dict[str, Any]:
    """What a machine that lost power left empty or half-written counts as absent."""
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write_json(path: Path, content: object) -> None:
    """Atomically: a reader sees the old file or the new one."""
    temporary = _temporary(path.parent)
    with temporary.open("w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _temporary(folder: Path) -> Path:
    return folder / f"{uuid.uuid4().hex}.tmp"


def _sweep(home: Path) -> None:
    """Remove what builds killed more than a day ago left behind."""
    for path in [*home.glob("*.tmp"), *home.glob("*.bin")]:
        with suppress(FileNotFoundError):  # another build sweeps, or renames what it has finished
            if not path.with_suffix(".json").exists() and time.time() - path.stat().st_mtime > ABANDONED_SECONDS:
                path.unlink()
