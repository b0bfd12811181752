"""`lr=0.001 size=64 depth=2` on top of a recipe: settings by full name, or by last word where that is clear."""

import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fixformer.config.data import DataConfig
from fixformer.config.schema import dump, load
from fixformer.config.train import Stage, TrainConfig
from fixformer.errors import UnknownName, UserError

SettingsOf = Callable[[str], Sequence[str]]

# Settings of the model that follow from the data and the clip.
DERIVED = {"num_classes": "the labels of the data", "num_frames": "clip.frames", "image_size": "clip.size"}
# Settings of the data that `fixformer eval` has arguments for.
FLAGS = {"path": "--data", "workers": "--workers"}
STAGE = re.compile(r"(\d+)x(\d+):(\d+)(?:@(\d+))?")


def words_to_settings(words: Iterable[str]) -> dict[str, str]:
    """`["lr=0.001", "size=64"]` as a mapping of texts."""
    settings = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise UserError(f"{word!r} is not a setting; write name=value, such as epochs=10.")
        settings[name] = text
    return settings


def words_to_data_settings(words: Iterable[str]) -> dict[str, Any]:
    """`["labels=names.txt", "recording_set=1"]` as settings of `DataConfig`, each of its type."""
    hints = leaves(DataConfig)
    settings = {}
    for word, text in words_to_settings(words).items():
        name = word.removeprefix("data.")
        if name in FLAGS:
            raise UserError(f"{word}={text} is given as {FLAGS[name]} {text}.")
        if name not in hints:
            raise UnknownName("setting of the data", word, hints)
        settings[name] = read_value(text, hints[name], name)
    return settings


def apply_overrides(config: TrainConfig, settings: Mapping[str, Any], settings_of: SettingsOf) -> TrainConfig:
    """The recipe with some settings changed, validated. Texts are read as the type of their setting.

    `settings_of` lists the settings of a model by its name (`models.registry.list_settings`).
    """
    hints = leaves(TrainConfig)
    model = settings.get("model", config.model)
    own = [name for name in settings_of(model) if name not in DERIVED]
    if model != config.model:  # another model keeps those of the recipe's settings that it knows
        kept = {name: value for name, value in config.model_settings.items() if name in own}
        config = replace(config, model=model, model_settings=kept)
    named = {resolve(name, own, hints): value for name, value in settings.items()}
    values = dump(_resized(config, named, hints))
    for path, value in named.items():
        _put(values, path, read_value(value, hints.get(path, Any), path))
    if values["stages"] and "epochs" not in named and "stages" in named:
        values["epochs"] = sum(stage["epochs"] for stage in values["stages"])
    elif values["stages"] and isinstance(values["epochs"], int) and "epochs" in named and "stages" not in named:
        values["stages"] = _stretched(values["stages"], values["epochs"])
    return load(TrainConfig, values)


def resolve(name: str, own: Sequence[str], hints: Mapping[str, Any]) -> str:
    """The full name of a setting; settings of the model become `model_settings.…`."""
    if name in hints:
        return name
    if name in DERIVED:
        raise UserError(f"{name} follows from {DERIVED[name]}; set that instead.")
    found = [path for path in hints if path.endswith(f".{name}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(f"{name} may mean {' or '.join(found)}; write the full name.")
    word = name.removeprefix("model.").removeprefix("model_settings.")
    if word not in own:
        raise UnknownName("setting", name, [*hints, *(path.rpartition(".")[2] for path in hints), *own])
    return f"model_settings.{word}"


def leaves(kind: Any, prefix: str = "") -> dict[str, Any]:
    """The type of every setting, by full name."""
    hints = get_type_hints(kind)
    found: dict[str, Any] = {}
    for item in fields(kind):
        hint = hints[item.name]
        inner = leaves(hint, f"{prefix}{item.name}.") if is_dataclass(hint) else {prefix + item.name: hint}
        found.update(inner)
    return found


def read_value(value: Any, hint: Any, name: str) -> Any:
    """A text as the type asked for; other values, and texts that do not fit, are left to the config's own check."""
    if get_origin(hint) in (Union, types.UnionType):
        if isinstance(value, str) and value.lower() == "none":
            return None
        hint = next(option for option in get_args(hint) if option is not types.NoneType)
    if hint == tuple[Stage, ...]:
        return _stages(value) if isinstance(value, str) else value
    if not isinstance(value, str) or hint is str or get_origin(hint) is Literal:
        return value
    if get_origin(hint) is tuple:
        return [_plain(part) for part in value.split(",")]
    return _plain(value)


def _plain(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _stages(text: str) -> list[dict[str, Any]]:
    stages = []
    for part in filter(None, text.split(",")):
        match = STAGE.fullmatch(part)
        if match is None:
            raise UserError(f"stages={text!r}: write FRAMESxSIZE:EPOCHS[@BATCH],..., such as 8x48:20,16x64:10.")
        frames, size, epochs, batch = match.groups()
        stage = {"epochs": int(epochs), "frames": int(frames), "size": int(size)}
        stages.append({**stage, "batch_size": int(batch) if batch else None})
    return stages


def _resized(config: TrainConfig, named: Mapping[str, Any], hints: Mapping[str, Any]) -> TrainConfig:
    """Another size takes the jitter and the short sides with it, unless they are set as well."""
    size = read_value(named.get("clip.size"), hints["clip.size"], "clip.size")
    if not isinstance(size, int) or size < 1:
        return config
    clip, kept = config.clip.at(size=size), config.clip.keep_short_side
    # the stages of a run share what is kept of a video, so `at` leaves it alone
    scaled = None if kept is None else max(size, round(kept * size / config.clip.size))
    return replace(config, clip=replace(clip, keep_short_side=scaled))


def _stretched(stages: list[dict[str, Any]], epochs: int) -> list[dict[str, Any]]:
    """The same stages over another number of epochs; stages that would have none are left out."""
    total = sum(stage["epochs"] for stage in stages)
    ends, done = [], 0
    for stage in stages:
        done += stage["epochs"]
        ends.append(round(epochs * done / total))
    starts = [0, *ends[:-1]]
    parts = zip(stages, starts, ends, strict=True)
    return [{**stage, "epochs": end - start} for stage, start, end in parts if end > start]


def _put(values: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for name in parents:
        values = values[name]
    values[last] = value
