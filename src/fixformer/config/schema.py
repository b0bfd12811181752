"""One schema for all settings: types, allowed values, text and JSON.

A group of settings is a frozen dataclass, a subclass of `Settings`. The type of a field says what it accepts: a plain
type, a `Literal`, `None`, a tuple, another group, or `Annotated[type, Expect(...)]` where the value is restricted too:

    lr: Positive = 1e-3
    betas: Annotated[tuple[float, float], Expect("two values in [0, 1)", lambda betas: ...)] = (0.9, 0.98)

`coerce` is the one place that checks a value, `parse` the one that reads text; `checked` does the same for the
arguments of a function. No torch here: settings are checked before anything heavy is imported.
"""

import inspect
import types
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from functools import cache, wraps
from math import inf
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from fixformer.errors import InputError, SettingsConflict, UnknownName, UserError, shown

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True)
class Expect:
    """A condition on the value of a setting; errors say "expected" and `what`."""

    what: str
    holds: Callable[[Any], object]


def at_least(low: int) -> Expect:
    return Expect(f"an int of at least {low}", lambda value: value >= low)


def between(low: float, high: float) -> Expect:
    return Expect(f"a number in [{low:g}, {high:g}]", lambda value: low <= value <= high)


def int_between(low: int, high: int) -> Expect:
    return Expect(f"an int from {low} to {high}", lambda value: low <= value <= high)


PositiveInt = Annotated[int, at_least(1)]
PositiveInts = Annotated[tuple[PositiveInt, ...], Expect("one or more ints of at least 1", bool)]
Count = Annotated[int, at_least(0)]
Threads = Annotated[int, int_between(1, 1024)]  # each is started at once; no machine has more processors
Positive = Annotated[float, Expect("a finite number more than 0", lambda value: 0 < value < inf)]
NonNegative = Annotated[float, Expect("a finite number of at least 0", lambda value: 0 <= value < inf)]
Fraction = Annotated[float, between(0, 1)]
PositiveFraction = Annotated[float, Expect("a number in (0, 1]", lambda value: 0 < value <= 1)]
Rate = Annotated[float, Expect("a number in [0, 1)", lambda value: 0 <= value < 1)]


class Settings:
    """Base class of all groups of settings."""

    def validate(self, where: str = "") -> None:
        """Raise a `UserError` for a value of the wrong type or range, and for settings that contradict each other."""
        for name, hint in field_types(type(self)).items():
            coerce(getattr(self, name), hint, _join(where, name))
        self.check_together()

    def check_together(self) -> None:
        """Raise a `SettingsConflict` for values that are valid alone but not together."""


def dump(config: Any) -> dict[str, Any]:
    """The settings as JSON values (tuples become lists)."""
    return _to_json(asdict(config))


def _to_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _to_json(item) for key, item in value.items()}
    return [_to_json(item) for item in value] if isinstance(value, list | tuple) else value


def load(kind: type[T], values: dict[str, Any], where: str = "") -> T:
    """Rebuild a dataclass from `dump`'s values, validated; absent settings take their defaults."""
    if not isinstance(values, dict):
        raise InputError(f"{where or kind.__name__}={shown(values)}: expected a table of settings.")
    hints = field_types(kind)
    for name in values:
        if name not in hints:
            raise UnknownName(f"setting of {where or kind.__name__}", name, hints)
    for item in fields(kind):  # type: ignore[arg-type]
        if item.name not in values and item.default is MISSING and item.default_factory is MISSING:
            raise InputError(f"{where or kind.__name__}={shown(values)}: expected {item.name}, too.")
    config = kind(**{name: coerce(value, hints[name], _join(where, name)) for name, value in values.items()})
    if isinstance(config, Settings):
        config.validate(where)
    return config


def coerce(value: Any, hint: Any, name: str) -> Any:
    """`value` as the type `hint` asks for, or a `UserError` with the setting, its value and what was expected."""
    kind, rule, is_optional = unwrap(hint)
    if value is None and is_optional:
        return None
    converted = value if _is_exact(value, kind) else _convert(value, kind, name, rule.what if rule else "")
    if rule and not rule.holds(converted):
        raise InputError(f"{name}={shown(converted)}: expected {rule.what}.")
    return converted


