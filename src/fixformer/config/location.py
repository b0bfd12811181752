"""`location`: where shards are read from: a directory, a URL, or a command that prints a shard.

A location is text of the user's own command line; a checkpoint or an index never gives one. No shell ever sees it.
"""

import shlex
from typing import Annotated

from fixformer.config.schema import Expect

PLACE = "{shard}"  # where the name of the shard goes
PIPE = "pipe:"
# What prints the content of a URL, which takes the place of None.
_CURL = ("curl", "--fail", "--silent", "--show-error", "--globoff", "--location", "--proto-redir", "=http,https")
_READERS: dict[str, tuple[str | None, ...]] = {
    "http": (*_CURL, None),
    "https": (*_CURL, None),
    "s3": ("aws", "s3", "cp", "--only-show-errors", None, "-"),
    "gs": ("gsutil", "-q", "cat", None),
}
_OPERATORS = frozenset("();<>|&")  # of a shell


def is_location(text: str) -> bool:
    """Whether a text is a directory, or a URL or a command with a place for the shard's name."""
    if text.startswith(PIPE):
        command, *arguments = _words(text.removeprefix(PIPE)) or [""]
        is_plain = not any(set(word) <= _OPERATORS for word in (command, *arguments))
        # the name comes with a file, so it must not be the command
        return is_plain and PLACE not in command and any(PLACE in word for word in arguments)
    scheme, is_url, _ = text.removeprefix("file:").partition("://")
    return text != "" and "\0" not in text and (not is_url or (scheme in _READERS and PLACE in text))


def _words(command: str) -> list[str]:
    """The words of a command, and unquoted operators of a shell as words of their own; none if a quote is open."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="".join(_OPERATORS))
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return [] if "\0" in command else list(lexer)
    except ValueError:
        return []


Location = Annotated[
    str,
    Expect(
        f"a directory, a URL ({', '.join(_READERS)}) with {PLACE} in it, or {PIPE}COMMAND with {PLACE} in it; for "
        f"|, > or ; write {PIPE}sh -c '...'",
        is_location,
    ),
]


def shard_command(location: str, name: str) -> list[str] | None:
    """The arguments of the command that prints a shard; None if it is a local file."""
    if location.startswith(PIPE):
        return [word.replace(PLACE, name) for word in shlex.split(location.removeprefix(PIPE))]
    scheme, is_url, _ = location.removeprefix("file:").partition("://")
    if not is_url:
        return None
    return [location.replace(PLACE, name) if word is None else word for word in _READERS[scheme]]


def shard_file(location: str, name: str) -> str:
    """The path of a shard at a location that is not a command."""
    place = location.removeprefix("file:")
    return place.replace(PLACE, name) if PLACE in place else f"{place}/{name}"
