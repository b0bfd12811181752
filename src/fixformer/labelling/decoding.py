"""Decoding processes that fill slots of shared memory with the views of videos.

Every video gives views of the same size, so the memory is taken once. A process that dies, as one does in which native
code crashes, costs no more than its video: another takes its place, tries that video once more, and then gives it up.
"""

import mmap
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fixformer.config import ClipSpec, DataConfig
from fixformer.data.clips.frames import open_frames
from fixformer.data.clips.sampling import ShortVideoError
from fixformer.data.clips.views import make_view_bytes
from fixformer.data.listing.escapes import ESCAPED_COLUMN, unescape
from fixformer.data.video import DecodeError, Source
from fixformer.data.video.decoder import NoVideoStream
from fixformer.data.video.shard_member import file_of, parse_member
from fixformer.errors import MissingExtra, explain
from fixformer.labelling.remote_files import describe, is_url, open_url
from fixformer.runtime.pools import start_worker

Row = dict[str, Any]


class Failure(NamedTuple):
    """Why a video has no label."""

    status: str
    error: str


class Decoded(NamedTuple):
    """A video whose views are in a slot, or the reason why there are none."""

    row: Row
    slot: int
    seconds: float | None
    failure: Failure | None


@dataclass(frozen=True)
class ViewReader:
    """How the views of a video are read, as evaluation and prediction read them."""

    spec: ClipSpec
    clips: int
    crops: int
    data: DataConfig

    @property
    def shape_VCTHW(self) -> tuple[int, ...]:
        return (self.clips * self.crops, 3, self.spec.frames, self.spec.size, self.spec.size)

    def read(self, row: Row, into_VCTHW: Tensor) -> float | Failure | MissingExtra | None:
        """Fill a slot and give the duration of the video in seconds, if it is known; or say what is wrong with it."""
        path = path_of(row)
        try:
            if not path or (not is_url(path) and not os.path.exists(file_of(path))):
                raise FileNotFoundError
            try:
                return self._fill(row, into_VCTHW)
            except DecodeError:  # a process that was stopped for a while runs into the decoder's time limit
                return self._fill(row, into_VCTHW)
        except MissingExtra as error:
            return error  # is wrong with every video
        except FileNotFoundError:
            return Failure("missing", "no such file")
        except Exception as error:
            sentence = explain(error)
            if sentence is None and not is_url(path):  # a bug; behind a URL are many libraries, each with its errors
                raise
            reason = (sentence or describe(error)).removeprefix(path).lstrip(":, ")  # the row has the path
            return Failure(_status(error), reason.rstrip("."))

    def _fill(self, row: Row, into_VCTHW: Tensor) -> float | None:
        part: dict[str, Any] = {"start": row["start"], "end": row["end"]}
        options: dict[str, Any] = {"backend": self.data.backend, "damaged": self.data.damaged}
        with open_source(path_of(row)) as source, open_frames(source, self.spec, **part, **options) as frames:
            into_VCTHW.copy_(make_view_bytes(frames, self.spec, self.clips, self.crops))
            return len(frames) / frames.fps if frames.fps else None


def path_of(row: Row) -> str:
    """The path of a row of the plan as the system knows it."""
    return unescape(row["path"]) if row[ESCAPED_COLUMN] else row["path"]


def _status(error: BaseException) -> str:
    kinds = {NoVideoStream: "no_video", ShortVideoError: "too_short", MemoryError: "too_large"}
    return next((status for kind, status in kinds.items() if isinstance(error, kind)), "unreadable")


def open_source(path: str) -> AbstractContextManager[Source]:
    """What the decoder takes for the path of a row: of a file, of a video in a tar, or a URL of either."""
    if not is_url(path):
        return nullcontext(path)
    member = parse_member(path)
    return nullcontext(_read_remote_member(*member)) if member else open_url(path)


def _read_remote_member(tar: str, offset: int, size: int) -> bytes:
    with open_url(tar) as file:
        file.seek(offset)
        return file.read(size)


