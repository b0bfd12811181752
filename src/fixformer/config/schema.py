"""Settings as frozen dataclasses: `dump` gives plain JSON values, `load` rebuilds the same object from them and refuses
unknown names, wrong types and values out of range.

No torch here: a config is checked before anything heavy is imported.
"""

import types
from dataclasses import asdict, fields, is_dataclass
from math import inf
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from fixformer.errors import InputError, UnknownName, UserError

T = TypeVar("T")


def dump(config: Any) -> dict[str, Any]:
    """The settings as JSON values (tuples become lists)."""
    return _plain(asdict(config))


def load(kind: type[T], values: dict[str, Any], where: str = "") -> T:
    """Rebuild a config from `dump`'s values; what is absent takes its default. Validated."""
    config = _build(kind, values, where)
    validate = getattr(config, "validate", None)
    if validate is not None:
        validate()
    return config


def _build(kind: type[T], values: Any, where: str) -> T:
    if not isinstance(values, dict):
        raise UserError(f"{where or kind.__name__} must be a table of settings, not {values!r}.")
    assert is_dataclass(kind)
    hints = get_type_hints(kind)
    known = {f.name for f in fields(kind) if f.init}
    for name in values:
        if name not in known:
            raise UnknownName(f"setting of {where or kind.__name__}", name, known)
    prefix = f"{where}." if where else ""
    return kind(**{name: coerce(value, hints[name], prefix + name) for name, value in values.items()})


def coerce(value: Any, hint: Any, name: str) -> Any:
    """`value` as the type `hint` asks for, or a `UserError` that names the setting, the value and the type."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        inner = next(option for option in get_args(hint) if option is not types.NoneType)
        return None if value is None else coerce(value, inner, name)
    if origin is Literal and value not in get_args(hint):
        raise UnknownName(name, value, map(str, get_args(hint)))
    if origin is tuple:
        return _coerce_tuple(value, get_args(hint), name)
    if is_dataclass(hint):
        return _build(hint, value, name)  # type: ignore[arg-type]
    return value if origin is Literal or hint is Any else _coerce_plain(value, hint, name)


def _coerce_plain(value: Any, hint: type, name: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise UserError(f"{name}={value!r} is of type {type(value).__name__}; {hint.__name__} is needed.")
    return value


def _coerce_tuple(value: Any, hints: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise UserError(f"{name}={value!r} must be a list.")
    if len(hints) == 2 and hints[1] is Ellipsis:
        hints = (hints[0],) * len(value)
    if len(value) != len(hints):
        raise UserError(f"{name}={value!r} must have {len(hints)} values.")
    return tuple(coerce(item, hint, name) for item, hint in zip(value, hints, strict=True))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def require(condition: bool, name: str, value: object, allowed: str) -> None:
    if not condition:
        raise UserError(f"{name}={value!r}: {allowed} is needed.")


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
