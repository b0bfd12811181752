"""The result: files of some hundred rows each below `rows/`, each of them written whole or not at all."""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fixformer.data.listing.escapes import ESCAPED_COLUMN, escape
from fixformer.errors import UserError
from fixformer.labelling.arrow import import_arrow
from fixformer.labelling.decoding import Row
from fixformer.runtime.console import note, printable
from fixformer.runtime.files import open_file, read_text, replacing, write_text

Format = Literal["parquet", "csv", "jsonl"]
_LISTS = ("top_labels", "top_probabilities", "logits", "features")


def result_schema(plan_schema: Any, *, logits: bool, features: bool) -> Any:
    """The columns of the result, whatever its rows hold: those of the plan, then what was found."""
    pa = import_arrow()
    numbers = pa.list_(pa.float32())
    lists = {"logits": numbers} if logits else {}
    lists |= {"features": numbers} if features else {}
    found = {
        **{"status": pa.string(), "error": pa.string(), "label": pa.string(), "probability": pa.float64()},
        **{"top_labels": pa.list_(pa.string()), "top_probabilities": pa.list_(pa.float64())},
        **lists,
        **{"seconds": pa.float64(), "model": pa.string(), "fixformer": pa.string()},
    }
    return pa.schema([*plan_schema, *(pa.field(name, kind) for name, kind in found.items())])


class PartFiles:
    """The files of a result in one format."""

    def __init__(self, folder: Path, kind: str, schema: Any) -> None:
        self.folder, self.kind, self.schema = folder, kind, schema

    def paths(self) -> list[Path]:
        return sorted(self.folder.glob(f"*.{self.kind}")) if self.folder.is_dir() else []

    def write(self, rows: list[Row]) -> None:
        """One file, named after the first of its rows, which no other file can have."""
        rows = sorted(rows, key=lambda row: row["row"])
        path = self.folder / f"part-{rows[0]['row']:09}.{self.kind}"
        if self.kind == "parquet":
            pa = import_arrow()
            with replacing(path) as temporary, pa.OSFile(str(temporary), "wb") as file:
                pa.parquet.write_table(pa.Table.from_pylist(rows, self.schema), file)
        elif self.kind == "csv":
            write_text(path, _csv_text(rows, self.schema.names))
        else:
            write_text(path, "".join(f"{json.dumps(_complete(row, self.schema.names), default=str)}\n" for row in rows))

    def done(self, total: int) -> np.ndarray:
        """Which rows are in a file. A file that a killed node left unfinished is removed."""
        done_N = np.zeros(total, bool)
        for path in self.paths():
            try:
                numbers = self._numbers(path)
            except (ValueError, KeyError, OSError) as error:
                if self.kind != "parquet":  # only Ray writes in place
                    raise UserError(f"{path} is damaged ({error}); remove it, and its rows are done again.") from None
                note(f"{printable(path.name)} was not finished; its rows are done again")
                path.unlink()
                continue
            again = done_N[numbers]
            if again.any():
                self._keep(path, numbers[~again])
            done_N[numbers] = True
        return done_N

    def _numbers(self, path: Path) -> np.ndarray:
        pa = import_arrow()
        if self.kind == "parquet":
            return pa.parquet.read_table(path, columns=["row"], partitioning=None)["row"].to_numpy()
        return np.array([int(row["row"]) for row in self.read(path, ("row",))], np.int64)

    def _keep(self, path: Path, numbers: np.ndarray) -> None:
        """Rewrite a file without the rows that another one has, as after a task that Ray had to run twice."""
        wanted = set(numbers.tolist())
        rows = [row for row in self.read(path) if int(row["row"]) in wanted]
        path.unlink()
        if rows:
            self.write(rows)

    def rows(self, columns: Iterable[str] | None = None) -> Iterator[Row]:
        """All rows, file by file."""
        for path in self.paths():
            yield from self.read(path, columns)

    def read(self, path: Path, columns: Iterable[str] | None = None) -> Iterator[Row]:
        pa = import_arrow()
        if self.kind == "parquet":
            names = None if columns is None else list(columns)
            for batch in pa.parquet.ParquetFile(path).iter_batches(columns=names, use_threads=False):
                yield from batch.to_pylist()
        elif self.kind == "csv":
            with open_file(path, encoding="utf-8", newline="") as file:
                yield from (_from_csv(row) for row in csv.DictReader(file))
        else:
            yield from map(json.loads, read_text(path).splitlines())


def join_parts(parts: PartFiles, target: Path) -> None:
    """All rows of a text format as one file, in order of their numbers."""
    with replacing(target) as temporary, temporary.open("w", encoding="utf-8", newline="") as joined:
        for number, path in enumerate(parts.paths()):
            with open_file(path, encoding="utf-8", newline="") as file:
                if number and parts.kind == "csv":
                    file.readline()
                while text := file.read(1 << 20):
                    joined.write(text)


def _complete(row: Row, names: list[str]) -> Row:
    return {name: row.get(name) for name in names}


def _csv_text(rows: list[Row], names: list[str]) -> str:
    """Lists are JSON; a row with text that a spreadsheet would run, or that would not survive, is escaped."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names)
    writer.writeheader()
    for row in rows:
        cells = {
            name: json.dumps(value) if name in _LISTS and value is not None else value for name, value in row.items()
        }
        texts = {name: value for name, value in cells.items() if isinstance(value, str) and name not in _LISTS}
        if not row[ESCAPED_COLUMN] and any(escape(value) != value.replace("\\", r"\\") for value in texts.values()):
            cells |= {name: escape(value) for name, value in texts.items()} | {ESCAPED_COLUMN: True}
        writer.writerow({**_complete(cells, names), ESCAPED_COLUMN: int(bool(cells[ESCAPED_COLUMN])) or ""})
    return text.getvalue()


def _from_csv(row: dict[str, str]) -> Row:
    """The cells that a report needs, as what they were."""
    values: Row = {name: cell or None for name, cell in row.items()}
    for name in ("probability", "seconds", "start", "end"):
        values[name] = float(row[name]) if row.get(name) else None
    return {**values, "row": int(row["row"]), ESCAPED_COLUMN: bool(row.get(ESCAPED_COLUMN))}
