"""The default backend: PyAV, frame-exact, decoding no more than the requested frames need.

Demuxing alone gives a table of the frames. Frames are then decoded from the nearest key packet before them and
identified by their timestamps. Where no such table can be made, or decoding does not give what the table promises
(damage, hidden or packed packets), the whole stream is decoded once in order, which is the reference.

Legend: T requested frames, H height, W width, C the three colours, F frames of the file.
"""

from collections.abc import Sequence
from functools import partial
from itertools import chain, pairwise
from typing import Any

import av
import numpy as np
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from fixformer.data.video.containers import Deadline, check_pixels, error_text, open_stream, source_name
from fixformer.data.video.decoder import DecodeError, Decoder, Fault, Limits, Policy, Source, VideoInfo
from fixformer.data.video.frame_access import (
    FrameAccess,
    FrameMismatch,
    MemoryAccess,
    SeekingAccess,
    SequentialAccess,
    decode_all,
)
from fixformer.data.video.frame_table import FrameTable
from fixformer.data.video.orientation import RgbConverter
from fixformer.data.video.packets import PacketStore
from fixformer.errors import InputError

# Frames decoded by a full pass are kept up to this size (97 frames of 720p in YUV 4:2:0), so that most short
# clips are decoded once only.
KEEP_PICTURE_BYTES = 128 << 20

# Codecs in which one packet is one picture, so that counting packets counts frames.
_ONE_TO_ONE = {"h264", "hevc", "libdav1d", "vp8", "vp9", "mpeg1video", "mpeg2video", "mpeg4", "mjpeg", "gif", "ffv1"}
_PROGRESSIVE = (0, 1)  # AV_FIELD_UNKNOWN, AV_FIELD_PROGRESSIVE: no picture is split over two packets


