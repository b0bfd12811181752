"""The local engine: all rows that are left go through one `Labeller`; files are written as soon as they are full."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from fixformer.labelling.decoding import Row
from fixformer.labelling.label_parts import PartFiles
from fixformer.labelling.labeller import Labeller
from fixformer.labelling.work_plan import WorkPlan
from fixformer.runtime.progress import Report
from fixformer.runtime.signals import StopRequest


def run_local(
    labeller: Labeller,
    plan: WorkPlan,
    todo_N: np.ndarray,
    parts: PartFiles,
    *,
    rows_per_file: int,
    progress: Report,
    stop: StopRequest,
) -> int:
    """Label the rows that are left; the number of them that were, which is smaller only after a stop."""
    files = FilesInProgress(parts, rows_per_file)
    total, count = int(todo_N.sum()), 0
    for count, row in enumerate(labeller.label_rows(files.opened(plan.rows(todo_N))), 1):
        files.add(row)
        progress(count, total)
        if stop:
            break
    files.write_all()  # after a stop, those that are not full
    return count


@dataclass
class FilesInProgress:
    """Collects rows, which come in another order than they were given, into the files they belong to."""

    parts: PartFiles
    rows_per_file: int
    _file_of: dict[int, int] = field(default_factory=dict)  # the file of every row that is on its way
    _rows: dict[int, list[Row]] = field(default_factory=dict)

    def opened(self, rows: Iterable[Row]) -> Iterator[Row]:
        for number, row in enumerate(rows):
            self._file_of[row["row"]] = number // self.rows_per_file
            yield row

    def add(self, row: Row) -> None:
        file = self._file_of.pop(row["row"])
        rows = self._rows.setdefault(file, [])
        rows.append(row)
        if len(rows) == self.rows_per_file:
            self.parts.write(self._rows.pop(file))

    def write_all(self) -> None:
        for rows in self._rows.values():
            self.parts.write(rows)
        self._rows.clear()
