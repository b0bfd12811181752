"""Paths of videos inside tar shards: `DIR/train-000000.tar::512+90000` is 90,000 bytes of the tar from byte 512 on."""

import re
from pathlib import Path

from fixformer.data.video.decoder import DecodeError

_MEMBER = re.compile(r"(?P<tar>.+\.tar)::(?P<offset>\d+)\+(?P<size>\d+)")


def member_path(tar: Path, offset: int, size: int) -> str:
    return f"{tar}::{offset}+{size}"


def is_member(path: str) -> bool:
    """Whether a path names a video inside a shard."""
    return _MEMBER.fullmatch(path) is not None


def file_of(path: str) -> Path:
    """The file on disk: the shard of a member, otherwise the path itself."""
    match = _MEMBER.fullmatch(path)
    return Path(match["tar"]) if match else Path(path)


def read_member(path: str) -> bytes:
    """The bytes of a video inside a shard."""
    match = _MEMBER.fullmatch(path)
    assert match is not None, path
    try:
        with Path(match["tar"]).open("rb") as file:
            file.seek(int(match["offset"]))
            data = file.read(int(match["size"]))
    except OSError as error:
        raise DecodeError(f"the shard cannot be read: {error.strerror}", file=path) from None
    if len(data) < int(match["size"]):
        raise DecodeError(f"the shard ends after {len(data)} of the video's {match['size']} bytes", file=path)
    return data
