"""The plan of a labelling: every row of the source in one Parquet file, numbered, and which of them are to be done.

It is written once, a row group at a time, and read the same way, so its length does not matter. A row has its number
from here on: what is done follows from the numbers in the files that were written, whichever engine wrote them.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from fixformer.data.listing.escapes import ESCAPED_COLUMN, escape
from fixformer.errors import UserError
from fixformer.labelling.arrow import import_arrow
from fixformer.labelling.decoding import Row
from fixformer.labelling.row_sources import RowSource
from fixformer.runtime.files import replacing

GROUP = 4096  # rows in memory at a time


def write_plan(source: RowSource, path: Path) -> None:
    """Number the rows of a source and write them, atomically."""
    pa = import_arrow()
    schema = plan_schema(source.carried)
    count, rows = 0, enumerate(source.rows)
    with (
        replacing(path) as temporary,
        pa.OSFile(str(temporary), "wb") as file,
        pa.parquet.ParquetWriter(file, schema) as writer,
    ):
        while group := [_storable({"row": number, **row}) for number, row in islice(rows, GROUP)]:
            writer.write_table(pa.Table.from_pylist(group, schema))
            count += len(group)
    if not count:
        path.unlink()
        raise UserError("the source has no rows; expected a manifest with one video a row.")


def plan_schema(carried: dict[str, Any]) -> Any:
    pa = import_arrow()
    own = {"row": pa.int64(), "id": pa.string(), "path": pa.string(), "start": pa.float64(), "end": pa.float64()}
    return pa.schema([*{**own, ESCAPED_COLUMN: pa.bool_(), **carried}.items()])


def _storable(row: Row) -> Row:
    """The row, with its texts escaped if one of them is no Unicode text, as the name of a file need not be."""
    texts = {name: value for name, value in row.items() if isinstance(value, str)}
    try:
        "".join(texts.values()).encode()
    except UnicodeEncodeError:
        return {**row, **{name: escape(text) for name, text in texts.items()}, ESCAPED_COLUMN: True}
    return {**row, ESCAPED_COLUMN: False}


class WorkPlan:
    """A plan that was written."""

    def __init__(self, path: Path) -> None:
        pa = import_arrow()
        self._path = path
        try:
            self._file = pa.parquet.ParquetFile(path, memory_map=False, pre_buffer=False)
        except (pa.ArrowException, OSError) as error:
            reason = " ".join(str(error).split())[:200].rstrip(".")
            raise UserError(f"{path} is damaged ({reason}); remove the directory and label again.") from None
        self.schema = self._file.schema_arrow

    def __len__(self) -> int:
        return self._file.metadata.num_rows

    def tables(self, todo_N: np.ndarray) -> Iterator[Any]:
        """The rows that are still to be done as Arrow tables, one row group at a time."""
        first = 0
        for group in range(self._file.num_row_groups):
            count = self._file.metadata.row_group(group).num_rows
            todo = todo_N[first : first + count]
            first += count
            if todo.any():
                table = self._file.read_row_group(group, use_threads=False)
                yield table if todo.all() else table.filter(import_arrow().array(todo))

    def rows(self, todo_N: np.ndarray) -> Iterator[Row]:
        for table in self.tables(todo_N):
            yield from table.to_pylist()
