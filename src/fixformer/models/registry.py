"""Names to models: `create_model`, `list_models`, and the decorator that adds a name."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any, TypeVar

import torch

from fixformer.config.model import ModelSettings
from fixformer.config.schema import coerce, field_types, parse, words_to_settings
from fixformer.errors import UnknownName
from fixformer.models.base import VideoModel
from fixformer.runtime.memory import require_memory

S = TypeVar("S", bound=ModelSettings)


@dataclass(frozen=True)
class Preset:
    """A named model: its default settings, and the function that builds it from them."""

    defaults: ModelSettings
    build: Callable[[Any], VideoModel]


_PRESETS: dict[str, Preset] = {}


def register(defaults: S) -> Callable[[Callable[[S], VideoModel]], Callable[[S], VideoModel]]:
    """Add a model under its function's name. It accepts every field of `defaults`."""

    def decorate(build: Callable[[S], VideoModel]) -> Callable[[S], VideoModel]:
        _PRESETS[build.__name__] = Preset(defaults, build)
        return build

    return decorate


def _presets() -> Mapping[str, Preset]:
    for module in ("fixformer.models.presets", "fixformer.models.zoo"):  # which register theirs when imported
        import_module(module)
    return _PRESETS


def _preset(name: str) -> Preset:
    if not isinstance(name, str) or name not in _presets():
        raise UnknownName("model", name, _presets())
    return _presets()[name]


def list_models(pattern: str = "*") -> list[str]:
    """Names of the models that match a shell pattern, such as `fix*`."""
    coerce(pattern, str, "pattern")
    return sorted(name for name in _presets() if fnmatchcase(name, pattern))


def create_model(name: str, **settings: Any) -> VideoModel:
    """Build a model by name, with freshly initialised weights.

    All models accept `num_classes`, `num_frames` and `image_size`; `list_settings(name)` gives the rest.
    """
    preset = _preset(name)
    _check_names(name, settings)
    types = model_setting_types(name)
    chosen = replace(preset.defaults, **{key: coerce(value, types[key], key) for key, value in settings.items()})
    chosen.validate()
    if torch.get_default_device().type == "cpu":
        _check_memory(name, preset, chosen)
    model = preset.build(chosen)
    model.name, model.settings = name, dict(settings)
    return model


def _check_memory(name: str, preset: Preset, settings: ModelSettings) -> None:
    """Refuse a model whose weights do not fit, before the first is allocated; counting them takes 10 to 40 ms."""
    with torch.device("meta"):
        model = preset.build(settings)
    weights = sum(tensor.nbytes for tensor in model.state_dict().values())
    require_memory(weights, f"the weights of {name} with these settings", "use smaller ones")


def list_settings(name: str) -> list[str]:
    """The keyword arguments `create_model(name, ...)` accepts."""
    return list(model_setting_types(name))


def model_setting_types(name: str) -> dict[str, Any]:
    """The type of every setting that `create_model(name, ...)` accepts."""
    return field_types(type(_preset(name).defaults))


def describe(name: str) -> str:
    """The first paragraph of a model's docstring."""
    return (inspect.getdoc(_preset(name).build) or "").partition("\n\n")[0].replace("\n", " ")


def parse_settings(name: str, words: Iterable[str]) -> dict[str, Any]:
    """`["fixation=none", "depth=4"]` as keyword arguments of `create_model(name, ...)`, each of its type."""
    types, texts = model_setting_types(name), words_to_settings(words)
    _check_names(name, texts)
    return {key: coerce(parse(text, types[key]), types[key], key) for key, text in texts.items()}


def _check_names(name: str, settings: Iterable[str]) -> None:
    valid = model_setting_types(name)
    for setting in settings:
        if setting not in valid:
            raise UnknownName(f"setting of {name}", setting, valid)
