"""Names to models: `create_model`, `list_models`, and the decorator that adds a name."""

import inspect
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any

from fixformer.errors import UnknownName, UserError
from fixformer.models.base import VideoModel

Builder = Callable[..., VideoModel]

_BUILDERS: dict[str, Builder] = {}
_HOMES = ("fixformer.models.presets", "fixformer.models.zoo")


def register(builder: Builder) -> Builder:
    """Add a model under its function's name. Its keyword arguments are the settings it accepts."""
    _BUILDERS[builder.__name__] = builder
    return builder


def _builders() -> dict[str, Builder]:
    for home in _HOMES:
        import_module(home)
    return _BUILDERS


def list_models(pattern: str = "*") -> list[str]:
    """Names of the models that match a shell pattern, such as `fix*`."""
    return sorted(name for name in _builders() if fnmatchcase(name, pattern))


def create_model(name: str, **settings: Any) -> VideoModel:
    """Build a model by name, with freshly initialised weights.

    `num_classes`, `num_frames` and `image_size` are understood by all; `list_settings(name)` gives the rest.
    """
    valid = list_settings(name)
    for setting in settings:
        if setting not in valid:
            raise UnknownName(f"setting of {name}", setting, valid)
    model = _builders()[name](**settings)
    model.name, model.settings = name, dict(settings)
    return model


def list_settings(name: str) -> list[str]:
    """The keyword arguments `create_model(name, ...)` accepts."""
    if name not in _builders():
        raise UnknownName("model", name, _builders())
    builder = _builders()[name]
    declared = getattr(builder, "settings", None)
    return list(declared or inspect.signature(builder).parameters)


def describe(name: str) -> str:
    """The first line of a model's docstring."""
    return (inspect.getdoc(_builders()[name]) or "").partition("\n")[0]


def parse_settings(words: Iterable[str]) -> dict[str, Any]:
    """`["fixation=none", "depth=4"]` as keyword arguments: numbers, true and false are understood, the rest is text."""
    settings = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise UserError(f"{word!r} is not a setting; write key=value, such as fixation=none.")
        settings[key] = _value(text)
    return settings


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
