"""The log of a run, `log.jsonl`: one JSON object per line; also TensorBoard if it is installed.

Rows have a `kind`: "step" (every `log_steps`), "eval" (an evaluated epoch) or "problem" (an unreadable video). A
resumed run drops the rows after its checkpoint, so the log reads as if it had never been interrupted.
"""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

from fixformer.errors import UserError
from fixformer.runtime.files import open_file, read_text, write_text

Row = dict[str, Any]


class RunLog:
    """The log of a run, appended row by row."""

    def __init__(self, run: Path, *, from_step: int | None = None, unscored: bool = False) -> None:
        """Open the log.

        Args:
            from_step: keep the rows up to this step; None starts an empty log.
            unscored: the evaluation of that step will be repeated, so its row is dropped too.
        """
        self.path = run / "log.jsonl"
        rows = [] if from_step is None else read_log(self.path)
        kept = [row for row in rows if (row["step"], unscored and row["kind"] == "eval") <= (from_step, False)]
        try:
            write_text(self.path, "".join(json.dumps(row) + "\n" for row in kept))
            self._file: TextIO = open_file(self.path, "a")
        except OSError as error:
            raise UserError(f"the log {self.path} cannot be written ({error.strerror}).") from None
        self._board = _tensorboard(run, from_step)

    def write(self, kind: str, step: int, **values: Any) -> Row:
        row = {"kind": kind, "step": step, **values}
        try:
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()
        except OSError as error:
            raise UserError(f"the log {self.path} cannot be written ({error.strerror}).") from None
        if self._board is not None:
            _plot(self._board, row)
        return row

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def read_log(path: str | Path) -> list[Row]:
    """The rows of a log, without lines that are none, such as one that was cut off when the process was killed."""
    path = Path(path)
    lines = read_text(path, errors="replace").split("\n") if path.exists() else []
    return [row for line in lines if (row := _parse(line)) is not None]


def _parse(line: str) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_row = isinstance(row, dict) and isinstance(row.get("kind"), str) and isinstance(row.get("step"), int)
    return row if is_row else None


def _tensorboard(run: Path, from_step: int | None) -> Any:
    is_utf8 = not any("\ud800" <= letter <= "\udfff" for letter in str(run))  # TensorBoard takes no other names
    if find_spec("tensorboard") is None or not is_utf8:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(run / "tensorboard", purge_step=None if from_step is None else from_step + 1)


def _plot(board: Any, row: Row) -> None:
    if row["kind"] in ("step", "eval"):
        for name, value in row.items():
            if isinstance(value, float):
                board.add_scalar(f"{row['kind']}/{name}", value, row["step"])
