"""What SOURCE names, as rows one after the other: id, path, start, end, and what a manifest has beside these.

A source is a folder, a pattern, a manifest (CSV or Parquet), tar shards, one video, or a URL of any of these. Manifests
are read row by row, so that one of a million rows needs no more memory than one of a thousand.
"""

import csv
import glob
import io
import math
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from fixformer.data.listing.escapes import ESCAPED_COLUMN, unescape
from fixformer.data.listing.find_files import walk_files
from fixformer.data.listing.shards import is_shard_set, read_index
from fixformer.data.listing.tables import PATH_COLUMNS
from fixformer.data.video.shard_member import member_path
from fixformer.data.video.suffixes import VIDEO_SUFFIXES
from fixformer.errors import UserError, shown
from fixformer.labelling.arrow import import_arrow
from fixformer.labelling.decoding import Row
from fixformer.labelling.remote_files import find_urls, is_url, open_url, reading_url
from fixformer.runtime.files import open_file

TAR, MANIFESTS = ".tar", (".csv", ".parquet")
# Names of the columns that the result has of its own; a manifest's column of such a name is carried as input_NAME.
RESULT_COLUMNS = (
    *("row", "id", "path", "start", "end", ESCAPED_COLUMN, "status", "error", "label", "probability", "seconds"),
    *("top_labels", "top_probabilities", "logits", "features", "model", "fixformer"),
)
_BATCH = 4096  # rows of a Parquet manifest in memory at a time
_OF_ROW = ("id", "start", "end", ESCAPED_COLUMN)  # columns of a manifest that mean something, beside the path


@dataclass(frozen=True)
class RowSource:
    """Rows in order. `carried` are the further columns, by name, with their Arrow types."""

    rows: Iterator[Row]
    carried: dict[str, Any] = field(default_factory=dict)


def open_rows(source: str, urls: str | None = None) -> RowSource:
    """The rows of a source; a manifest may name URLs that begin with `urls`, and no others."""
    suffix = PurePosixPath(source).suffix.lower()
    if suffix in MANIFESTS and (is_url(source) or os.path.isfile(source)):
        return (_csv_source if suffix == ".csv" else _parquet_source)(source, urls)
    rows = _required(_remote_rows(source, suffix) if is_url(source) else _local_rows(source, suffix), source)
    return RowSource(rows)


def _row(name: str, path: str, start: float | None = None, end: float | None = None) -> Row:
    return {"id": name, "path": path, "start": start, "end": end}


def _required(rows: Iterator[Row], source: str) -> Iterator[Row]:
    first = next(rows, None)
    if first is None:
        raise UserError(f"{source} holds no video; expected files such as .mp4 or .webm, or tar shards.")
    yield first
    yield from rows


def _local_rows(source: str, suffix: str) -> Iterator[Row]:
    root = Path(source)
    if os.path.isdir(source):
        if is_shard_set(root):
            entries = read_index(root).entries
            yield from (_row(one.id, member_path(root / one.shard, one.offset, one.size)) for one in entries)
            return
        yield from (_row(name, os.path.join(source, name)) for name in walk_files(root, VIDEO_SUFFIXES))
        for name in walk_files(root, frozenset((TAR,))):
            yield from _tar_rows(os.path.join(source, name), lambda tar: open_file(tar, "rb"))
    elif os.path.exists(source):
        yield from _file_rows(source, suffix)
    elif glob.has_magic(source):
        for name in sorted(glob.iglob(source, recursive=True)):
            if os.path.isfile(name):
                yield from _file_rows(name, PurePosixPath(name).suffix.lower())
    else:
        raise UserError(f"{source} does not exist; expected a folder, a pattern, a manifest, tar shards or a URL.")


def _file_rows(name: str, suffix: str) -> Iterator[Row]:
    if suffix == TAR:
        yield from _tar_rows(name, lambda tar: open_file(tar, "rb"))
    else:
        yield _row(name, name)


def _remote_rows(source: str, suffix: str) -> Iterator[Row]:
    if suffix in VIDEO_SUFFIXES and not glob.has_magic(source):
        yield _row(source, source)
        return
    names = [source] if suffix == TAR and not glob.has_magic(source) else find_urls(source, VIDEO_SUFFIXES | {TAR})
    for name in names:
        if name.lower().endswith(TAR):
            with reading_url(name):
                yield from _tar_rows(name, open_url)
        else:
            yield _row(name, name)


def _tar_rows(tar: str, opening: Callable[[str], AbstractContextManager[BinaryIO]]) -> Iterator[Row]:
    """The videos in a tar, by what its headers say; the videos themselves are not read."""
    try:
        with opening(tar) as file, tarfile.open(fileobj=file, mode="r:") as members:
            for member in members:
                if member.isfile() and PurePosixPath(member.name).suffix.lower() in VIDEO_SUFFIXES:
                    place = member_path(Path("x.tar"), member.offset_data, member.size).removeprefix("x.tar")
                    yield _row(f"{PurePosixPath(tar).name}/{member.name}", f"{tar}{place}")
                members.members.clear()  # type: ignore[attr-defined] # tarfile keeps all it has seen
    except (tarfile.TarError, EOFError) as error:
        raise UserError(f"{tar} is not a tar that can be read ({error}); make it again or remove it.") from None
    except OSError as error:
        raise UserError(f"cannot read {tar}: {error.strerror or error}.") from None


