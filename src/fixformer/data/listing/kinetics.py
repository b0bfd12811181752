"""Kinetics as published: CSV of youtube_id, time_start, time_end, and files named `<id>_<start>_<end>.mp4`."""

import math
from dataclasses import replace
from pathlib import Path

from fixformer.data.listing.find_files import FileFinder, locate
from fixformer.data.listing.index import UNLABELLED, Index, IndexOptions, ListingError, Sample
from fixformer.data.listing.label_files import annotations, read_names
from fixformer.data.listing.split import split_of_name
from fixformer.data.listing.tables import Row, Table, header, read_table

ANNOTATION_FOLDERS = ("", "annotations")


def annotation_files(root: Path) -> list[Path]:
    """The CSVs with a youtube_id column: the given file, or those of a directory."""
    if root.is_file():
        return [root]
    for name in ANNOTATION_FOLDERS:
        found = [path for path in annotations(root / name, "*.csv") if "youtube_id" in header(path)]
        if found:
            return found
    return []


def load_kinetics(root: Path, options: IndexOptions) -> Index:
    """Labels are the names in alphabetical order, which is the numbering in common use."""
    files = annotation_files(root)
    if not files:
        raise ListingError(f"no CSV with a youtube_id column in {root} or {root / 'annotations'}.")
    tables = [read_table(path) for path in files]
    lacking = next((table.path for table in tables if "youtube_id" not in table.columns), None)
    if lacking:
        raise ListingError(f"{lacking} has no youtube_id column, so it is not a Kinetics list.")
    folder = root.parent if root.is_file() else root
    labels = read_names(options.labels) if options.labels else _names(tables)
    number = {name: i for i, name in enumerate(labels)}
    samples = [_sample(row, number, table) for table in tables for row in table.rows]
    repeated = _repeated_split(files, tables)

    def find(finder: FileFinder, sample: Sample) -> str | None:
        name = labels[sample.label] if sample.label != UNLABELLED else ""
        prefer = (sample.split, name, name.replace(" ", "_"))
        return finder.by_stem(sample.id, prefer) or finder.by_stem(sample.id.rsplit("_", 2)[0], prefer)

    present, missing = locate(samples, folder, options, find)
    if options.require_files:  # a trimmed file is taken whole; a whole video `<id>.mp4` is cut at the listed seconds
        present = [replace(s, start=None, end=None) if Path(s.path).stem == s.id else s for s in present]
    return Index(folder, "kinetics", present, labels, missing, [repeated] if repeated else [])


def clip_name(youtube_id: str, start: float, end: float) -> str:
    """The stem under which the trimmed clip is usually stored."""
    return f"{youtube_id}_{int(start):06d}_{int(end):06d}"


def _names(tables: list[Table]) -> list[str]:
    names = {row["label"] for table in tables for row in table.rows if row.get("label")}
    if not names:
        raise ListingError(f"no label column in {', '.join(str(table.path) for table in tables)}; give labels=FILE.")
    return sorted(names)


def _sample(row: Row, number: dict[str, int], table: Table) -> Sample:
    try:
        start, end = float(row["time_start"]), float(row["time_end"])
        if not math.isfinite(start + end):
            raise ValueError
    except (KeyError, ValueError):
        raise ListingError(f"row {row} of {table.path} has no time_start and time_end in seconds.") from None
    split = split_of_name(row.get("split", "")) or split_of_name(table.path.stem)
    if split is None:
        raise ListingError(f"neither the split column nor the name of {table.path} says train, val or test.")
    name = row.get("label", "")
    if name and name not in number:
        raise ListingError(f"label {name!r} in {table.path} is not in the list of {len(number)} labels.")
    stem = clip_name(row["youtube_id"], start, end)
    label = number[name] if name else UNLABELLED
    # clips cut from one video belong together
    return Sample(f"{stem}.mp4", label, split, stem, start, end, group=row["youtube_id"])


def _repeated_split(files: list[Path], tables: list[Table]) -> str | None:
    """Kinetics-400 and -600 side by side would otherwise be mixed."""
    seen: dict[str, Path] = {}
    for path, table in zip(files, tables, strict=True):
        for split in {row.get("split", "") or path.stem for row in table.rows}:
            if split in seen:
                return f"{seen[split].name} and {path.name} both list the {split} split; name one of the files."
            seen[split] = path
    return None
