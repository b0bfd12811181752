"""Videos in tar shards, as WebDataset reads them, with an index for reading them in any order.

A directory of shards holds `SPLIT-NUMBER.tar` (members `KEY.mp4` and `KEY.json`), one `SPLIT-NUMBER.json` beside each
with the place of every video in it, and `index.json` over all. A video in a shard has a path like any other:
`DIR/train-000000.tar::512+90000` is 90,000 bytes from byte 512 of the tar.
"""

import io
import json
import tarfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fixformer.data.listing.index import Index, ListingError, Sample
from fixformer.data.video.shard_member import member_path
from fixformer.runtime.files import replacing, write_json

FORMAT = "fixformer-shards-1"
INDEX = "index.json"


@dataclass(frozen=True)
class Entry:
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


@dataclass(frozen=True)
class Member:
    """One video on its way into a shard."""

    key: str
    data: bytes
    sample: Sample
    frames: int
    fps: float | None


@dataclass
class ShardSet:
    """The whole index. `failed` lists the videos that are not in any shard, and why."""

    root: Path
    labels: list[str]
    entries: list[Entry]
    failed: list[dict[str, Any]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)

    def split(self, name: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.split == name]


def write_shard(path: Path, members: Iterable[Member], labels: list[str]) -> list[Entry]:
    """A tar that appears whole or not at all."""
    entries = []
    with replacing(path) as temporary, tarfile.open(temporary, "w", format=tarfile.USTAR_FORMAT) as tar:
        for member in members:
            sample = member.sample
            name = labels[sample.label] if sample.label >= 0 else None
            facts = {"label": sample.label, "class": name, "id": sample.id, "frames": member.frames, "fps": member.fps}
            offset = _add(tar, f"{member.key}.mp4", member.data)
            _add(tar, f"{member.key}.json", json.dumps(facts).encode())
            entries.append(
                Entry(
                    key=member.key,
                    shard=path.name,
                    offset=offset,
                    size=len(member.data),
                    label=sample.label,
                    split=sample.split,
                    frames=member.frames,
                    fps=member.fps,
                    id=sample.id,
                    group=sample.group,
                )
            )
    return entries


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> int:
    """Append a member and tell where its content begins."""
    header = tarfile.TarInfo(name)
    header.size = len(data)
    offset = tar.offset + tarfile.BLOCKSIZE
    tar.addfile(header, io.BytesIO(data))
    return offset


def write_index(shards: ShardSet) -> None:
    write_json(
        shards.root / INDEX,
        {
            "format": FORMAT,
            "labels": shards.labels,
            "settings": shards.settings,
            "failed": shards.failed,
            "samples": [asdict(entry) for entry in shards.entries],
        },
    )


def is_shard_set(root: Path) -> bool:
    """Whether a directory holds shards written here."""
    path = root / INDEX
    return path.is_file() and FORMAT in path.read_text(encoding="utf-8")[:200]


def read_index(root: str | Path) -> ShardSet:
    path = Path(root) / INDEX
    if not path.is_file():
        raise ListingError(f"{root} holds no shards: there is no {INDEX} in it.")
    values = json.loads(path.read_text(encoding="utf-8"))
    if values.get("format") != FORMAT:
        raise ListingError(f"{path} is not an index of shards written by this version ({FORMAT}).")
    entries = [Entry(**row) for row in values["samples"]]
    return ShardSet(Path(root), values["labels"], entries, values["failed"], values["settings"])


def load_shards(root: Path, require_files: bool = True) -> Index:
    """The same kind of index that any other data set gives.

    Missing are the videos that no shard holds and, with `require_files`, those whose shard is absent or cut short.
    """
    shards = read_index(root)
    samples = [_sample(entry, root) for entry in shards.entries]
    missing = [
        Sample(row["path"], row["label"], row["split"], row["id"], group=row.get("group")) for row in shards.failed
    ]
    if require_files:
        sizes = {name: _size(root / name) for name in {entry.shard for entry in shards.entries}}
        whole = [entry.offset + entry.size <= sizes[entry.shard] for entry in shards.entries]
        missing += [sample for sample, there in zip(samples, whole, strict=True) if not there]
        samples = [sample for sample, there in zip(samples, whole, strict=True) if there]
    return Index(Path(root), "shards", samples, shards.labels, missing)


def _sample(entry: Entry, root: Path) -> Sample:
    return Sample(
        path=member_path(root / entry.shard, entry.offset, entry.size),
        label=entry.label,
        split=entry.split,
        id=entry.id,
        frames=entry.frames,
        group=entry.group,
    )


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
