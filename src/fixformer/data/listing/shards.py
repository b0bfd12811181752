"""A directory of tar shards as a data set; `prepare --shards` writes it, and WebDataset can read its tars too.

It holds `SPLIT-NUMBER.tar` (members `KEY.mp4` and `KEY.json`), one `SPLIT-NUMBER.json` beside each with the place of
every video in it, and `index.json` over all. A video in a shard has a path like any other:
`DIR/train-000000.tar::512+90000` is 90,000 bytes from byte 512 of the tar.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

from fixformer.config.schema import Expect, load
from fixformer.data.listing.index import UNLABELLED, Index, ListingError, Sample
from fixformer.data.listing.label_files import is_annotation, reading
from fixformer.data.video.shard_member import member_path
from fixformer.errors import UserError
from fixformer.runtime.files import open_file, read_json

FORMAT = "fixformer-shards-1"
INDEX = "index.json"


# A plain file name: it becomes part of a path, of a URL and of the arguments of a command.
ShardName = Annotated[
    str, Expect("a file name such as train-000000.tar", re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.tar", re.A).fullmatch)
]
Bytes = Annotated[int, Expect("a number of bytes", lambda value: 0 <= value < 10**18)]
Label = Annotated[int, Expect("the number of a label, or -1", lambda value: -1 <= value < 2**31)]
Frames = Annotated[int, Expect("a number of frames", lambda value: 0 <= value < 2**31)]
StatedFrameRate = Annotated[float, Expect("a finite number", isfinite)]  # whatever the video says it is
Split = Annotated[str, Expect("train, val or test", frozenset(("train", "val", "test")).__contains__)]


@dataclass(frozen=True)
class ShardEntry:
    """One video in a shard: the `size` bytes from `offset` of the tar."""

    key: str
    shard: ShardName
    offset: Bytes
    size: Bytes
    label: Label
    split: Split
    frames: Frames
    fps: StatedFrameRate | None
    id: str
    group: str | None = None


@dataclass(frozen=True)
class FailedVideo:
    """A video that is in no shard, and why."""

    id: str
    path: str
    label: Label
    split: Split
    group: str | None = None
    problem: str = ""


@dataclass(frozen=True)
class ShardSet:
    """The whole index; `settings` are those of `prepare`."""

    root: Path
    labels: list[str]
    entries: list[ShardEntry]
    failed: list[FailedVideo] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ShardIndex:
    """`index.json`, as `prepare` writes it."""

    format: str
    labels: tuple[str, ...]
    settings: dict[str, Any]
    failed: tuple[FailedVideo, ...]
    samples: tuple[ShardEntry, ...]


def is_shard_set(root: Path) -> bool:
    """Whether a directory has an index of shards in this format."""
    path = root / INDEX
    if not is_annotation(path):
        return False
    with reading(path), open_file(path, encoding="utf-8", errors="replace") as file:
        return FORMAT in file.read(200)  # the format is the first entry, and the file may be large


def read_index(root: str | Path) -> ShardSet:
    """The index of a set of shards; a `ListingError` that names the file and what is wrong in it."""
    path = Path(root) / INDEX
    if not is_annotation(path):
        raise ListingError(f"{root} contains no {INDEX}, so it is not a set of shards.")
    values = read_json(path)
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise ListingError(f"{path} is not an index of shards written by this version ({FORMAT}).")
    try:
        content = load(ShardIndex, values)
    except UserError as error:
        raise ListingError(f"{path} is damaged: {error}") from None
    numbers = [*(row.label for row in content.samples), *(row.label for row in content.failed)]
    highest = max(numbers, default=UNLABELLED)
    if highest >= len(content.labels):
        raise ListingError(f"{path} is damaged: label={highest}, but it names only {len(content.labels)} labels.")
    places = Counter((row.shard, row.offset) for row in content.samples)
    shard, offset = next((place for place, count in places.items() if count > 1), (None, None))
    if shard is not None:
        raise ListingError(f"{path} is damaged: two videos begin at byte {offset} of {shard}.")
    return ShardSet(Path(root), list(content.labels), list(content.samples), list(content.failed), content.settings)


def load_shards(root: Path, require_files: bool = True) -> Index:
    """The videos in the shards, listed as in any other data set.

    Missing are the videos that no shard holds and, with `require_files`, those whose shard is absent or cut short. If
    no shard is there at all, they are elsewhere, and only the user can say where.
    """
    shards = read_index(root)
    samples: list[Sample] = []
    missing = [Sample(row.path, row.label, row.split, row.id, group=row.group) for row in shards.failed]
    names = {entry.shard for entry in shards.entries}
    sizes = {name: (root / name).stat().st_size if (root / name).is_file() else 0 for name in names}
    if require_files and sizes and not any(sizes.values()):
        raise ListingError(
            f"none of the {len(sizes)} shards that {root / INDEX} lists is in {root}; if they are elsewhere, give "
            "location=DIRECTORY or a pattern such as location='https://host/{shard}'."
        )
    for entry in shards.entries:
        path = member_path(root / entry.shard, entry.offset, entry.size)
        sample = Sample(path, entry.label, entry.split, entry.id, frames=entry.frames, group=entry.group)
        is_there = not require_files or entry.offset + entry.size <= sizes[entry.shard]
        (samples if is_there else missing).append(sample)
    return Index(Path(root), "shards", samples, shards.labels, missing)
