"""Names to models: `create_model`, `list_models`, and the decorator that adds a name."""

import inspect
from collections.abc import Callable
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any

from fixformer.errors import UnknownName
from fixformer.models.base import VideoModel

Builder = Callable[..., VideoModel]

_BUILDERS: dict[str, Builder] = {}
_HOMES = ("fixformer.models.sizes",)


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
    builders = _builders()
    if name not in builders:
        raise UnknownName("model", name, builders)
    valid = list_settings(name)
    for setting in settings:
        if setting not in valid:
            raise UnknownName(f"setting of {name}", setting, valid)
    model = builders[name](**settings)
    model.name, model.settings = name, dict(settings)
    return model


def list_settings(name: str) -> list[str]:
    """The keyword arguments `create_model(name, ...)` accepts."""
    builder = _builders()[name]
    declared = getattr(builder, "settings", None)
    return list(declared or inspect.signature(builder).parameters)