class DecodingPool:
    """Reads rows with `workers` processes, or with none in this process.

    Args:
        slots: how many videos are in memory at a time.
    """

    def __init__(self, reader: ViewReader, *, workers: int, slots: int) -> None:
        size = slots * torch.Size(reader.shape_VCTHW).numel()
        self._memory = mmap.mmap(-1, size)  # anonymous and shared with the processes that are forked below
        flat = torch.frombuffer(self._memory, dtype=torch.uint8, count=size)
        self.views_SVCTHW = flat.view(slots, *reader.shape_VCTHW)
        self._reader, self._slots = reader, slots
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for slot in range(slots):
            self._free.put(slot)
        self._given: queue.SimpleQueue[Row | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Decoded | BaseException] = queue.SimpleQueue()
        self._processes = [DecodingProcess(reader, self.views_SVCTHW) for _ in range(workers)]
        self._feeders = [threading.Thread(target=self._feed, args=(one,), daemon=True) for one in self._processes]
        for feeder in self._feeders:
            feeder.start()

    def decode(self, rows: Iterable[Row]) -> Iterator[Decoded]:
        """The rows in order of completion; the slot of one that was read must be given back with `release`."""
        if not self._processes:
            yield from (self._read_one(self._reader.read, row) for row in rows)
            return
        open_rows, most = 0, self._slots + len(self._processes)
        for row in rows:
            self._given.put(row)
            open_rows += 1
            while open_rows >= most or not self._done.empty():
                open_rows -= 1
                yield _raised(self._done.get())
        for _ in range(open_rows):
            yield _raised(self._done.get())

    def release(self, slot: int) -> None:
        self._free.put(slot)

    def close(self) -> None:
        """End the processes; rows that were given and not read are dropped."""
        for process in self._processes:
            process.close()
        for _ in self._feeders:
            self._given.put(None)
            self._free.put(0)  # a thread that waits for a slot goes on, and finds that its process has ended

    def _feed(self, process: "DecodingProcess") -> None:
        """One thread a process, so that each has its next row at once."""
        try:
            while (row := self._given.get()) is not None:
                self._done.put(self._read_one(process.read, row))
        except BaseException as error:
            self._done.put(error)  # is raised where the rows are taken

    def _read_one(self, read: Any, row: Row) -> Decoded:
        slot = self._free.get()
        found = read(row, self.views_SVCTHW[slot]) if not self._processes else read(row, slot)
        if isinstance(found, MissingExtra):
            raise found
        failed = isinstance(found, Failure)
        if failed:
            self.release(slot)
        return Decoded(row, slot, None if failed else found, found if failed else None)


def _raised(found: Decoded | BaseException) -> Decoded:
    if isinstance(found, BaseException):
        raise found
    return found


class DecodingProcess:
    """A process that reads one row after the other, and its successors."""

    _starting = threading.Lock()  # a process forked meanwhile would keep the pipe of another open

    def __init__(self, reader: ViewReader, views_SVCTHW: Tensor) -> None:
        self._reader, self._views_SVCTHW, self._closed = reader, views_SVCTHW, False
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("fork")
        with self._starting:
            if self._closed:
                return
            self._pipe, theirs = context.Pipe()
            arguments = (theirs, self._reader, self._views_SVCTHW)
            self._process = context.Process(target=_serve, args=arguments, daemon=True)
            self._process.start()
            theirs.close()

    def read(self, row: Row, slot: int) -> Any:
        """What `ViewReader.read` gives; a `Failure` if the process dies twice of it."""
        for _ in range(2):
            found = self._ask(row, slot)
            if found is not _DIED or self._closed:
                break
            self._start()
        if found is not _DIED:
            return found
        return Failure("crashed", "the decoder crashed on it twice, or was killed")

    def _ask(self, row: Row, slot: int) -> Any:
        try:
            self._pipe.send((row, slot))
            wait([self._pipe, self._process.sentinel])
            return self._pipe.recv() if self._pipe.poll() else _DIED
        except (EOFError, OSError):
            return _DIED
        finally:
            if not self._process.is_alive():
                self._process.join()

    def close(self) -> None:
        with self._starting:
            self._closed = True
        self._process.terminate()
        self._process.join()


_DIED = object()


def _serve(pipe: Connection, reader: ViewReader, views_SVCTHW: Tensor) -> None:
    """The life of a decoding process."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; this process ends with its parent
    start_worker()
    while True:
        row, slot = pipe.recv()
        pipe.send(reader.read(row, views_SVCTHW[slot]))
