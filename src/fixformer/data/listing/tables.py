"""Tables: any CSV with a path and a label column, and LSA64's `index.csv`, which is split by signer."""

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from fixformer.data.listing.escapes import ESCAPED_COLUMN, unescape
from fixformer.data.listing.find_files import locate
from fixformer.data.listing.index import UNLABELLED, Index, IndexOptions, ListingError, Sample
from fixformer.data.listing.label_files import (
    annotations,
    is_annotation,
    read_lines,
    read_names,
    read_text,
    reading,
    whole_number,
)
from fixformer.data.listing.split import split_by_seed, split_of_name
from fixformer.errors import SettingsConflict
from fixformer.runtime.files import open_file

PATH_COLUMNS = ("path", "file", "filename", "video", "video_path", "filepath")
NAME_COLUMNS = ("class", "class_name", "label_name", "action", "name")
LABEL_COLUMNS = ("label", "class_id", "target", *NAME_COLUMNS)
GROUP_COLUMNS = ("group", "subject", "signer", "person", "actor")
LSA64_COLUMNS = frozenset(("path", "label", "class", "subject", "recording_set"))
LSA64_TEST_SIGNERS = frozenset(("9", "10"))  # of ten; the usual signer-independent split

Row = dict[str, str]


@dataclass(frozen=True)
class Table:
    path: Path
    rows: list[Row]
    columns: list[str]

    def column(self, names: tuple[str, ...]) -> str | None:
        return next((name for name in names if name in self.columns), None)


def read_table(path: Path) -> Table:
    try:
        lines = [row for row in csv.reader(io.StringIO(read_text(path), newline="")) if any(map(str.strip, row))]
    except csv.Error as error:
        raise ListingError(f"{path} is not a CSV table: {error}.") from None
    columns = [name.strip().lower() for name in lines[0]] if lines else []
    rows = [dict(zip(columns, map(str.strip, row), strict=False)) for row in lines[1:]]
    if ESCAPED_COLUMN in columns:
        rows = [_unescaped(row, path) if row.get(ESCAPED_COLUMN) else row for row in rows]
    short = next((row for row in rows if len(row) < len(columns)), None)
    if short is not None:
        raise ListingError(f"a row of {path} has {len(short)} of {len(columns)} columns: {short}.")
    return Table(path, rows, columns)


def _unescaped(row: Row, path: Path) -> Row:
    try:
        return {column: unescape(cell) for column, cell in row.items()}
    except ValueError as error:
        raise ListingError(f"{path}: {error}.") from None


def header(path: Path) -> list[str]:
    """The column names, without reading the table."""
    with reading(path), open_file(path, newline="", encoding="utf-8-sig", errors="replace") as file:
        try:
            return [name.strip().lower() for name in next(csv.reader(file), [])]
        except csv.Error:
            return []  # not a table


def is_sample_table(path: Path) -> bool:
    columns = header(path)
    return any(name in columns for name in PATH_COLUMNS) and any(name in columns for name in LABEL_COLUMNS)


def load_csv(root: Path, options: IndexOptions) -> Index:
    """One CSV with a split column, several CSVs named after their split, or one that is split by seed (and group)."""
    files = [root] if root.is_file() else [path for path in annotations(root, "*.csv") if is_sample_table(path)]
    if not files:
        raise ListingError(
            f"no CSV with a path column ({', '.join(PATH_COLUMNS)}) and a label column "
            f"({', '.join(LABEL_COLUMNS)}) in {root}."
        )
    tables = [read_table(path) for path in files]
    folder = root.parent if root.is_file() else root
    _require_columns(tables)
    if options.labels:
        labels = read_names(options.labels)
    else:  # labels.txt beside the table also names labels without a row
        beside = folder / "labels.txt"
        has_escapes = any(ESCAPED_COLUMN in table.columns for table in tables)
        labels = read_lines(beside, has_escapes) if is_annotation(beside) else _label_names(tables)
    problems: list[str] = []
    samples = [s for table in tables for s in _samples(table, labels, len(tables) > 1)]
    if not samples:
        raise ListingError(f"{', '.join(str(table.path) for table in tables)} has a header but no rows.")
    if all(s.split == "" for s in samples):
        samples = split_by_seed(samples, options.seed, options.val_fraction, {}, problems)
    problems += _label_problems(", ".join(str(table.path) for table in tables), samples, labels)
    present, missing = locate(samples, folder, options, lambda finder, sample: finder.by_path(sample.path))
    return Index(folder, "csv", present, labels, missing, problems)


