"""The layout of `--help`."""

import shutil
import textwrap
from collections.abc import Sequence

WIDEST = 110  # columns; longer lines are hard to read
LEFT, RIGHT = 28, 30  # the widest first column, the narrowest second one


def fill(text: str) -> str:
    """Paragraphs, as wide as the terminal."""
    return "\n\n".join(textwrap.fill(" ".join(part.split()), _width()) for part in text.split("\n\n"))


def two_columns(rows: Sequence[tuple[str, str]]) -> str:
    """Names and what they mean; a name that is too long has a line of its own."""
    left = min(LEFT, max(len(name) for name, _ in rows) + 2)
    lines = []
    for name, about in rows:
        begin = f"  {name}".ljust(left + 2)
        if len(name) + 2 > left:
            lines.append(begin.rstrip())
            begin = " " * (left + 2)
        width = max(_width(), left + RIGHT)
        lines += textwrap.wrap(about, width, initial_indent=begin, subsequent_indent=" " * (left + 2)) or [begin]
    return "\n".join(lines)


def _width() -> int:
    return min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST)
