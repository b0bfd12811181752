"""Decode once: every video's kept frames as bytes in memory-mapped files.

What is stored is exactly what `open_frames` gives under a `ClipSpec` (part of the file, `keep_frames`,
`keep_short_side`), so clips made from the cache equal clips made from the files, whatever is sampled and augmented.

A directory per setting holds shards: `NAME.bin` (for each video its times as float64, the CRC-32 of each frame as
uint32, then its frames `T,H,W,3`, padded to 8 bytes) and `NAME.json` (digest, place and shape of each). Videos are
found by the digest of their content, so moved or renamed files are still known and changed ones are not. A shard
appears by renaming, its JSON last: an interrupted build loses at most the shards being written and resumes from the
others. Several builds can run at once. A video without timestamps (a folder of images) has NaN for times.

Every frame is compared with its CRC when it is read. A shard that fails loses its JSON, so that the next build decodes
its videos again; until then they are decoded each time.
"""

import hashlib
import time
import uuid
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fixformer.data.clips.frames import FrameSource
from fixformer.data.listing import Sample
from fixformer.data.loading.reader import DecodingReader
from fixformer.data.video import DecodeError
from fixformer.data.video.content import content_digest, stamp_of
from fixformer.data.video.decoder import NoTimestamps
from fixformer.errors import InputError, UserError
from fixformer.runtime.console import note, printable
from fixformer.runtime.files import (
    WriteError,
    check_writable,
    make_output,
    parse_json,
    read_text,
    replacing,
    require_regular,
    write_json,
)
from fixformer.runtime.pools import unordered_map
from fixformer.runtime.progress import Report

FORMAT = 2  # format 1 had no CRCs; its directories have other names and are ignored
# per shard: what an interrupted build loses at most, and the unit of work of a process
SHARD_VIDEOS = 32
# no build takes a day for one shard, so an unfinished file this old has no writer any more
ABANDONED_SECONDS = 86400
# with fewer new files than this, reading them takes less time than starting processes
DIGESTS_WORTH_PROCESSES = 100


class CacheUnwritable(UserError):
    """The directory of a cache cannot be written, or its disk is full, so there is none."""


@dataclass(frozen=True)
class CacheEntry:
    """Where a video is in its shard. `shape` is T, H, W; `check` is the CRC of all this but the frames."""

    digest: str
    offset: int
    shape: tuple[int, int, int]
    fps: float | None
    check: int

    @property
    def end(self) -> int:
        count, height, width = self.shape
        return self.offset + (HEAD_BYTES + height * width * 3) * count


# of a frame's time and CRC
HEAD_BYTES = 12


def _check_of(head: bytes, shape: tuple[int, ...], fps: float | None) -> int:
    return zlib.crc32(head, zlib.crc32(repr((shape, fps)).encode()))


class CacheDamaged(DecodeError):
    """A shard of the cache that is not what was written."""


