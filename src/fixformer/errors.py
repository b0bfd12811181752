"""Errors that a user can fix. The command line prints these as one sentence, without a traceback."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


class Portable(Exception):
    """An error that can be pickled, hence raised in a worker process, whatever its constructor takes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[Portable], args: tuple[Any, ...], values: dict[str, Any]) -> Portable:
    error = kind.__new__(kind, *args)
    error.__dict__.update(values)
    return error


class UserError(Portable, ValueError):
    """Something the user can fix; the message says what, which value, and what to try."""


class UnknownName(UserError):
    """A name that does not exist; the message offers the nearest valid ones."""

    def __init__(self, kind: str, name: object, valid: Iterable[str]) -> None:
        names = sorted(set(valid))
        near = get_close_matches(str(name), names, n=3, cutoff=0.5)
        offer = f"did you mean {' or '.join(near)}?" if near else f"valid: {', '.join(names)}."
        super().__init__(f"unknown {kind} {name!r}; {offer}")


class SettingsConflict(UserError):
    """Two settings that contradict each other; the message names both."""


class InputError(UserError):
    """A setting, tensor or array of the wrong type, shape, range or content."""


class WeightsError(UserError):
    """A weight file that does not fit the model; the message names the first tensor that differs."""


class MissingExtra(UserError):
    """An optional dependency is missing; the message holds the command that installs it."""

    def __init__(self, need: str, extra: str) -> None:
        super().__init__(f'{need} needs an optional package: pip install "fixformer[{extra}]"')


class NotFinite(UserError):
    """A loss or a weight became NaN or infinite."""


class Interrupted(Portable):
    """The run was stopped by a signal, after saving. `status` is the exit status a shell expects."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.status = 128 + number