def _is_exact(value: Any, kind: Any) -> bool:
    """Whether a value needs no conversion, as nearly all those of a long list."""
    if type(value) is not kind:
        return False
    return kind is float or (kind is int and -(2**31) < value < 2**31) or (kind is str and "\0" not in value)


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Check the arguments of a function before it runs, by its annotations, as settings are checked.

    Arguments of other types than a setting may have, such as `str | Path`, are left to the function.
    """

    @cache  # not at import time: most functions of the package are never called in a process
    def types_of_arguments() -> dict[str, Any]:
        hints = get_type_hints(function, include_extras=True)
        return {name: hint for name, hint in hints.items() if name != "return" and is_setting_type(hint)}

    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # whose own error names the function
        for name, hint in types_of_arguments().items():
            if name in given.arguments:
                given.arguments[name] = coerce(given.arguments[name], hint, name)
        return function(*given.args, **given.kwargs)

    return call


def is_setting_type(hint: Any) -> bool:
    """Whether `coerce` knows this type."""
    if get_origin(hint) in (Union, types.UnionType):
        hint, *others = get_args(hint)
        if others != [types.NoneType]:
            return False
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return kind in PLAIN or get_origin(kind) in (Literal, tuple)


def check_path(value: Any, name: str) -> None:
    """Raise an `InputError` unless an argument can be a path; most functions take them as text or as `Path`."""
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        raise InputError(f"{name}={shown(value)}: expected a path.")


@cache
def unwrap(hint: Any) -> tuple[Any, Expect | None, bool]:
    """The type inside `... | None` and `Annotated`, its condition, and whether None is allowed."""
    is_optional = get_origin(hint) in (Union, types.UnionType)
    if is_optional:
        hint, none = get_args(hint)
        assert none is types.NoneType, f"{hint} | {none}: a setting has one type, or that and None"
    if get_origin(hint) is Annotated:
        kind, *notes = get_args(hint)
        return kind, next((note for note in notes if isinstance(note, Expect)), None), is_optional
    return hint, None, is_optional


def _convert(value: Any, kind: Any, name: str, expected: str) -> Any:
    if kind is Any:
        return value
    if get_origin(kind) is Literal:
        if not isinstance(value, str | int) or value not in get_args(kind):
            raise UnknownName(name, value, get_args(kind))
        return value
    if get_origin(kind) is tuple:
        return _convert_tuple(value, get_args(kind), name, expected)
    if not is_dataclass(kind):
        return _convert_plain(value, get_origin(kind) or kind, name, expected)
    if not isinstance(value, kind):  # type: ignore[arg-type]
        return load(kind, value, name)  # type: ignore[arg-type]
    if isinstance(value, Settings):
        value.validate(name)
    return value


def _convert_tuple(value: Any, hints: tuple[Any, ...], name: str, expected: str) -> tuple[Any, ...]:
    is_list = isinstance(value, list | tuple)
    if is_list and hints[-1] is Ellipsis:
        hints = hints[:1] * len(value)
    if not is_list or len(value) != len(hints):
        count = "values" if hints[-1] is Ellipsis else f"{len(hints)} values"
        raise InputError(f"{name}={shown(value)}: expected {expected or f'a list of {count}'}.")
    return tuple(coerce(item, hint, name) for item, hint in zip(value, hints, strict=True))


def _convert_plain(value: Any, kind: type, name: str, expected: str) -> Any:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if kind is float and is_number:
        with suppress(OverflowError):  # of a huge int
            return float(value)
    if kind is int and is_number and isinstance(value, Integral):
        number = int(value)
        if abs(number) >= 2**63:  # torch counts with 64 bits
            raise InputError(f"{name}={number}: expected an int of less than 64 bits.")
        return number
    if kind is bool and isinstance(value, Integral) and value in (0, 1):  # earlier versions stored 0 and 1, too
        return bool(value)
    if kind in (int, float, bool) or not isinstance(value, kind):
        raise InputError(f"{name}={shown(value)}: expected {expected or PLAIN.get(kind, kind.__name__)}.")
    if isinstance(value, str) and "\0" in value:  # no file name, and no word of a command line, has one
        raise InputError(f"{name}={shown(value)}: expected text without a null character.")
    return value


PLAIN: dict[Any, str] = {
    int: "an int",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "a path",
    dict: "a table of settings",
}


def parse(text: str, hint: Any) -> Any:
    """The text of a setting as a value of its type; text that does not fit stays text, which `coerce` refuses."""
    kind, _, is_optional = unwrap(hint)
    if is_optional and text.lower() == "none":
        return None
    if get_origin(kind) is tuple:  # all its items have one type
        return tuple(parse(item, get_args(kind)[0]) for item in text.removesuffix(",").split(",")) if text else ()
    if is_dataclass(kind):
        return kind.parse(text)  # type: ignore[union-attr]
    if kind is bool:
        return {"true": True, "false": False, "1": True, "0": False}.get(text.lower(), text)
    try:
        return kind(text) if text and kind in (int, float, Path) else text
    except ValueError:
        return text


def words_to_settings(words: Iterable[str]) -> dict[str, str]:
    """`["lr=0.001", "size=64"]` as a mapping of texts."""
    settings: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise UserError(f"{shown(word)} is not a setting; write name=value, such as epochs=10.")
        add_once(settings, name, text)
    return settings


def add_once(given: dict[str, T], name: str, value: T) -> None:
    """Add a setting; a `SettingsConflict` if it has been given with another value."""
    if given.setdefault(name, value) != value:
        raise SettingsConflict(f"{name} is given twice, as {shown(given[name])} and as {shown(value)}; give it once.")


def field_types(kind: Any) -> dict[str, Any]:
    """The type of every field of a dataclass, with its conditions."""
    return dict(_field_types(kind))


@cache  # a list of a million rows asks a million times
def _field_types(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


def setting_types(kind: Any) -> dict[str, Any]:
    """The type of every single setting by its full name, such as `clip.augment.flip`."""
    found: dict[str, Any] = {}
    for name, hint in field_types(kind).items():
        inner = setting_types(hint) if is_dataclass(hint) else {"": hint}
        found.update({_join(name, rest): leaf for rest, leaf in inner.items()})
    return found


def _join(where: str, name: str) -> str:
    return ".".join(filter(None, (where, name)))
