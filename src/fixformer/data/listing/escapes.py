r"""Any text in a cell of a table or on a line of a list, and back: the form in which `prepare` writes names.

Blanks at the ends, line breaks and bytes that are not UTF-8 would not survive being read again. A cell that begins
with `=`, `+`, `-` or `@` would be run as a formula by a spreadsheet. Such characters become the escapes of Python:
`left\x20` is `left` and a blank. In a table, the column `escaped_cells` says in which rows they are escapes, because
a foreign table may have backslashes that mean nothing.
"""

import re

from fixformer.runtime.console import printable

ESCAPED_COLUMN = "escaped_cells"
_AT_THE_ENDS = re.compile(r"\A[=+\-@]|\A\s+|\s+\Z")
_ESCAPE = re.compile(r"\\(?:\\|[nrt]|x[0-9a-f]{2}|u[0-9a-f]{4})")


def escape(text: str) -> str:
    """Text that survives being written as a cell or a line and read again."""
    return _AT_THE_ENDS.sub(lambda match: _coded(match[0]), printable(text.replace("\\", r"\\")))


def unescape(text: str) -> str:
    """The text that was escaped; a `ValueError` if no name can be that."""
    plain = _ESCAPE.sub(lambda match: match[0].encode().decode("unicode_escape"), text)
    try:
        plain.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError(f"{text!r} is not an escaped name") from None
    return plain


def _coded(text: str) -> str:
    return "".join(f"\\x{ord(letter):02x}" if ord(letter) < 256 else f"\\u{ord(letter):04x}" for letter in text)
