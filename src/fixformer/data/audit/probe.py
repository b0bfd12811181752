"""Decode a file once from beginning to end, and cache what that showed.

A `FileProbe` is stored as a line of JSON under the user's cache directory, by the file's path. It is valid while the
file's size and modification time (those of its images, for a folder) stay the same.
"""

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fixformer.config import ClipSpec
from fixformer.data.audit.fingerprint import fingerprint, sampled_frames
from fixformer.data.clips.transforms import from_frames, view_crops
from fixformer.data.video import DecodeError, Decoder, Limits, NoVideoStream, Policy, open_video
from fixformer.data.video.content import content_digest, digest_of, stamp_of
from fixformer.data.video.shard_member import is_member, read_member
from fixformer.errors import InputError, UserError
from fixformer.runtime.console import note
from fixformer.runtime.files import appending, cache_directory, read_bytes, read_records

FORMAT = 3  # in the name of the cache file: a later format does not read this one's
READ_AT_ONCE = 256 << 20  # files up to this size are read once into memory, for the digest and for decoding
KEPT_FAULTS = 5  # the first faults say what is wrong; a damaged file may have thousands


@dataclass(frozen=True)
class FileProbe:
    """What decoding one file showed. `status`: ok, damaged (some frames decode), no_video, unreadable or missing.

    `frames`, `duration` and `measured_fps` come from decoding; `fps` and `header_*` are what the file claims.
    """

    path: str
    size: int
    changed: int
    status: str
    problem: str = ""
    digest: str = ""
    fingerprint: str = ""
    brightness: float | None = None  # of the frames of the fingerprint, 0 black to 1 white
    frames: int = 0
    width: int = 0
    height: int = 0
    rotation: int = 0
    fps: float | None = None
    measured_fps: float | None = None
    variable_rate: bool = False
    duration: float = 0.0
    header_frames: int | None = None
    header_duration: float | None = None
    codec: str = ""
    container: str = ""
    pixel_format: str = ""
    faults: list[str] = field(default_factory=list)
    unusable: str = ""  # why a readable video gives no clip

    @property
    def readable(self) -> bool:
        return self.frames > 0


def probe_file(path: str, limits: Limits = Limits()) -> FileProbe:  # noqa: B008 - frozen
    """Decode a file from beginning to end; whatever is wrong with it is in the result, not raised."""
    source: Path | bytes
    try:
        stamp = stamp_of(path)
        if is_member(path):
            source = read_member(path)
        elif Path(path).is_dir() or stamp.size > READ_AT_ONCE:
            source = Path(path)
        else:
            source = read_bytes(path)
        digest = digest_of(source) if isinstance(source, bytes) else content_digest(path)
    except OSError as error:
        status = "missing" if isinstance(error, FileNotFoundError) else "unreadable"  # such as a pipe or a device
        return FileProbe(path, 0, 0, status, error.strerror or str(error))
    except DecodeError as error:  # of a shard that ends before the video does
        return FileProbe(path, *stamp, "unreadable", error.problem)
    known: dict[str, Any] = {"path": path, "size": stamp.size, "changed": stamp.changed, "digest": digest}
    try:
        return _probe(source, "strict", limits, known | {"status": "ok"})
    except NoVideoStream as error:
        return FileProbe(**known, status="no_video", problem=error.problem)
    except DecodeError as error:
        problem = error.problem if error.frame is None else f"frame {error.frame}: {error.problem}"
    try:
        return _probe(source, "partial", limits, known | {"status": "damaged", "problem": problem})
    except DecodeError as error:
        return FileProbe(**known, status="unreadable", problem=error.problem)


def _probe(source: Path | bytes, policy: Policy, limits: Limits, known: dict[str, Any]) -> FileProbe:
    with open_video(source, policy=policy, limits=limits) as video:
        video.verify()
        info, count = video.info, len(video)
        pictures_THWC = video.get_frames(sampled_frames(count))
        return FileProbe(
            **known,
            frames=count,
            width=info.width,
            height=info.height,
            rotation=info.rotation,
            fps=info.fps,
            header_frames=info.header_frames,
            header_duration=info.duration,
            codec=info.codec,
            container=info.container,
            pixel_format=info.pixel_format,
            faults=[f"frame {fault.frame}: {fault.message}" for fault in video.faults[:KEPT_FAULTS]],
            fingerprint=fingerprint(pictures_THWC),
            brightness=round(float(np.mean(pictures_THWC)) / 255, 4),
            unusable=_clip_problem(pictures_THWC),
            **_timing(video),
        )


def _clip_problem(pictures_THWC: np.ndarray) -> str:
    """Why a clip cannot be cut from such pictures, by the function that cuts them for training and prediction."""
    try:
        view_crops(from_frames(pictures_THWC[:1]), ClipSpec(), crops=3)
    except InputError as error:
        return str(error)
    return ""


def _timing(video: Decoder) -> dict[str, Any]:
    """Duration and frame rate by the timestamps of the frames; nothing for a folder of images, which has none."""
    try:
        times = video.timestamps
    except InputError:
        return {}
    if len(times) < 2:
        return {"duration": 1 / video.info.fps if video.info.fps else 0.0}
    steps = np.diff(times)
    median = float(np.median(steps))
    return {
        "duration": float(times[-1]) + median,
        "measured_fps": (len(times) - 1) / float(times[-1]) if times[-1] > 0 else None,
        # half a frame: containers round timestamps, a dropped or doubled frame is a whole one
        "variable_rate": bool(np.ptp(steps) > median / 2),
    }


class ProbeCache:
    """The probes of one data set's files, on disk. Lines are only appended; the last one about a file counts."""

    def __init__(self, data: str | Path) -> None:
        name = hashlib.blake2b(os.fsencode(os.path.realpath(data)), digest_size=12).hexdigest()
        self.path = cache_directory() / "probes" / f"{name}-{FORMAT}.jsonl"
        self._probes: dict[str, FileProbe] = {}
        self._is_writable = True
        with suppress(OSError):  # a cache that cannot be read is an empty one
            self._probes = {probe.path: probe for probe in read_records(self.path, FileProbe)}

    def get(self, path: str) -> FileProbe | None:
        """What is known about a file, if it has not changed since."""
        known = self._probes.get(path)
        try:
            return known if known and (known.size, known.changed) == stamp_of(path) else None
        except OSError:
            return None

    def add(self, probes: Iterable[FileProbe]) -> None:
        """Keep probes; where they cannot be written, the next check decodes these files again."""
        new = list(probes)
        self._probes |= {probe.path: probe for probe in new}
        if not new or not self._is_writable:
            return
        try:
            with appending(self.path) as record:
                for probe in new:
                    record(probe)
        except UserError as error:
            self._is_writable = False
            note(f"the results are not kept for the next check: {error}")
