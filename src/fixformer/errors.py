"""What the user can get wrong. The command line prints these as one sentence, without a traceback."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


class Portable(Exception):
    """Comes out of another process as what it is, whatever its constructor takes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[Portable], args: tuple[Any, ...], values: dict[str, Any]) -> Portable:
    error = kind.__new__(kind, *args)
    error.__dict__.update(values)
    return error


class UserError(Portable, ValueError):
    """Something the user can fix: says what, which value, what to try."""


class UnknownName(UserError):
    """A name that is not in a table; the message offers the nearest valid ones."""

    def __init__(self, kind: str, name: object, valid: Iterable[str]) -> None:
        names = sorted(set(valid))
        near = get_close_matches(str(name), names, n=3, cutoff=0.5)
        offer = f"did you mean {' or '.join(near)}?" if near else f"valid: {', '.join(names)}."
        super().__init__(f"unknown {kind} {name!r}; {offer}")


class SettingsConflict(UserError):
    """Two settings that have no meaning together; the message names both."""


class InputError(UserError):
    """A tensor or array of the wrong rank, size, type or content."""


class WeightsError(UserError):
    """A weight file that does not fit the model; the message names the first differing tensor."""


class MissingExtra(UserError):
    """An optional dependency is needed; the message holds the line that installs it."""

    def __init__(self, need: str, extra: str) -> None:
        super().__init__(f'{need} needs an optional package: pip install "fixformer[{extra}]"')


class NotFinite(UserError):
    """A loss or a weight became NaN or infinite."""


class Interrupted(Portable):
    """A run that a signal stopped after it saved. `status` is the exit status a shell expects."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.status = 128 + number
