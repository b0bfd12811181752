"""Has a video changed, and are two the same: for files, folders of images and videos inside shards.

The stamp is cheap and shows that something changed; the digest reads every byte and identifies the content.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

from fixformer.data.video.image_folder import image_paths
from fixformer.data.video.shard_member import file_of, is_member, read_member
from fixformer.data.video.source_file import require_content
from fixformer.runtime.files import open_file


class Stamp(NamedTuple):
    """Size in bytes, and a number that differs after a change: a file's modification time."""

    size: int
    changed: int


def stamp_of(path: str) -> Stamp:
    """Raises `OSError` if there is no such file, or nothing in it."""
    place = file_of(path)
    if not place.is_dir():
        require_content(place)
        status = place.stat()
        return Stamp(status.st_size, status.st_mtime_ns)
    # a folder's own size and time stay the same when one of its images is overwritten, so hash those of the images
    rows = [
        (image.name, status.st_size, status.st_mtime_ns) for image in image_paths(place) if (status := image.stat())
    ]
    changed = hashlib.blake2b(repr(rows).encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return Stamp(sum(size for _, size, _ in rows), int.from_bytes(changed))


def content_digest(path: str) -> str:
    """The digest of a video's bytes; for a folder, of its images in frame order."""
    if is_member(path):
        return digest_of(read_member(path))
    place = Path(path)
    if place.is_dir():
        return digest_of("".join(digest_file(image) for image in image_paths(place)).encode())
    return digest_file(place)


def digest_of(data: bytes) -> str:
    """The identity of some content."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def digest_file(path: Path) -> str:
    require_content(path)
    with open_file(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