def load_lsa64(root: Path, options: IndexOptions) -> Index:
    """LSA64: signers 1-8 train, 9-10 test; with `recording_set`, only that set's signs, renumbered in order."""
    folder = root.parent if root.is_file() else root
    table = read_table(folder / "index.csv")
    absent = LSA64_COLUMNS - set(table.columns)
    if absent:
        raise ListingError(f"{table.path} is not LSA64's index: no column {', '.join(sorted(absent))}.")
    rows = table.rows
    if options.recording_set is not None:
        rows = [row for row in rows if row["recording_set"] == str(options.recording_set)]
        if not rows:
            known = ", ".join(sorted({row["recording_set"] for row in table.rows}))
            raise ListingError(f"recording set {options.recording_set} is not in {table.path}; it has {known}.")
    labels = _label_names([replace(table, rows=rows)])
    number = {name: i for i, name in enumerate(labels)}
    samples = []
    for row in rows:
        frames = row.get("frames", "")
        if frames and whole_number(frames) is None:
            raise ListingError(f"frames {frames!r} of {row['path']!r} in {table.path} is not a number.")
        label = _number(row["class"], number, table)
        split = "test" if row["subject"] in LSA64_TEST_SIGNERS else "train"
        count = int(frames) if frames else None
        samples.append(Sample(row["path"], label, split, row["path"], frames=count, group=row["subject"]))
    present, missing = locate(samples, folder, options, lambda finder, sample: finder.by_path(sample.path))
    return Index(folder, "lsa64", present, labels, missing)


def _label_names(tables: list[Table]) -> list[str]:
    """Label names: ordered by number if the tables have both, otherwise numerically or alphabetically."""
    numbers: dict[str, int] = {}
    names: set[str] = set()
    for table in tables:
        label, name = _columns(table)
        for row in table.rows:
            text = row[name]
            names.add(text)
            if (
                label != name
                and (number := whole_number(row[label])) is not None
                and numbers.setdefault(text, number) != number
            ):
                raise ListingError(f"label {text!r} has two numbers in {table.path}: {numbers[text]} and {row[label]}.")
    names.discard("")
    if all(name in numbers for name in names):
        return sorted(names, key=lambda name: numbers[name])
    return sorted(names, key=int) if all(whole_number(name) is not None for name in names) else sorted(names)


def _require_columns(tables: list[Table]) -> None:
    for table in tables:
        for kind, names in (("path", PATH_COLUMNS), ("label", LABEL_COLUMNS)):
            if table.column(names) is None:
                have = ", ".join(table.columns)
                raise ListingError(f"{table.path} has no {kind} column ({', '.join(names)}); its columns are {have}.")


def _columns(table: Table) -> tuple[str, str]:
    """The columns that hold a label's number (or name) and its name."""
    label = table.column(LABEL_COLUMNS)
    assert label is not None
    return label, table.column(NAME_COLUMNS) or label


def _samples(table: Table, labels: list[str], split_by_file: bool) -> Iterator[Sample]:
    path_column, group_column = table.column(PATH_COLUMNS), table.column(GROUP_COLUMNS)
    assert path_column is not None
    _, name_column = _columns(table)
    number = {name: i for i, name in enumerate(labels)}
    split = split_of_name(table.path.stem) or ""
    if split_by_file and not split and "split" not in table.columns:
        raise SettingsConflict(f"several CSVs, but {table.path.name} names no split, nor has it a split column.")
    for row in table.rows:
        if "split" in table.columns:
            split = split_of_name(row["split"]) or ""
            if not split:
                raise ListingError(f"split {row['split']!r} in {table.path} is not train, val or test.")
        start, end = _seconds(row, "start", table), _seconds(row, "end", table)
        name = PurePosixPath(row[path_column].replace("\\", "/")).as_posix()
        if start is not None or end is not None:
            name += f"@{start or 0:g}-{'' if end is None else f'{end:g}'}"
        frames = row.get("frames", "")
        yield Sample(
            path=row[path_column],
            label=_number(row[name_column], number, table),
            split=split,
            id=row.get("id") or name,
            start=start,
            end=end,
            frames=whole_number(frames),
            group=(row[group_column] or None) if group_column else None,
        )


def _number(name: str, number: dict[str, int], table: Table) -> int:
    if name == "":
        return UNLABELLED
    listed = whole_number(name)
    if name not in number and listed is not None and listed < len(number):
        return listed  # the table has numbers, and the names are in a file of labels
    if name not in number:
        raise ListingError(f"label {name!r} in {table.path} is not in the list of {len(number)} labels.")
    return number[name]


def _seconds(row: Row, name: str, table: Table) -> float | None:
    text = row.get(name) or row.get(f"time_{name}") or row.get(f"{name}_seconds") or ""
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise ListingError(f"{name} {text!r} in {table.path} is not a number of seconds.")
    return seconds


def _label_problems(place: str, samples: list[Sample], labels: list[str]) -> list[str]:
    problems = []
    if not any(s.label != UNLABELLED for s in samples):
        problems.append(f"no row in {place} has a label.")
    elif len(labels) < 2:
        problems.append(f"only one class ({labels[0]!r}) in {place}; a classifier needs two or more.")
    unlabelled = [s.id for s in samples if s.split == "train" and s.label == UNLABELLED]
    if unlabelled:
        problems.append(f"{len(unlabelled)} training rows in {place} have no label, first {unlabelled[0]!r}.")
    trained = {s.label for s in samples if s.split == "train"}
    for split in ("val", "test"):
        unseen = {s.label for s in samples if s.split == split} - trained - {UNLABELLED}
        if trained and unseen:
            name = labels[min(unseen)]
            problems.append(f"label {name!r} of {split} has no training row in {place} ({len(unseen)} such).")
    return problems
