"""Progress of a run on stderr: live on a terminal, line by line anywhere else."""

import sys
import time

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from fixformer.runtime.console import note, printable_lines
from fixformer.runtime.progress import LINE_SECONDS, LineReport, Report
from fixformer.training.log import Row


class Display:
    """Shows rows of the log, the progress of an evaluation, and notes.

    The base class is silent: it is the display of every process but the main one.
    """

    def begin(self, total: int, done: int) -> None: ...

    def row(self, row: Row) -> None: ...

    def scoring(self) -> Report:
        return lambda done, total, what=None: None

    def note(self, text: str) -> None: ...

    def close(self) -> None: ...


class Lines(Display):
    """A line every few seconds at most, and one for every evaluation."""

    def __init__(self) -> None:
        self._total = 0
        self._shown = 0.0

    def begin(self, total: int, done: int) -> None:
        self._total = total

    def row(self, row: Row) -> None:
        is_last = row["step"] == self._total
        if row["kind"] == "eval" or is_last or time.monotonic() - self._shown > LINE_SECONDS:
            self._shown = time.monotonic()
            self.note(f"step {row['step']}/{self._total} {describe(row)}")

    def scoring(self) -> Report:
        return LineReport("scoring videos", at_end=False)

    def note(self, text: str) -> None:
        note(text)


class LiveBar(Display):
    """A progress bar with the newest numbers under it; evaluations and notes scroll above."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)  # names may look like markup
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._numbers = Text("")
        self._live = Live(Group(self._progress, self._numbers), console=self._console, refresh_per_second=4)
        self._task = self._progress.add_task("training", total=1)

    def begin(self, total: int, done: int) -> None:
        self._progress.update(self._task, total=total, completed=done)
        self._live.start()

    def row(self, row: Row) -> None:
        self._progress.update(self._task, completed=row["step"])
        if row["kind"] == "eval":
            self._live.console.print(describe(row))
        else:
            self._numbers.plain = describe(row)

    def scoring(self) -> Report:
        task = self._progress.add_task("scoring videos", total=None)

        def report(done: int, total: int, what: str | None = None) -> None:
            self._progress.update(task, completed=done, total=total, visible=done < total)

        return report

    def note(self, text: str) -> None:
        self._live.console.print(printable_lines(text))

    def close(self) -> None:
        self._live.stop()


def describe(row: Row) -> str:
    """A row of the log as a line of text."""
    if row["kind"] == "eval":
        return (
            f"epoch {row['epoch']:g}: video top-1 {row['video_top1']:.1%}, top-5 {row['video_top5']:.1%}, "
            f"clip top-1 {row['clip_top1']:.1%} ({row['views']} views, {row['scored']}/{row['listed']} videos)"
        )
    return (
        f"epoch {row['epoch']:.2f}  loss {row['loss']:.4f}  lr {row['lr']:.2e}  {row['clips_per_second']:.1f} clips/s  "
        f"data wait {row['data_wait']:.1%}  {row['memory_mb'] / 1024:.1f} GB"
    )


def make_display(is_main: bool) -> Display:
    if not is_main:
        return Display()
    return LiveBar() if sys.stderr.isatty() else Lines()