class CachedFrames:
    """A `FrameSource` whose frames are already decoded."""

    def __init__(
        self, frames_THWC: np.ndarray, timestamps: np.ndarray, checks: np.ndarray, fps: float | None, file: str
    ) -> None:
        self.fps = fps
        self._frames, self._times, self._checks, self._file = frames_THWC, timestamps, checks, file

    @property
    def timestamps(self) -> np.ndarray:
        if np.isnan(self._times).any():
            raise NoTimestamps(self._file)
        return self._times

    def __len__(self) -> int:
        return len(self._frames)

    def get_frames(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
        numbers = np.asarray(indices)
        frames_THWC = np.ascontiguousarray(self._frames[numbers])
        for number, picture_HWC in dict(zip(numbers.tolist(), frames_THWC, strict=True)).items():
            if zlib.crc32(picture_HWC) != self._checks[number]:
                raise CacheDamaged(f"frame {number} in the cache has changed", file=self._file)
        return frames_THWC


class CacheTable:
    """The entries of a list of samples, in arrays (see `table`); a sample that could not be cached has none."""

    def __init__(self, shards: list[Path], rows: Sequence[tuple[int, CacheEntry] | None]) -> None:
        self._shards = [str(path) for path in shards]
        self._shard = np.array([-1 if row is None else row[0] for row in rows], np.int32)
        entries = [row[1] if row else CacheEntry("", 0, (0, 0, 0), None, 0) for row in rows]
        self._offset = np.array([entry.offset for entry in entries], np.int64)
        self._shape = np.array([entry.shape for entry in entries], np.int32).reshape(-1, 3)
        self._fps = np.array([np.nan if entry.fps is None else entry.fps for entry in entries], np.float64)
        self._check = np.array([entry.check for entry in entries], np.uint32)
        self._maps: dict[int, np.ndarray] = {}

    def __contains__(self, index: int) -> bool:
        return bool(self._shard[index] >= 0)

    def __getstate__(self) -> dict[str, object]:
        # a pickled memory map would be a copy of the whole shard
        return {**self.__dict__, "_maps": {}}

    @property
    def left_out(self) -> list[int]:
        """Numbers of the samples that are not in the cache."""
        return [int(index) for index in np.flatnonzero(self._shard < 0)]

    def frames(self, index: int, file: str = "the video") -> CachedFrames:
        """The video of a sample; `file` is its name in error messages."""
        shard, begin = int(self._shard[index]), int(self._offset[index])
        count, height, width = shape = tuple(int(size) for size in self._shape[index])
        fps = None if np.isnan(self._fps[index]) else float(self._fps[index])
        try:
            if shard not in self._maps:
                require_regular(self._shards[shard])
                self._maps[shard] = np.memmap(self._shards[shard], np.uint8, "r")
        except (OSError, ValueError) as error:  # deleted or emptied meanwhile
            raise CacheDamaged(f"the cache cannot be read ({error})", file=file) from None
        times_end, head_end = begin + 8 * count, begin + HEAD_BYTES * count
        end = head_end + count * height * width * 3
        data = self._maps[shard]
        if end > len(data) or _check_of(data[begin:head_end].tobytes(), shape, fps) != self._check[index]:
            raise CacheDamaged("its entry in the cache has changed", file=file)
        times, checks = data[begin:times_end].view(np.float64), data[times_end:head_end].view(np.uint32)
        return CachedFrames(data[head_end:end].reshape(count, height, width, 3), times, checks, fps, file)

    def distrust(self, index: int, reason: str) -> None:
        """No longer use the shard of a sample, here and in later runs. Of several processes one says so."""
        shard = int(self._shard[index])
        self._shard[self._shard == shard] = -1
        try:
            Path(self._shards[shard]).with_suffix(".json").unlink()
        except FileNotFoundError:
            return  # another process was first
        except OSError:
            pass  # a cache that only others may write
        note(f"note: {printable(self._shards[shard])} is damaged ({printable(reason)}); its videos are decoded again")


class CachedReader:
    """A `VideoReader` that takes videos from the cache, and decodes those that are not in it, or no longer intact.

    Damage shows when frames are read; that attempt fails like that of an undecodable video, and the next one decodes.
    """

    def __init__(self, table: CacheTable, decoding: DecodingReader) -> None:
        self.table, self.decoding = table, decoding

    @contextmanager
    def open(self, index: int, sample: Sample, content: bytes | None = None) -> Iterator[FrameSource]:
        if index in self.table:
            try:
                yield self.table.frames(index, sample.path)
            except CacheDamaged as error:
                self.table.distrust(index, error.problem)
                raise
        else:
            with self.decoding.open(index, sample, content) as frames:
                yield frames


def fill_cache(
    samples: Sequence[Sample],
    reader: DecodingReader,
    folder: str | Path,
    *,
    workers: int = 0,
    progress: Report | None = None,
) -> CacheTable:
    """Store what is not stored yet and return the entries of the samples. Unreadable videos are `left_out`."""
    home = Path(folder) / _settings_key(reader)
    with _unwritable():
        make_output(home, "cache")
    _remove_abandoned(home)
    digests = content_digests(samples, home, workers)
    known = _read_shards(home)
    missing = [(digest, s) for digest, s in zip(digests, samples, strict=True) if digest and digest not in known]
    if missing:  # a cache that is read only serves those who need nothing new from it
        with _unwritable():
            check_writable(home)
    parts = [missing[i : i + SHARD_VIDEOS] for i in range(0, len(missing), SHARD_VIDEOS)]
    done = len(samples) - len(missing)
    for part, _ in unordered_map(_write_shard, [_NewShard(home, reader, tuple(part)) for part in parts], workers):
        done += len(part.videos)
        if progress:
            progress(done, len(samples))
    known = _read_shards(home)
    shards = sorted({path for path, _ in known.values()})
    number = {path: i for i, path in enumerate(shards)}
    rows = [(number[known[d][0]], known[d][1]) if d in known else None for d in digests]
    return CacheTable(shards, rows)


@contextmanager
def _unwritable() -> Iterator[None]:
    try:
        yield
    except WriteError as error:
        raise CacheUnwritable(str(error)) from None


def _settings_key(reader: DecodingReader) -> str:
    spec = reader.spec
    settings = (FORMAT, spec.keep_frames, spec.keep_short_side, reader.backend, reader.damaged)
    name = f"{spec.keep_frames or 'all'}x{spec.keep_short_side or 'full'}"
    return f"{name}-{hashlib.blake2b(repr(settings).encode(), digest_size=6).hexdigest()}"


@dataclass(frozen=True)
class _NewShard:
    """Videos, with the digests of their content, to be decoded into one shard."""

    home: Path
    reader: DecodingReader
    videos: tuple[tuple[str, Sample], ...]


def _write_shard(shard: _NewShard) -> None:
    target = shard.home / f"{uuid.uuid4().hex}.bin"
    try:
        with _unwritable(), replacing(target) as temporary, temporary.open("wb") as file:
            entries = [entry for video in shard.videos if (entry := _append(file, *video, shard.reader))]
            size = file.tell()
        if entries:
            description = {"bytes": size, "videos": [asdict(entry) for entry in entries]}
            with _unwritable():
                write_json(target.with_suffix(".json"), description, indent=None)
        else:
            target.unlink()
    except OSError as error:
        raise CacheUnwritable(f"the cache in {shard.home} cannot be written: {error}.") from None


def _append(file: BinaryIO, digest: str, sample: Sample, reader: DecodingReader) -> CacheEntry | None:
    """Decode a video to the end of a shard; None if it is unreadable."""
    try:
        with reader.open(0, sample) as source:
            frames = source.get_frames(range(len(source)))
            fps = None if source.fps is None else float(source.fps)
            try:
                times = source.timestamps.astype(np.float64)
            except InputError:
                times = np.full(len(source), np.nan)
    except (DecodeError, InputError, FileNotFoundError):
        return None
    shape = frames.shape[:3]
    checks = np.array([zlib.crc32(picture_HWC) for picture_HWC in np.ascontiguousarray(frames)], np.uint32)
    head = times.tobytes() + checks.tobytes()
    entry = CacheEntry(digest, file.tell(), shape, fps, _check_of(head, shape, fps))
    file.write(head)
    file.write(frames.tobytes())
    file.write(b"\0" * (-file.tell() % 8))  # the times of the next video are read as float64 in place
    return entry


def _read_shards(home: Path) -> dict[str, tuple[Path, CacheEntry]]:
    """Digest -> shard and entry; a shard that is not described, or not as long as described, is ignored."""
    known: dict[str, tuple[Path, CacheEntry]] = {}
    for path in sorted(home.glob("*.json")):
        content = _read_json(path) if path.name != "files.json" else {}
        data = path.with_suffix(".bin")
        with suppress(OSError, KeyError, TypeError, ValueError, OverflowError):  # of a description that was changed
            size = data.stat().st_size
            entries = [_entry(**row) for row in content["videos"] if content["bytes"] == size]
            if all(0 <= entry.offset <= entry.end <= size for entry in entries):
                known |= {entry.digest: (data, entry) for entry in entries}
    return known


def _entry(digest: str, offset: int, shape: Sequence[int], fps: float | None, check: int) -> CacheEntry:
    """An entry from its JSON values. Whether they are the right ones, `check` says; here they must fit the table."""
    count, height, width = np.array(shape, np.int32).tolist()
    if min(count, height, width) < 0:
        raise ValueError(shape)
    return CacheEntry(digest, int(offset), (count, height, width), fps and float(fps), int(np.uint32(check)))


def content_digests(samples: Sequence[Sample], home: Path, workers: int) -> list[str | None]:
    """Of each sample's content and part; None if the file cannot be read. Unchanged files are not read again."""
    memory = _read_json(home / "files.json")
    stamps = {}
    for path in {sample.path: None for sample in samples}:
        with suppress(OSError):
            stamps[path] = "{}/{}".format(*stamp_of(path))
    unknown = [path for path, stamp in stamps.items() if not _is_digest_of(stamp, memory.get(path))]
    for path, digest in unordered_map(_digest, unknown, workers if len(unknown) > DIGESTS_WORTH_PROCESSES else 0):
        if digest is None:
            del stamps[path]
        else:
            memory[path] = [stamps[path], digest]
    if unknown:
        with suppress(OSError, UserError):  # where it cannot be written, these files are read again the next time
            write_json(home / "files.json", memory, indent=None)

    def of_part(sample: Sample) -> str | None:
        if sample.path not in stamps:
            return None
        digest = str(memory[sample.path][1])
        whole = sample.start is None and sample.end is None
        return digest if whole else f"{digest}@{sample.start}-{sample.end}"

    return [of_part(sample) for sample in samples]


def _is_digest_of(stamp: str, row: Any) -> bool:
    """Whether a row of files.json has the digest of a file with this stamp."""
    return isinstance(row, list) and len(row) == 2 and row[0] == stamp and isinstance(row[1], str)


def _digest(path: str) -> str | None:
    try:
        return content_digest(path)
    except (OSError, DecodeError):
        return None


def _read_json(path: Path) -> dict[str, Any]:
    """A file that a power failure left empty or half-written counts as absent."""
    try:
        content = parse_json(read_text(path))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _remove_abandoned(home: Path) -> None:
    """Remove what builds that were killed more than a day ago left behind."""
    for path in [*home.glob("*.tmp"), *home.glob("*.bin")]:
        with suppress(OSError):  # another build removes it too, or renames what it has finished; or it is read only
            if not path.with_suffix(".json").exists() and time.time() - path.stat().st_mtime > ABANDONED_SECONDS:
                path.unlink()
