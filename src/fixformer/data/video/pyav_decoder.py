"""The default backend: PyAV, frame-exact, decoding no more than the frames asked for need.

Demuxing alone gives a table of the frames. Frames are then decoded from the nearest key packet before them, each
recognised by its time. Where no such table can be made, or the decoder does not deliver what it promises (damage,
hidden or paired packets), the whole stream is decoded once in order, which is the definition of what is right.

Legend: T frames asked for, H height, W width, C the three colours, F frames of the file.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import av
import numpy as np
from av.video.frame import VideoFrame

from fixformer.data.video.containers import Deadline, check_pixels, describe, open_stream, reason
from fixformer.data.video.decoder import DecodeError, Fault, Limits, Policy, Source, VideoInfo
from fixformer.data.video.decoder_base import DecoderBase
from fixformer.data.video.frame_access import KeptReader, OrderedReader, Reader, TimedReader, Unreliable, walk
from fixformer.data.video.frame_table import FrameTable
from fixformer.data.video.orientation import Canvas
from fixformer.data.video.packets import PacketStore
from fixformer.errors import InputError

KEEP_PICTURE_BYTES = 128 << 20

# Codecs in which one packet is one picture, so that counting packets counts frames.
_ONE_TO_ONE = {"h264", "hevc", "libdav1d", "vp8", "vp9", "mpeg1video", "mpeg2video", "mpeg4", "mjpeg", "gif", "ffv1"}
_PROGRESSIVE = (0, 1)  # AV_FIELD_UNKNOWN, AV_FIELD_PROGRESSIVE: no picture is split over two packets


class PyAVDecoder(DecoderBase):
    """See `fixformer.data.video.decoder.Decoder`."""

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
        super().__init__(name or describe(source), limits)
        self._policy, self._short_side = policy, short_side
        self._reopen = partial(
            open_stream, source, limits, threads=threads, careful=policy == "strict", name=self._file
        )
        self._container, self._stream = self._reopen()
        self._codec, self._time_base = self._stream.codec_context, self._stream.time_base
        self._header = self._read_header()
        self._store: PacketStore | None = None
        self._reader: Reader | None = None
        self._first: VideoFrame | None = None
        self._canvas: Canvas | None = None
        self._faults: list[Fault] = []

    @property
    def info(self) -> VideoInfo:
        try:
            canvas = self._get_canvas()
        except Unreliable:
            self._distrust(self._deadline())
            canvas = self._get_canvas()
        width, height = canvas.size
        turn = canvas.orientation
        return VideoInfo(width, height, rotation=turn.rotation, mirrored=turn.mirrored, **self._header)

    @property
    def faults(self) -> tuple[Fault, ...]:
        return tuple(self._faults)

    @property
    def timestamps(self) -> np.ndarray:
        times_F = self._get_reader().times_F
        known = [t for t in times_F if t is not None]
        if len(known) == len(times_F) and all(a < b for a, b in pairwise(known)) and self._time_base:
            return (np.array(known, dtype=np.float64) - known[0]) * float(self._time_base)
        fps = self._header["fps"]
        if fps is None:
            raise InputError(f"{self._file} has neither times nor a frame rate; ask for frames by number")
        return np.arange(len(times_F)) / fps

    def __len__(self) -> int:
        return len(self._get_reader().times_F)

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        deadline = self._deadline()
        wanted = self._check_range(indices)
        promised = len(self)
        try:
            return self._collect(wanted, deadline)
        except Unreliable:
            self._distrust(deadline)
        if max(wanted) >= len(self):
            raise self._error(f"the file promises {promised} frames and holds {len(self)}", max(wanted))
        return self._collect(wanted, deadline)

    def verify(self) -> None:
        """Decode everything now, so that length, times and faults are what decoding gave and not what the file says."""
        self._get_reader()
        self._reader = self._scan(self._deadline())
        self._first = self._canvas = None

    def close(self) -> None:
        self._reader = self._first = None
        if self._store is not None:
            self._store.close()
        self._container.close()

    def _read_header(self) -> dict:
        stream, codec = self._stream, self._stream.codec_context
        rate = stream.average_rate or stream.guessed_rate
        duration = None
        if stream.duration is not None and stream.time_base:
            duration = float(stream.duration * stream.time_base)
        elif self._container.duration is not None:
            duration = self._container.duration / av.time_base
        return {
            "fps": float(rate) if rate else None,
            "duration": duration,
            "header_frames": stream.frames or None,
            "codec": codec.name,
            "container": self._container.format.name,
            "pixel_format": codec.pix_fmt or "unknown",
            "stream": stream.index,
        }

    def _deadline(self) -> Deadline:
        return Deadline(self._limits.seconds, self._file)

    def _error(self, problem: str, frame: int | None = None) -> DecodeError:
        return DecodeError(problem, file=self._file, stream=self._header["stream"], frame=frame)

    def _get_reader(self) -> Reader:
        if self._reader is None:
            self._reader = self._make_reader(self._deadline())
        return self._reader

    def _make_reader(self, deadline: Deadline) -> Reader:
        opened = self._container, self._stream
        self._store = PacketStore(opened, self._reopen, self._limits, self._file, deadline)
        if self._policy == "partial" or self._store.faults or not self._countable():
            return self._scan(deadline)
        table = self._make_table()
        if table is not None:
            return TimedReader(self._codec, self._store, table)
        shown = sum(row.shown for row in self._store.rows)
        return OrderedReader(self._codec, self._store, [None] * shown)

    def _countable(self) -> bool:
        """Whether counting packets counts frames."""
        rows = self._store.rows if self._store else []
        # MPEG-4 in AVI packs two frames into one packet when it reorders them, and then has no times
        packed = self._codec.name == "mpeg4" and any(row.pts is None for row in rows)
        one_to_one = self._codec.name in _ONE_TO_ONE and self._codec.field_order in _PROGRESSIVE
        return one_to_one and not packed and any(row.shown for row in rows)

    def _make_table(self) -> FrameTable | None:
        rows = self._store.rows if self._store else []
        if not self._countable() or any(row.pts is None for row in rows):
            return None
        table = FrameTable(rows)
        return table if table.unambiguous else None

    def _scan(self, deadline: Deadline, *, trust_times: bool = True) -> Reader:
        """Decode everything once, in order."""
        assert self._store is not None
        self._faults = list(self._store.faults)
        times: list[int | None] = []
        kept: list[VideoFrame] | None = []
        size = 0
        for frame in walk(self._codec, self._store, deadline, self._faults):
            self._check_picture(frame)
            times.append(frame.pts)
            size += sum(plane.buffer_size for plane in frame.planes)
            if kept is not None and size <= KEEP_PICTURE_BYTES:
                kept.append(frame)
            else:
                kept = None
        self._judge(len(times))
        if kept is not None:
            return KeptReader(kept)
        table = self._make_table() if trust_times else None
        if table is not None and not self._faults and times == list(table.pts_F):
            return TimedReader(self._codec, self._store, table)
        return OrderedReader(self._codec, self._store, times)

    def _judge(self, count: int) -> None:
        if self._faults and (self._policy == "strict" or count == 0):
            raise self._error(self._faults[0].message, self._faults[0].frame)
        if count == 0:
            raise self._error("not a single frame could be decoded")

    def _check_picture(self, frame: VideoFrame) -> None:
        check_pixels(frame.width, frame.height, self._limits, self._file, self._header["stream"])

    def _get_canvas(self) -> Canvas:
        if self._canvas is None:
            reader = self._get_reader()
            reader.begin([0], self._deadline())
            self._first = reader.fetch(0)
            self._check_picture(self._first)
            self._canvas = Canvas(self._first, self._short_side)
        return self._canvas

    def _distrust(self, deadline: Deadline) -> None:
        """The file is not what its packets promise: start again from what decoding it in order gives."""
        self._reader = self._scan(deadline, trust_times=False)
        self._first = self._canvas = None

    def _collect(self, wanted: list[int], deadline: Deadline) -> np.ndarray:
        frames_THWC = self._allocate(len(wanted), self._get_canvas().size)
        places: dict[int, list[int]] = {}
        for place, index in enumerate(wanted):
            places.setdefault(index, []).append(place)
        reader = self._get_reader()
        reader.begin(places, deadline)
        for index in sorted(places):
            frame = self._first if index == 0 and self._first is not None else reader.fetch(index)
            first, *repeats = places[index]
            frames_THWC[first] = self._convert(frame, index)
            for place in repeats:
                frames_THWC[place] = frames_THWC[first]
        return frames_THWC

    def _convert(self, frame: VideoFrame, index: int) -> np.ndarray:
        self._check_picture(frame)
        try:
            return self._get_canvas().rgb(frame)
        except av.error.FFmpegError as error:
            raise self._error(f"cannot be converted to RGB: {reason(error)}", index) from error
