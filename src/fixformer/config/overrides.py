"""`lr=0.001 size=64 depth=2` on top of a recipe: settings by full name, or by last word if that is unambiguous."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from fixformer.config.clip import ClipSpec
from fixformer.config.data import DataConfig
from fixformer.config.schema import add_once, coerce, dump, load, parse, setting_types, words_to_settings
from fixformer.config.train import TrainConfig
from fixformer.errors import UnknownName, UserError

Types = Mapping[str, Any]  # a type for every setting

# Settings of the model that follow from the data and the clip.
DERIVED = {"num_classes": "the labels of the data", "num_frames": "clip.frames", "image_size": "clip.size"}
# Settings of the data for which `fixformer eval` has options, and all its other arguments.
FLAGS = {"path": "--data", "workers": "--workers"}
OTHERS = ("checkpoint", "data", "views", "aggregate", "split", "output", "batch_size", "device")


def apply_overrides(config: TrainConfig, settings: Mapping[str, Any], types_of: Callable[[str], Types]) -> TrainConfig:
    """The recipe with some settings changed, validated. Texts are read as the type of their setting.

    `types_of` gives the settings of a model by its name (`models.registry.model_setting_types`).
    """
    types = setting_types(TrainConfig)
    model = coerce(settings.get("model", config.model), str, "model")
    of_model = {name: hint for name, hint in types_of(model).items() if name not in DERIVED}
    if model != config.model:  # keep those of the recipe's settings that the other model has, too
        kept = {name: value for name, value in config.model_settings.items() if name in of_model}
        config = replace(config, model=model, model_settings=kept)

    given: dict[str, Any] = {}
    for name, value in settings.items():
        path = resolve(name, of_model, types)
        hint = types[path] if path in types else of_model[path.removeprefix("model_settings.")]
        add_once(given, path, coerce(parse(value, hint) if isinstance(value, str) else value, hint, path))

    if "clip.size" in given:
        config = replace(config, clip=_resized(config.clip, given["clip.size"]))
    if "epochs" in given and "stages" not in given:
        config = config.with_epochs(given["epochs"])
    if given.get("stages") and "epochs" not in given:
        given["epochs"] = sum(stage.epochs for stage in given["stages"])
    for path, value in given.items():
        config = _with(config, path, value)
    return load(TrainConfig, dump(config))  # exactly what a resumed run will read


def resolve(name: str, of_model: Iterable[str], types: Types) -> str:
    """The full name of a setting; settings of the model become `model_settings.…`."""
    if name in types:
        return name
    if name in DERIVED:
        raise UserError(f"{name} follows from {DERIVED[name]}; set that instead.")
    found = [path for path in types if path.endswith(f".{name}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(f"{name} may mean {' or '.join(found)}; write the full name.")
    word = name.removeprefix("model.").removeprefix("model_settings.")
    if word not in of_model:
        raise UnknownName("setting", name, [*types, *(path.rpartition(".")[2] for path in types), *of_model])
    return f"model_settings.{word}"


def _resized(clip: ClipSpec, size: int) -> ClipSpec:
    """Another size scales the jitter and the short sides, too; an override of theirs comes after this and wins."""
    kept = clip.keep_short_side
    # `at` leaves this alone, because the stages of a run share what is kept of a video
    scaled = None if kept is None else max(size, round(kept * size / clip.size))
    return replace(clip.at(size=size), keep_short_side=scaled)


def _with(config: Any, path: str, value: Any) -> Any:
    """A copy of nested dataclasses and dicts in which the setting `path` has another value."""
    name, _, rest = path.partition(".")
    if isinstance(config, dict):
        return {**config, name: value}
    return replace(config, **{name: _with(getattr(config, name), rest, value) if rest else value})


def words_to_data_settings(words: Iterable[str]) -> dict[str, Any]:
    """`["labels=names.txt", "recording_set=1"]` as settings of `DataConfig`, each of its type."""
    types = setting_types(DataConfig)
    settings = {}
    for word, text in words_to_settings(words).items():
        name = word.removeprefix("data.")
        if name in FLAGS:
            raise UserError(f"{word}={text}: write {FLAGS[name]} {text} instead.")
        if name not in types:
            raise UnknownName("setting of the data", word, [*types, *OTHERS])
        settings[name] = coerce(parse(text, types[name]), types[name], name)
    return settings
