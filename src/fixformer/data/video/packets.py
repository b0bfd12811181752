"""The packets of one video stream: demuxed once, kept in memory if small, read again by seeking if not."""

from collections.abc import Callable, Iterator

import av
from av.container import InputContainer
from av.packet import Packet
from av.video.stream import VideoStream

from fixformer.data.video.containers import Deadline, error_text
from fixformer.data.video.decoder import DecodeError, Fault, Limits
from fixformer.data.video.frame_table import PacketRow

# Packets of a stream up to this size stay in memory: several minutes of 1080p, so every clip of the usual data sets. A
# loader holds one video per worker, which bounds what this costs.
KEEP_BYTES = 256 << 20

Opened = tuple[InputContainer, VideoStream]


class PacketStore:
    """All packets of a stream, by number, in decoding order.

    Packets in memory make random access exact without trusting the container's seeking. A stream larger than
    `KEEP_BYTES` is read again instead, from a seek whose first packet is identified by its position in the file.
    """

    def __init__(
        self, opened: Opened, reopen: Callable[[], Opened], limits: Limits, file: str, deadline: Deadline
    ) -> None:
        self._container, self._stream = opened
        self._reopen, self._limits, self._file = reopen, limits, file
        self.rows: list[PacketRow] = []
        self.faults: list[Fault] = []
        self._held: list[Packet] | None = []
        self._read_all(deadline)

    def read(self, start: int) -> Iterator[tuple[int, Packet]]:
        """Packets from number `start` on, numbered."""
        if self._held is not None:
            yield from enumerate(self._held[start:], start)
            return
        for number, packet in self._reread(start):
            if start <= number:
                yield number, packet
            if number + 1 == len(self.rows):  # the rest could not be read the first time either
                break

    def close(self) -> None:
        self._held = None
        self._container.close()

    def _read_all(self, deadline: Deadline) -> None:
        is_shown = _IS_SHOWN.get(self._stream.codec_context.name)
        size = 0
        try:
            for packet in _demux(self._container, self._stream):
                deadline.check()
                if len(self.rows) >= self._limits.frames:
                    problem = f"more than {self._limits.frames:,} frames, the limit (Limits.frames)"
                    raise DecodeError(problem, file=self._file, stream=self._stream.index)
                if packet.is_corrupt:
                    self.faults.append(Fault(len(self.rows), "a packet is damaged or truncated"))
                shown = not packet.is_discard and (is_shown is None or is_shown(packet))
                self.rows.append(PacketRow(packet.pts, packet.dts, packet.is_keyframe, shown, packet.pos))
                size += packet.size
                if self._held is not None and size <= KEEP_BYTES:
                    self._held.append(packet)
                else:
                    self._held = None
        except av.error.FFmpegError as error:
            deadline.check()
            self.faults.append(Fault(len(self.rows), f"reading stops: {error_text(error)}"))
        # only this family of containers lists every packet in its header; other counts are hints, and often wrong
        listed = len(self._stream.index_entries) if "mp4" in self._container.format.name else 0
        if listed > len(self.rows):
            self.faults.append(Fault(len(self.rows), f"the file ends early: {len(self.rows)} of {listed} packets"))

    def _reread(self, start: int) -> Iterator[tuple[int, Packet]]:
        number_at: dict[int | None, int] = {row.position: number for number, row in enumerate(self.rows)}
        row = self.rows[start]
        when = row.pts if row.dts is None else row.dts
        if start > 0 and when is not None and None not in number_at and len(number_at) == len(self.rows):
            self._container.seek(when, stream=self._stream)
            packets = _demux(self._container, self._stream)
            first = next(packets, None)
            number = None if first is None else number_at.get(first.pos)
            if first is not None and number is not None and number <= start:
                yield number, first
                yield from enumerate(packets, number + 1)
                return
        self._container.close()
        self._container, self._stream = self._reopen()
        yield from enumerate(_demux(self._container, self._stream))


def _demux(container: InputContainer, stream: VideoStream) -> Iterator[Packet]:
    try:
        for packet in container.demux(stream):
            if packet.size:  # the empty last packet asks decoders to flush, which frame access does itself
                yield packet
    except IndexError:
        # at the end PyAV flushes every stream, also those that FFmpeg found only while reading (damaged or spliced
        # MPEG-TS) and that PyAV does not list; all packets have been read by then
        return


def _vp8_is_shown(packet: Packet) -> bool:
    return bool(memoryview(packet)[0] & 0x10)


def _vp9_is_shown(packet: Packet) -> bool:
    data = memoryview(packet)
    superframe = data[-1] & 0xE0 == 0xC0
    profile = (data[0] >> 5 & 1) | (data[0] >> 3 & 2)
    shift = 0 if profile == 3 else 1
    show_existing, show = data[0] >> (shift + 2) & 1, data[0] >> shift & 1
    return bool(superframe or show_existing or show)


# In these codecs a packet may hold nothing but a hidden reference frame (VP8 and VP9 "altref").
_IS_SHOWN = {"vp8": _vp8_is_shown, "vp9": _vp9_is_shown}
