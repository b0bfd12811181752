"""What looking at a file once tells about it, kept so that nobody needs to look twice.

`examine` decodes a whole file. Facts are stored as lines of JSON under the user's cache directory, found by the file's
path and valid while its size and time of change (those of its images, for a folder) stay the same.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fixformer.data.audit.fingerprint import fingerprint, sampled_times
from fixformer.data.video import DecodeError, Decoder, Limits, NoVideoStream, Policy, open_video
from fixformer.data.video.content import content_digest, digest_of, stamp_of
from fixformer.data.video.shard_member import is_member, read_member
from fixformer.errors import InputError
from fixformer.runtime.files import cache_directory

FORMAT = 1
READ_AT_ONCE = 256 << 20
KEPT_FAULTS = 5


@dataclass(frozen=True)
class FileFacts:
    """One file. `status`: ok, damaged (some frames decode), no_video, unreadable or missing.

    `frames`, `duration` and `measured_fps` come from decoding; `header_*` is what the file says of itself.
    """

    path: str
    size: int
    changed: int
    status: str
    problem: str = ""
    digest: str = ""
    fingerprint: str = ""
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

    @property
    def readable(self) -> bool:
        return self.frames > 0


def examine(path: str, limits: Limits = Limits()) -> FileFacts:  # noqa: B008 - frozen
    """Decode a file from beginning to end and tell what was found; never raises for what is wrong with the file."""
    try:
        stamp = stamp_of(path)
        identity: dict[str, Any] = {"path": path, "size": stamp.size, "changed": stamp.changed}
        source, digest = _read(path, stamp.size)
    except OSError as error:
        return FileFacts(path, 0, 0, "missing", error.strerror or str(error))
    try:
        return _describe(source, "strict", limits, identity | {"status": "ok", "digest": digest})
    except NoVideoStream as error:
        return FileFacts(**identity, status="no_video", problem=error.problem, digest=digest)
    except DecodeError as error:
        problem = error.problem if error.frame is None else f"frame {error.frame}: {error.problem}"
    try:
        known = identity | {"status": "damaged", "problem": problem, "digest": digest}
        return _describe(source, "partial", limits, known)
    except DecodeError as error:
        return FileFacts(**identity, status="unreadable", problem=error.problem, digest=digest)


def _read(path: str, size: int) -> tuple[Path | bytes, str]:
    """What to decode, in memory unless it is large or a folder, and its digest."""
    place = Path(path)
    member = is_member(path)
    if not member and (place.is_dir() or size > READ_AT_ONCE):
        return place, content_digest(path)
    data = read_member(path) if member else place.read_bytes()
    return data, digest_of(data)


def _describe(source: Path | bytes, policy: Policy, limits: Limits, known: dict[str, Any]) -> FileFacts:
    with open_video(source, policy=policy, limits=limits, fps=None) as video:
        verify = getattr(video, "verify", None)
        if verify is not None:
            verify()
        info, count = video.info, len(video)
        return FileFacts(
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
            fingerprint=fingerprint(video.get_frames(sampled_times(count))),
            **_clock(video),
        )


def _clock(video: Decoder) -> dict[str, Any]:
    """Duration and rate as the frames' own times give them; nothing for a folder of images, which has none."""
    try:
        times = video.timestamps
    except InputError:
        return {}
    if len(times) < 2:
        return {"duration": 1 / video.info.fps if video.info.fps else 0.0}
    steps = np.diff(times)
    usual = float(np.median(steps))
    return {
        "duration": float(times[-1]) + usual,
        "measured_fps": (len(times) - 1) / float(times[-1]),
        "variable_rate": bool(np.ptp(steps) > usual / 2),
    }


class FactStore:
    """The facts about the files of one data set, on disk. Lines are only added; the last one about a file counts."""

    def __init__(self, data: str | Path) -> None:
        name = hashlib.blake2b(os.fsencode(Path(data).resolve()), digest_size=12).hexdigest()
        self.path = cache_directory() / "facts" / f"{name}-{FORMAT}.jsonl"
        self._facts = _load(self.path)

    def get(self, path: str) -> FileFacts | None:
        """What is known about a file, if it has not changed since."""
        known = self._facts.get(path)
        if known is None:
            return None
        try:
            return known if (known.size, known.changed) == stamp_of(path) else None
        except OSError:
            return None

    def add(self, facts: Iterable[FileFacts]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            for one in facts:
                self._facts[one.path] = one
                file.write(json.dumps(asdict(one)) + "\n")


def _load(path: Path) -> dict[str, FileFacts]:
    if not path.exists():
        return {}
    facts = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            one = FileFacts(**json.loads(line))
        except (json.JSONDecodeError, TypeError):
            continue  # the line that was being written when a check was interrupted
        facts[one.path] = one
    return facts
