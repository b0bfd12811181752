"""Everything that is printed: results on stdout, messages on stderr, with names that cannot command the terminal.

Names come from files: of videos, folders, classes. They may hold anything a file system allows.
"""

import json
import re
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

# Control characters (line breaks and escape codes among them), marks that reverse the direction of text, separators of
# lines, and surrogates, which stand for the bytes of a name that is not UTF-8 and which no encoding can write.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """One line of text in which nothing acts on a terminal or a page: `\\n`, `\\x1b`, `\\u202e` instead."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def printable_lines(text: str) -> str:
    """Text of several lines, each of them `printable`; the names in it should be so already."""
    return "\n".join(map(printable, text.split("\n")))


def show(text: str) -> None:
    """Print a result, which may have several lines."""
    print(printable_lines(text))


def note(text: str) -> None:
    """Print a message, which may have several lines, on stderr."""
    print(printable_lines(text), file=sys.stderr, flush=True)


def print_error(message: object) -> None:
    """Print an error on one line of stderr."""
    note(f"fixformer: {printable(str(message))}")


@cache
def note_once(text: str) -> None:
    """Print a message, unless this process has done so before."""
    note(text)


def console() -> "Console":
    """A console on stdout; without a terminal it is 140 columns wide, so that tables are not cut to 80."""
    from rich.console import Console  # here, because messages are printed where nothing else needs rich

    width = None if sys.stdout.isatty() else 140
    return Console(width=width, highlight=False, markup=False, emoji=False)  # a name may look like markup: [red]


def print_json(value: Any) -> None:
    """Print JSON, which is ASCII, so it can hold any name. NaN is no JSON: who may have one decides what to print."""
    print(json.dumps(value, indent=1, allow_nan=False))
