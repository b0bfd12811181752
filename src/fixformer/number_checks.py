"""Numbers among a user's settings, refused in one sentence that names them. No torch here, as in model_config."""

from math import inf
from numbers import Integral, Real
from typing import Any

from fixformer.errors import InputError


def check_positive(**settings: Any) -> None:
    check_whole(1, **settings)


def check_whole(least: int, **settings: Any) -> None:
    for name, value in settings.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            raise InputError(f"{name}={value!r}: a whole number of at least {least} is needed.")


def check_ratios(**settings: Any) -> None:
    for name, value in settings.items():
        if not _is_real(value) or not 1 <= value < inf:
            raise InputError(f"{name}={value!r}: a number of at least 1 is needed.")


def check_rates(**settings: Any) -> None:
    for name, value in settings.items():
        if not _is_real(value) or not 0 <= value < 1:
            raise InputError(f"{name}={value!r}: a fraction of at least 0 and below 1 is needed.")


def check_switches(**settings: Any) -> None:
    for name, value in settings.items():
        if value not in (True, False):
            raise InputError(f"{name}={value!r}: true or false is needed.")


def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
