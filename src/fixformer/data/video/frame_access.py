"""Ways to a numbered frame: by time from the nearest key packet, by counting from the start, or from memory."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Protocol

import av
from av.video.codeccontext import VideoCodecContext
from av.video.frame import PictureType, VideoFrame

from fixformer.data.video.containers import Deadline, reason
from fixformer.data.video.decoder import Fault
from fixformer.data.video.frame_table import FrameTable
from fixformer.data.video.packets import PacketStore

# Codecs whose bitstream says which pictures nothing else refers to.
_SKIPPABLE = {"h264", "mpeg4", "mpeg1video", "mpeg2video"}


class Unreliable(Exception):
    """The decoder did not deliver what was promised about the stream."""


class Reader(Protocol):
    """Frames by number. `times_F` is in units of the stream's time base; None where the file does not say."""

    times_F: list[int | None]

    def begin(self, wanted: Iterable[int], deadline: Deadline) -> None:
        """Announce which frames will be fetched, in ascending order."""
        ...

    def fetch(self, index: int) -> VideoFrame: ...


def walk(codec: VideoCodecContext, store: PacketStore, deadline: Deadline, faults: list[Fault]) -> Iterator[VideoFrame]:
    """Every frame in order: the definition of what is right. Damage is recorded and stepped over."""
    codec.flush_buffers()
    codec.skip_frame = "DEFAULT"
    count = 0
    for packet in chain((packet for _, packet in store.read(0)), [None]):
        deadline.check()
        try:
            frames = codec.decode(packet)
        except av.error.FFmpegError as error:
            faults.append(Fault(count, reason(error)))
            continue
        for frame in frames:
            if frame.is_corrupt:
                faults.append(Fault(count, "the picture is damaged"))
            yield frame
            count += 1


class KeptReader:
    """Frames that are already decoded."""

    def __init__(self, frames: list[VideoFrame]) -> None:
        self._frames = frames
        self.times_F = [frame.pts for frame in frames]

    def begin(self, wanted: Iterable[int], deadline: Deadline) -> None:
        pass

    def fetch(self, index: int) -> VideoFrame:
        return self._frames[index]


class OrderedReader:
    """Frames by counting from the start, for streams in which nothing else identifies them."""

    def __init__(self, codec: VideoCodecContext, store: PacketStore, times_F: list[int | None]) -> None:
        self._codec, self._store, self.times_F = codec, store, times_F
        self._run: Iterator[tuple[int, VideoFrame]] | None = None
        self._last = -1

    def begin(self, wanted: Iterable[int], deadline: Deadline) -> None:
        self._deadline = deadline

    def fetch(self, index: int) -> VideoFrame:
        if self._run is None or index <= self._last:
            self._run = enumerate(self._walk())
        for number, frame in self._run:
            self._last = number
            if number == index:
                return frame
        raise Unreliable

    def _walk(self) -> Iterator[VideoFrame]:
        yield from walk(self._codec, self._store, self._deadline, [])


class TimedReader:
    """Frames by their time, decoded from the nearest key packet; what nothing refers to is skipped unless wanted."""

    def __init__(self, codec: VideoCodecContext, store: PacketStore, table: FrameTable) -> None:
        self._codec, self._store, self._table = codec, store, table
        self.times_F: list[int | None] = table.pts_F.tolist()
        self._may_skip = codec.name in _SKIPPABLE
        self._frame_P = table.frame_P.tolist()
        self._run: Iterator[tuple[int, VideoFrame]] | None = None
        self._last = -1
        self._next_packet = 0

    def begin(self, wanted: Iterable[int], deadline: Deadline) -> None:
        self._wanted = set(wanted)
        # frames beyond the last one wanted are decoded whole, so that the next request can go on from here
        self._horizon = max(self._wanted, default=0)
        self._deadline = deadline

    def fetch(self, index: int) -> VideoFrame:
        anchor = self._table.anchor(index)
        if self._run is None or index <= self._last or anchor > self._next_packet:
            self._run = self._decode_from(anchor)
            self._last = -1
        for number, frame in self._run:
            self._last = number
            if number == index:
                return frame
            if number > index:
                break
        self._run = None
        raise Unreliable

    def _decode_from(self, start: int) -> Iterator[tuple[int, VideoFrame]]:
        floor = int(self._table.pts_P[start]) if start > 0 else None
        # frames that must come out before any later one is believed; the key packet's own is the first
        doubtful = {self._frame_P[start]} - {-1}
        self._codec.flush_buffers()
        for number, packet in chain(self._store.read(start), [(None, None)]):
            self._deadline.check()
            if number is not None:
                self._next_packet = number + 1
                self._skip(number, start)
            try:
                frames = self._codec.decode(packet)
            except av.error.FFmpegError:
                # after a jump into an open group a careful decoder also misses what it does not need
                if number is None or floor is None:
                    raise Unreliable from None
                doubtful.add(self._frame_P[number])
                continue
            yield from self._numbered(frames, floor, doubtful)

    def _skip(self, packet: int, start: int) -> None:
        if self._may_skip:
            frame = self._frame_P[packet]
            unwanted = 0 <= frame < self._horizon and frame not in self._wanted and packet != start
            self._codec.skip_frame = "NONREF" if unwanted else "DEFAULT"

    def _numbered(
        self, frames: list[VideoFrame], floor: int | None, doubtful: set[int]
    ) -> Iterator[tuple[int, VideoFrame]]:
        for frame in frames:
            if floor is not None and frame.pts is not None and frame.pts < floor:
                continue  # it may refer to pictures before the key packet, which were not decoded
            if frame.pts == floor and frame.pict_type != PictureType.I:
                raise Unreliable  # the container called it a key packet, which it is not
            index = self._table.find(frame.pts)
            if index is None or index <= self._last or frame.is_corrupt:
                raise Unreliable
            doubtful.discard(index)
            if doubtful and min(doubtful) < index:
                raise Unreliable
            yield index, frame
