"""Three ways to a frame by number: seeking to a key packet, decoding from the start, or from memory."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Protocol

import av
from av.video.codeccontext import VideoCodecContext
from av.video.frame import PictureType, VideoFrame

from fixformer.data.video.containers import Deadline, error_text
from fixformer.data.video.decoder import Fault
from fixformer.data.video.frame_table import FrameTable
from fixformer.data.video.packets import PacketStore

# Codecs whose bitstream marks pictures that no other picture references, so that the decoder can skip them.
_SKIPPABLE = {"h264", "mpeg4", "mpeg1video", "mpeg2video"}


class FrameMismatch(Exception):
    """Decoding did not give the frames that the packets promised."""


class FrameAccess(Protocol):
    """Frames by number. `times_F` is in units of the stream's time base; None where the file has no timestamp."""

    times_F: list[int | None]

    def fetch(self, indices: Sequence[int], deadline: Deadline) -> Iterator[VideoFrame]:
        """The frames of these numbers, which ascend."""
        ...


def decode_all(
    codec: VideoCodecContext, packets: PacketStore, check_time: Callable[[], None], faults: list[Fault]
) -> Iterator[VideoFrame]:
    """Every frame in order: the reference for what is correct. Damage is recorded in `faults` and skipped."""
    codec.flush_buffers()
    codec.skip_frame = "DEFAULT"
    count = 0
    for packet in chain((packet for _, packet in packets.read(0)), [None]):
        check_time()
        try:
            frames = codec.decode(packet)
        except av.error.FFmpegError as error:
            faults.append(Fault(count, error_text(error)))
            continue
        for frame in frames:
            if frame.is_corrupt:
                faults.append(Fault(count, "the picture is damaged"))
            yield frame
            count += 1


class MemoryAccess:
    """Frames that are already decoded."""

    def __init__(self, frames: list[VideoFrame]) -> None:
        self._frames = frames
        self.times_F = [frame.pts for frame in frames]

    def fetch(self, indices: Sequence[int], deadline: Deadline) -> Iterator[VideoFrame]:
        return (self._frames[index] for index in indices)


class SequentialAccess:
    """Frames counted from the start, for streams in which nothing else identifies them."""

    def __init__(self, codec: VideoCodecContext, packets: PacketStore, times_F: list[int | None]) -> None:
        self._codec, self._packets, self.times_F = codec, packets, times_F
        self._decoding: Iterator[tuple[int, VideoFrame]] | None = None
        self._last = -1

    def fetch(self, indices: Sequence[int], deadline: Deadline) -> Iterator[VideoFrame]:
        self._deadline = deadline
        for index in indices:
            if self._decoding is None or index <= self._last:
                self._decoding = enumerate(decode_all(self._codec, self._packets, self._check_time, []))
            for number, frame in self._decoding:
                self._last = number
                if number == index:
                    yield frame
                    break
            else:
                raise FrameMismatch

    def _check_time(self) -> None:
        self._deadline.check()  # of the current request, which may continue the decoding of an earlier one


class SeekingAccess:
    """Frames identified by timestamp, decoded from the nearest key packet. Unreferenced pictures are skipped."""

    def __init__(self, codec: VideoCodecContext, packets: PacketStore, table: FrameTable) -> None:
        self._codec, self._packets, self._table = codec, packets, table
        self.times_F: list[int | None] = table.pts_F.tolist()
        self._frame_P = table.frame_P.tolist()
        self._decoding: Iterator[tuple[int, VideoFrame]] | None = None
        self._last = -1
        self._next_packet = 0

    def fetch(self, indices: Sequence[int], deadline: Deadline) -> Iterator[VideoFrame]:
        self._wanted, self._deadline = set(indices), deadline
        # nothing is skipped beyond the last requested frame, so that the next request can continue from there
        self._horizon = max(self._wanted, default=0)
        return (self._fetch_one(index) for index in indices)

    def _fetch_one(self, index: int) -> VideoFrame:
        anchor = self._table.anchor(index)
        if self._decoding is None or index <= self._last or anchor > self._next_packet:
            self._decoding = self._decode_from(anchor)
            self._last = -1
        for number, frame in self._decoding:
            self._last = number
            if number == index:
                return frame
            if number > index:
                break
        self._decoding = None
        raise FrameMismatch

    def _decode_from(self, start: int) -> Iterator[tuple[int, VideoFrame]]:
        floor = int(self._table.pts_P[start]) if start > 0 else None
        # frames that must be decoded before any later one is trusted; first of all that of the key packet
        pending = {self._frame_P[start]} - {-1}
        self._codec.flush_buffers()
        for number, packet in chain(self._packets.read(start), [(None, None)]):
            self._deadline.check()
            if number is not None:
                self._next_packet = number + 1
                if self._codec.name in _SKIPPABLE:
                    frame = self._frame_P[number]
                    unwanted = 0 <= frame < self._horizon and frame not in self._wanted and number != start
                    self._codec.skip_frame = "NONREF" if unwanted else "DEFAULT"
            try:
                frames = self._codec.decode(packet)
            except av.error.FFmpegError:
                # after a seek into an open GOP a strict decoder also reports missing references it does not need
                if number is None or floor is None:
                    raise FrameMismatch from None
                pending.add(self._frame_P[number])
                continue
            yield from self._numbered(frames, floor, pending)

    def _numbered(
        self, frames: list[VideoFrame], floor: int | None, pending: set[int]
    ) -> Iterator[tuple[int, VideoFrame]]:
        """Frames with their numbers, as long as they agree with the table."""
        for frame in frames:
            if floor is not None and frame.pts is not None and frame.pts < floor:
                continue  # it may reference pictures before the key packet, which were not decoded
            if frame.pts == floor and frame.pict_type != PictureType.I:
                raise FrameMismatch  # the container marks it as a key packet, but it is not
            index = self._table.find(frame.pts)
            if index is None or index <= self._last or frame.is_corrupt:
                raise FrameMismatch
            pending.discard(index)
            if pending and min(pending) < index:
                raise FrameMismatch
            yield index, frame
