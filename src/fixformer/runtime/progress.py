"""Progress on stderr: a bar with rate and remaining time on a terminal, an occasional line anywhere else."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from fixformer.runtime.console import note, printable

LINE_SECONDS = 10.0  # between lines where there is no terminal: often enough to see that work proceeds


class Report(Protocol):
    """A callback for progress: items done, items in all, and a new description if that changes."""

    def __call__(self, done: int, total: int, what: str | None = None) -> None: ...


class Counter:
    """Calls a `Report` with a running count."""

    def __init__(self, report: Report, total: int) -> None:
        self._report, self._total, self._done = report, total, 0

    def advance(self, what: str | None = None) -> None:
        """One more item is done; `what` describes the next."""
        self._done += 1
        self._report(self._done, self._total, what)

    def begin(self, what: str) -> None:
        self._report(self._done, self._total, what)


class LiveReport:
    """A rich progress bar."""

    def __init__(self, what: str) -> None:
        description = TextColumn("{task.description}", markup=False)  # it may hold a name, such as [red]
        columns = (description, BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
        self._bar = Progress(*columns, TextColumn("left"), console=Console(stderr=True))
        self._task = self._bar.add_task(printable(what), total=None)

    def __call__(self, done: int, total: int, what: str | None = None) -> None:
        self._bar.update(self._task, completed=done, total=total, description=what and printable(what))

    def __enter__(self) -> "LiveReport":
        self._bar.start()
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._bar.stop()


class Rate(ProgressColumn):
    """Items per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.3g}/s")


class LineReport:
    """At most one line every few seconds, and one at the end."""

    def __init__(self, what: str, *, at_end: bool = True) -> None:
        self._what, self._begin, self._at_end = what, time.monotonic(), at_end
        self._shown = self._begin

    def __call__(self, done: int, total: int, what: str | None = None) -> None:
        self._what = what or self._what
        now = time.monotonic()
        if (done == total and self._at_end) or now - self._shown > LINE_SECONDS:
            self._shown = now
            rate = done / max(now - self._begin, 1e-9)
            left = f", {(total - done) / rate:.0f} s left" if 0 < done < total else ""
            note(f"{self._what}: {done}/{total}, {rate:.3g}/s{left}")

    def __enter__(self) -> "LineReport":
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None: ...


def progress(what: str) -> LiveReport | LineReport:
    """A context manager that gives a `Report`."""
    return LiveReport(what) if sys.stderr.isatty() else LineReport(what)


@contextmanager
def counting(what: str, total: int) -> Iterator[Counter]:
    """A context manager that gives a `Counter`."""
    with progress(what) as report:
        yield Counter(report, total)
