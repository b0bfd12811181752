"""A directory of tar shards as a data set; `prepare --shards` writes it, and WebDataset can read its tars too.

It holds `SPLIT-NUMBER.tar` (members `KEY.mp4` and `KEY.json`), one `SPLIT-NUMBER.json` beside each with the place of
every video in it, and `index.json` over all. A video in a shard has a path like any other:
`DIR/train-000000.tar::512+90000` is 90,000 bytes from byte 512 of the tar.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fixformer.data.listing.index import Index, ListingError, Sample
from fixformer.data.video.shard_member import member_path

FORMAT = "fixformer-shards-1"
INDEX = "index.json"


@dataclass(frozen=True)
class ShardEntry:
    """One video in a shard: the `size` bytes from `offset` of the tar."""

    key: str
    shard: str
    offset: int
    size: int
    label: int
    split: str
    frames: int
    fps: float | None
    id: str
    group: str | None = None


@dataclass
class ShardSet:
    """The whole index. `failed` lists the videos that are not in any shard, and why."""

    root: Path
    labels: list[str]
    entries: list[ShardEntry]
    failed: list[dict[str, Any]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)


def is_shard_set(root: Path) -> bool:
    """Whether a directory has an index of shards in this format."""
    path = root / INDEX
    if not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        return FORMAT in file.read(200)  # the format is the first entry, and the file may be large


def read_index(root: str | Path) -> ShardSet:
    path = Path(root) / INDEX
    if not path.is_file():
        raise ListingError(f"{root} contains no {INDEX}, so it is not a set of shards.")
    values = json.loads(path.read_text(encoding="utf-8"))
    if values.get("format") != FORMAT:
        raise ListingError(f"{path} is not an index of shards written by this version ({FORMAT}).")
    entries = [ShardEntry(**row) for row in values["samples"]]
    return ShardSet(Path(root), values["labels"], entries, values["failed"], values["settings"])


def load_shards(root: Path, require_files: bool = True) -> Index:
    """The videos in the shards, listed as in any other data set.

    Missing are the videos that no shard holds and, with `require_files`, those whose shard is absent or cut short.
    """
    shards = read_index(root)
    samples: list[Sample] = []
    missing = [
        Sample(row["path"], row["label"], row["split"], row["id"], group=row.get("group")) for row in shards.failed
    ]
    names = {entry.shard for entry in shards.entries}
    sizes = {name: (root / name).stat().st_size if (root / name).is_file() else 0 for name in names}
    for entry in shards.entries:
        path = member_path(root / entry.shard, entry.offset, entry.size)
        sample = Sample(path, entry.label, entry.split, entry.id, frames=entry.frames, group=entry.group)
        is_there = not require_files or entry.offset + entry.size <= sizes[entry.shard]
        (samples if is_there else missing).append(sample)
    return Index(Path(root), "shards", samples, shards.labels, missing)