# Manifests


def _csv_source(source: str, urls: str | None) -> RowSource:
    pa = import_arrow()
    lines = _csv_lines(source)
    names = [name.strip() for name in next(lines, (0, []))[1]]
    columns = Columns(source, names, urls)

    def rows() -> Iterator[Row]:
        for line, cells in lines:
            if len(cells) < len(names):
                raise UserError(f"{source}, line {line}: {len(cells)} cells for {len(names)} columns; complete it.")
            yield columns.row(map(str.strip, cells), f"line {line}")

    return RowSource(rows(), dict.fromkeys(columns.carried.values(), pa.string()))


def _csv_lines(source: str) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and cells, without empty lines."""
    try:
        with _open_binary(source) as binary:
            reader = csv.reader(io.TextIOWrapper(binary, encoding="utf-8-sig", newline=""))
            for cells in reader:
                if any(map(str.strip, cells)):
                    yield reader.line_num, cells
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(f"{source} is not a CSV table in UTF-8 ({error}); save it as one.") from None


def _parquet_source(source: str, urls: str | None) -> RowSource:
    pa = import_arrow()
    parquet = pa.parquet
    try:
        with _open_binary(source) as binary:
            schema = parquet.ParquetFile(binary).schema_arrow
    except (pa.ArrowException, ValueError) as error:
        raise _damaged(source, error) from None
    columns = Columns(source, schema.names, urls)

    def rows() -> Iterator[Row]:
        number = 0
        try:
            with _open_binary(source) as binary:
                for batch in parquet.ParquetFile(binary, pre_buffer=False).iter_batches(_BATCH, use_threads=False):
                    for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                        number += 1
                        yield columns.row(values, f"row {number}")
        except (pa.ArrowException, ValueError) as error:
            if isinstance(error, UserError):
                raise
            raise _damaged(source, error) from None

    return RowSource(rows(), {columns.carried[one.name]: one.type for one in schema if one.name in columns.carried})


def _damaged(source: str, error: Exception) -> UserError:
    reason = " ".join(str(error).split()).rstrip(".")[:200]
    return UserError(f"{source} is not a Parquet file that can be read ({reason}); write it again.")


def _open_binary(source: str) -> AbstractContextManager[BinaryIO]:
    return open_url(source) if is_url(source) else open_file(source, "rb")


class Columns:
    """What the columns of a manifest mean.

    Args:
        urls: what the URLs in it must begin with: a file must not decide where this machine connects to.
    """

    def __init__(self, source: str, names: Iterable[str], urls: str | None) -> None:
        self._source, self._names, self._urls = source, list(names), urls
        by_name = {name.lower(): name for name in reversed(self._names)}
        found = next((by_name[name] for name in PATH_COLUMNS if name in by_name), None)
        if found is None:
            have = ", ".join(self._names) or "none"
            wanted = ", ".join(PATH_COLUMNS)
            raise UserError(f"{source} has no path column ({wanted}); its columns are: {shown(have)}.")
        self._path = found
        self._own = {name: by_name[name] for name in _OF_ROW if name in by_name}
        self._folder = source.rpartition("/")[0] if is_url(source) else os.path.dirname(source)
        taken = {*RESULT_COLUMNS}
        self.carried: dict[str, str] = {}  # a column of the manifest -> its name in the result
        for name in self._names:
            if name != self._path and name not in self._own.values():
                self.carried[name] = _free_name(name, taken)
                taken.add(self.carried[name])

    def row(self, values: Iterable[Any], where: str) -> Row:
        cells = dict(zip(self._names, values, strict=False))
        if cells.get(self._own.get(ESCAPED_COLUMN, "")):
            cells = {name: unescape(cell) if isinstance(cell, str) else cell for name, cell in cells.items()}
        start, end = (self._seconds(cells, name, where) for name in ("start", "end"))
        path = self._place(str(cells[self._path] or ""), where)
        name = cells.get(self._own.get("id", ""))
        if name in (None, ""):
            part = "" if start is None and end is None else f"@{start or 0:g}-{'' if end is None else f'{end:g}'}"
            name = f"{cells[self._path]}{part}"
        carried = {new: cells[old] for old, new in self.carried.items()}
        return {**_row(str(name), path, start, end), **carried}

    def _place(self, path: str, where: str) -> str:
        if not path:
            return path  # is reported as missing
        if is_url(path):
            if self._urls is None or not path.startswith(self._urls):
                raise UserError(
                    f"{self._source}, {where}: {shown(path)} is a URL, and a file may not say where to connect to; "
                    "allow it with the beginning of its URLs, such as --urls s3://bucket/."
                )
            return path
        if is_url(self._source):
            return path if os.path.isabs(path) else f"{self._folder}/{path}"
        return os.path.join(self._folder, path)

    def _seconds(self, cells: Row, name: str, where: str) -> float | None:
        value = cells.get(self._own.get(name, ""))
        if value in (None, ""):
            return None
        try:
            seconds = float(value)
        except (TypeError, ValueError):
            seconds = math.nan
        if not math.isfinite(seconds):
            raise UserError(f"{self._source}, {where}: {name} {shown(value)} is not a number of seconds.")
        return seconds


def _free_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name = f"input_{name}"
    return name
