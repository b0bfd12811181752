"""Paths of videos inside tar shards: `DIR/train-000000.tar::512+90000` is 90,000 bytes of the tar from byte 512 on."""

import os
import re
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

from fixformer.data.video.decoder import DecodeError
from fixformer.data.video.source_file import require_content
from fixformer.runtime.files import open_file

_MEMBER = re.compile(r"(?P<tar>.+\.tar)::(?P<offset>[0-9]{1,18})\+(?P<size>[0-9]{1,18})")


class ShardMember(NamedTuple):
    """The `size` bytes from `offset` of a tar."""

    tar: str
    offset: int
    size: int


def member_path(tar: Path, offset: int, size: int) -> str:
    return f"{tar}::{offset}+{size}"


def parse_member(path: str) -> ShardMember | None:
    """What a path inside a shard names; None for any other path."""
    match = _MEMBER.fullmatch(path)
    return ShardMember(match["tar"], int(match["offset"]), int(match["size"])) if match else None


def is_member(path: str) -> bool:
    """Whether a path names a video inside a shard."""
    return parse_member(path) is not None


def file_of(path: str) -> Path:
    """The file on disk: the shard of a member, otherwise the path itself."""
    member = parse_member(path)
    return Path(member.tar if member else path)


def read_part(file: BufferedReader, offset: int, size: int) -> bytes:
    """The `size` bytes from `offset` of a file, or those of them that there are.

    Python would make room for all that is asked for, and an index may ask for more than any machine has.
    """
    end = os.fstat(file.fileno()).st_size
    begin = file.seek(min(offset, end))
    return file.read(min(size, end - begin))


def read_member(path: str) -> bytes:
    """The bytes of a video inside a shard."""
    member = parse_member(path)
    assert member is not None, path
    try:
        require_content(member.tar)
        with open_file(member.tar, "rb") as file:
            data = read_part(file, member.offset, member.size)
    except OSError as error:
        raise DecodeError(f"the shard cannot be read: {error.strerror}", file=path) from None
    if len(data) < member.size:
        raise DecodeError(f"the shard ends after {len(data)} of the video's {member.size} bytes", file=path)
    return data
