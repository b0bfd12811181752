"""What a listed path holds, whether it is a file, a folder of images or a video inside a shard.

The stamp is cheap and tells that something changed; the digest reads every byte and tells what is there.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

from fixformer.data.video.image_folder import image_paths
from fixformer.data.video.shard_member import file_of, is_member, read_member


class Stamp(NamedTuple):
    """Size in bytes, and a number that is another one after a change: the time of a file's last change."""

    size: int
    changed: int


def stamp_of(path: str) -> Stamp:
    """Raises `OSError` if there is nothing to look at."""
    place = file_of(path)
    if place.is_dir():
        return _stamp_of_folder(place)
    status = place.stat()
    return Stamp(status.st_size, status.st_mtime_ns)


def _stamp_of_folder(folder: Path) -> Stamp:
    """Of the images: a folder's own time and size stay the same when one of its files is written again."""
    rows = [
        (image.name, status.st_size, status.st_mtime_ns) for image in image_paths(folder) if (status := image.stat())
    ]
    changed = hashlib.blake2b(repr(rows).encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return Stamp(sum(size for _, size, _ in rows), int.from_bytes(changed))


def content_digest(path: str) -> str:
    """Of a video's bytes; of a folder, those of its images in the order in which they are frames."""
    if is_member(path):
        return digest_of(read_member(path))
    place = Path(path)
    if place.is_dir():
        return digest_of("".join(digest_file(image) for image in image_paths(place)).encode())
    return digest_file(place)


def digest_of(data: bytes) -> str:
    """The identity of a file's content."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def digest_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