class PyAVDecoder(Decoder):
    """See `Decoder`."""

    def __init__(
        self,
        source: Source,
        *,
        policy: Policy,
        limits: Limits,
        short_side: int | None,
        threads: int,
        name: str | None = None,
    ) -> None:
        super().__init__(name or source_name(source), limits)
        self._policy, self._short_side = policy, short_side
        self._reopen = partial(open_stream, source, limits, threads=threads, strict=policy == "strict", name=self._file)
        self._container, self._stream = self._reopen()
        self._codec, self._time_base = self._stream.codec_context, self._stream.time_base
        self._header = _read_header(self._container, self._stream)
        self._packets: PacketStore | None = None
        self._access: FrameAccess | None = None
        self._first_frame: VideoFrame | None = None
        self._converter: RgbConverter | None = None
        self._faults: list[Fault] = []

    @property
    def info(self) -> VideoInfo:
        try:
            converter = self._get_converter()
        except FrameMismatch:
            self._access = self._decode_whole_stream(self._deadline(), may_seek=False)
            converter = self._get_converter()
        width, height = converter.size
        orientation = converter.orientation
        return VideoInfo(width, height, rotation=orientation.rotation, mirrored=orientation.mirrored, **self._header)

    @property
    def faults(self) -> tuple[Fault, ...]:
        return tuple(self._faults)

    @property
    def timestamps(self) -> np.ndarray:
        times_F = self._get_access().times_F
        known = [t for t in times_F if t is not None]
        if len(known) == len(times_F) and all(a < b for a, b in pairwise(known)) and self._time_base:
            return (np.array(known, dtype=np.float64) - known[0]) * float(self._time_base)
        fps = self._header["fps"]
        if fps is None:
            raise InputError(f"{self._file} has neither timestamps nor a frame rate; request frames by number.")
        return np.arange(len(times_F)) / fps

    def __len__(self) -> int:
        return len(self._get_access().times_F)

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        deadline = self._deadline()
        wanted = self._check_range(indices)
        promised = len(self)
        try:
            return self._collect(wanted, deadline)
        except FrameMismatch:
            self._access = self._decode_whole_stream(deadline, may_seek=False)
        if max(wanted) >= len(self):
            raise self._error(f"the file promises {promised} frames but holds {len(self)}", max(wanted))
        return self._collect(wanted, deadline)

    def verify(self) -> None:
        """Decode everything now, so that length, times and faults come from decoding and not from the packets."""
        self._get_access()
        self._access = self._decode_whole_stream(self._deadline())

    def close(self) -> None:
        self._access = self._first_frame = None
        if self._packets is not None:
            self._packets.close()
        self._container.close()

    def _deadline(self) -> Deadline:
        return Deadline(self._limits.seconds, self._file)

    def _error(self, problem: str, frame: int | None = None) -> DecodeError:
        return DecodeError(problem, file=self._file, stream=self._header["stream"], frame=frame)

    def _get_access(self) -> FrameAccess:
        if self._access is None:
            deadline = self._deadline()
            if self._packets is None:
                opened = self._container, self._stream
                self._packets = PacketStore(opened, self._reopen, self._limits, self._file, deadline)
            packets = self._packets
            if self._policy == "partial" or packets.faults or not self._is_countable(packets):
                self._access = self._decode_whole_stream(deadline)
            elif (table := self._make_table(packets)) is not None:
                self._access = SeekingAccess(self._codec, packets, table)
            else:
                self._access = SequentialAccess(self._codec, packets, [None] * sum(row.shown for row in packets.rows))
        return self._access

    def _is_countable(self, packets: PacketStore) -> bool:
        """Whether counting packets counts frames."""
        # MPEG-4 in AVI packs two frames into one packet when it reorders them, and then has no timestamps
        packed = self._codec.name == "mpeg4" and any(row.pts is None for row in packets.rows)
        one_to_one = self._codec.name in _ONE_TO_ONE and self._codec.field_order in _PROGRESSIVE
        return one_to_one and not packed and any(row.shown for row in packets.rows)

    def _make_table(self, packets: PacketStore) -> FrameTable | None:
        if not self._is_countable(packets) or any(row.pts is None for row in packets.rows):
            return None
        table = FrameTable(packets.rows)
        return table if table.unambiguous else None

    def _decode_whole_stream(self, deadline: Deadline, *, may_seek: bool = True) -> FrameAccess:
        """Decode everything once in order, and reach frames from then on by what that gave.

        `may_seek=False` after a mismatch: seeking by time would fail again.
        """
        assert self._packets is not None
        self._first_frame = self._converter = None
        self._faults = list(self._packets.faults)
        times: list[int | None] = []
        kept: list[VideoFrame] | None = []
        size = 0
        for frame in decode_all(self._codec, self._packets, deadline.check, self._faults):
            self._check_picture(frame)
            times.append(frame.pts)
            size += sum(plane.buffer_size for plane in frame.planes)
            if kept is not None and size <= KEEP_PICTURE_BYTES:
                kept.append(frame)
            else:
                kept = None
        if self._faults and (self._policy == "strict" or not times):
            raise self._error(self._faults[0].message, self._faults[0].frame)
        if not times:
            raise self._error("no frame could be decoded")
        if kept is not None:
            return MemoryAccess(kept)
        table = self._make_table(self._packets) if may_seek else None
        if table is not None and not self._faults and times == list(table.pts_F):
            return SeekingAccess(self._codec, self._packets, table)
        return SequentialAccess(self._codec, self._packets, times)

    def _check_picture(self, frame: VideoFrame) -> None:
        check_pixels(frame.width, frame.height, self._limits, self._file, self._header["stream"])

    def _get_converter(self) -> RgbConverter:
        """The first frame decides size and orientation of all; it is kept, so that no request decodes it again."""
        if self._converter is None:
            self._first_frame = next(self._get_access().fetch([0], self._deadline()))
            self._check_picture(self._first_frame)
            self._converter = RgbConverter(self._first_frame, self._short_side)
        return self._converter

    def _collect(self, wanted: list[int], deadline: Deadline) -> np.ndarray:
        converter = self._get_converter()
        frames_THWC = self._allocate(len(wanted), converter.size)
        places: dict[int, list[int]] = {}
        for place, index in enumerate(wanted):
            places.setdefault(index, []).append(place)
        indices = sorted(places)
        first = [self._first_frame] if indices[:1] == [0] and self._first_frame is not None else []
        frames = chain(first, self._get_access().fetch(indices[len(first) :], deadline))
        for index, frame in zip(indices, frames, strict=True):
            self._check_picture(frame)
            try:
                picture_HWC = converter.convert(frame)
            except av.error.FFmpegError as error:
                raise self._error(f"cannot be converted to RGB: {error_text(error)}", index) from error
            for place in places[index]:
                frames_THWC[place] = picture_HWC
        return frames_THWC


def _read_header(container: InputContainer, stream: VideoStream) -> dict[str, Any]:
    """The fields of `VideoInfo` that the file itself states."""
    rate = stream.average_rate or stream.guessed_rate
    duration = None
    if stream.duration is not None and stream.time_base:
        duration = float(stream.duration * stream.time_base)
    elif container.duration is not None:
        duration = container.duration / av.time_base
    return {
        "fps": float(rate) if rate else None,
        "duration": duration,
        "header_frames": stream.frames or None,
        "codec": stream.codec_context.name,
        "container": container.format.name,
        "pixel_format": stream.codec_context.pix_fmt or "unknown",
        "stream": stream.index,
    }
