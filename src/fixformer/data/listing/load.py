"""`load_index`: any data set as one list of samples. The kind of layout is detected, or given.

Nothing is dropped: a listed file that does not exist is in `Index.missing`, problems of the set are in
`Index.problems`.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path

from fixformer.config.data import OpenFraction
from fixformer.config.schema import check_path, checked
from fixformer.data.listing.find_files import walk_files
from fixformer.data.listing.folders import (
    data_folders,
    has_images,
    load_folders,
    load_images,
    own_outputs,
    split_folders,
)
from fixformer.data.listing.index import Index, IndexOptions, ListingError, full_name
from fixformer.data.listing.kinetics import annotation_files, load_kinetics
from fixformer.data.listing.label_files import annotations, is_annotation, require_distinct
from fixformer.data.listing.lists import is_list, list_files, load_lists
from fixformer.data.listing.shards import INDEX, is_shard_set, load_shards
from fixformer.data.listing.ssv2 import annotation_folder, load_ssv2
from fixformer.data.listing.tables import LSA64_COLUMNS, header, is_sample_table, load_csv, load_lsa64
from fixformer.data.video.suffixes import VIDEO_SUFFIXES
from fixformer.errors import UnknownName, UserError
from fixformer.runtime.files import DATA_WRITERS, MARK, writer_of

KINDS: dict[str, Callable[[Path, IndexOptions], Index]] = {
    "folders": load_folders,
    "images": load_images,
    "csv": load_csv,
    "ssv2": load_ssv2,
    "kinetics": load_kinetics,
    "list": load_lists,
    "lsa64": load_lsa64,
    "shards": lambda root, options: load_shards(root, options.require_files),
}


@checked
def load_index(
    path: str | Path,
    *,
    kind: str = "auto",
    videos: str | Path | None = None,
    labels: str | Path | None = None,
    seed: int = 0,
    val_fraction: OpenFraction = 0.2,
    recording_set: int | None = None,
    require_files: bool = True,
    strict: bool = True,
) -> Index:
    """List a data set.

    Args:
        path: directory or annotation file.
        kind: the layout: folders, images, csv, ssv2, kinetics, list, lsa64 or shards; "auto" detects it.
        videos: directory of the files, if not that of the annotations.
        labels: a file of label names, one per line.
        seed: of the split, for a set that has none.
        val_fraction: share of the samples that such a split holds out.
        recording_set: of LSA64.
        require_files: False lists annotations without looking for files.
        strict: False returns an index with `problems` instead of raising.
    """
    check_path(path, "path")
    for name, given in (("videos", videos), ("labels", labels)):
        if given is not None:
            check_path(given, name)
    root = Path(path)
    if not os.path.exists(root):  # which also says no to a name too long or a link in a circle, where Path may raise
        raise ListingError(f"no such file or directory: {root}.")
    if not root.is_file() and not root.is_dir():
        raise ListingError(f"{root} is neither a regular file nor a directory; give a directory or annotation file.")
    if (writer := writer_of(root)) not in (None, *DATA_WRITERS):
        raise ListingError(
            f"{root} holds the output of `fixformer {writer}` (says {root / MARK}), which is no data set; "
            "give the directory of the videos."
        )
    chosen = detect_kind(root) if kind == "auto" else kind
    if chosen not in KINDS:
        raise UnknownName("kind of data set", kind, ["auto", *KINDS])
    if recording_set is not None and chosen != "lsa64":
        raise UserError(f"recording_set={recording_set} is for lsa64 only; {root} is of kind {chosen}.")
    if labels is not None and Path(labels).exists() and not Path(labels).is_file():
        raise ListingError(f"labels={str(labels)!r} is not a regular file; expected one of label names, one per line.")
    options = IndexOptions(
        _existing(videos, "videos"), _existing(labels, "labels"), seed, val_fraction, recording_set, require_files
    )
    index = KINDS[chosen](root, options)
    require_distinct(index.labels, full_name(index.root))
    _require_text(index)
    if not index.samples and not index.missing:
        raise ListingError(f"nothing is listed in {full_name(index.root)} (kind {index.kind}).")
    if not index.samples and require_files:
        raise ListingError(
            f"none of the {len(index.missing)} videos listed in {full_name(index.root)} exists under "
            f"{videos or full_name(index.root)}, first {index.missing[0].path!r}; give videos=FOLDER."
        )
    if strict and index.problems:
        raise ListingError(index.problems[0])
    return replace(index, skipped=own_outputs(root)) if os.path.isdir(root) else index


def detect_kind(root: Path) -> str:
    """The kind of a directory or annotation file."""
    kind = _kind_of_file(root) if root.is_file() else "shards" if is_shard_set(root) else _kind_of_directory(root)
    if kind is None:
        index = f" ({root / INDEX} is no index of shards)" if is_annotation(root / INDEX) else ""
        raise ListingError(
            f"{full_name(root)} is not a known kind of data set{index}; looked for *labels.json "
            "(Something-Something), a CSV with youtube_id (Kinetics) or with path and label, lists of "
            "`path frames label`, and folders train/CLASS/* or CLASS/* of videos or images."
        )
    return kind


def _kind_of_file(path: Path) -> str | None:
    if path.suffix == ".csv":
        columns = header(path)
        if "youtube_id" in columns:
            return "kinetics"
        if LSA64_COLUMNS <= set(columns):
            return "lsa64"
        return "csv" if is_sample_table(path) else None
    return "list" if path.suffix in (".txt", ".list") and is_list(path) else None


def _kind_of_directory(root: Path) -> str | None:
    if annotation_folder(root):
        return "ssv2"
    if is_annotation(root / "index.csv") and _kind_of_file(root / "index.csv") == "lsa64":
        return "lsa64"
    if annotation_files(root):
        return "kinetics"
    if any(is_sample_table(path) for path in annotations(root, "*.csv")):
        return "csv"
    if list_files(root):
        return "list"
    return _kind_of_folders(root)


def _kind_of_folders(root: Path) -> str | None:
    tops = list(split_folders(root).values()) or [root]
    classes = [folder for top in tops for folder in data_folders(top)]
    if not classes:
        return None
    if any(True for folder in classes for _ in walk_files(folder, VIDEO_SUFFIXES)):
        return "folders"
    if any(has_images([p.name for p in folder.iterdir()]) for folder in classes):
        return "images"
    subfolders = (sub for folder in classes for sub in data_folders(folder))
    return "folders" if any(has_images([p.name for p in sub.iterdir()]) for sub in subfolders) else None


def _require_text(index: Index) -> None:
    """Raise for half a character, which JSON can spell; only the bytes of a file name that is not UTF-8 are allowed."""
    names = (name for s in chain(index.samples, index.missing) for name in (s.id, s.path, s.group or ""))
    for name in chain(index.labels, names):
        try:
            name.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            place = full_name(index.root)
            raise ListingError(f"{name!r} in the list of {place} is not text; correct the name.") from None


def _existing(path: str | Path | None, name: str) -> Path | None:
    if path is None:
        return None
    if not os.path.exists(path):
        raise ListingError(f"{name}={str(path)!r}: no such file or directory; give the place where it is now.")
    return Path(path)
