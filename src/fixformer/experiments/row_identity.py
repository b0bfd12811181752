"""What a row of a study is: its complete config, and the key by which a finished one is known.

The key is a digest of what decides the trained weights: the settings that differ from their defaults, the list of
training videos in order, what these contain, the labels, the model whose initial weights it shares, and the version of
the numerics. A setting that is new, and off unless given, changes no key; nor does a set that was moved.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch

from fixformer.config import Aggregate, FilledModelConfig, ModelConfig, TrainConfig
from fixformer.config.data import DataConfig
from fixformer.config.eval import Views
from fixformer.config.model import NEEDS
from fixformer.config.overrides import apply_overrides
from fixformer.config.train import FREE_TO_CHANGE
from fixformer.data.listing import Index
from fixformer.data.listing.index import order_digest
from fixformer.data.loading.cache import content_digests
from fixformer.errors import UserError
from fixformer.experiments.studies import Row, Times
from fixformer.models.checkpoint import complete_model_settings
from fixformer.models.registry import create_model, model_setting_types
from fixformer.models.video_transformer import VideoTransformer
from fixformer.runtime.files import cache_directory, make_output

# The version of everything that decides a run's numbers beside its config: operators, models, augmentation, decoding,
# optimiser. Raise it when a commit changes them on purpose, and rows are trained again; the losses that
# tests/experiments/test_row_identity.py has stored say when that is. A digest of the source would repeat hours of
# training for every comment.
NUMERICS = 1

# They do not decide the weights: how a row is scored, what it is called, and where its videos are, of which the key
# has the list.
NOT_IN_KEY = (
    *FREE_TO_CHANGE,
    *("recipe", "model_settings", "eval", "init"),
    *("data.kind", "data.labels", "data.split_seed", "data.val_fraction", "data.fold", "data.recording_set"),
    "data.location",
)

Contents = Mapping[str, str]  # of each split, a digest of what its videos contain, in their order


@dataclass(frozen=True)
class Scoring:
    """How a trained row is scored."""

    split: str
    views: Views
    aggregate: Aggregate

    def __str__(self) -> str:
        return f"{self.split}-{self.views}-{self.aggregate}"


def resolve_row(base: TrainConfig, row: Row) -> TrainConfig:
    """The config of a row on its base, one thread a process, scored only after training."""
    settings = {
        name: _scaled(base, value) if isinstance(value, Times) else value for name, value in row.settings.items()
    }
    try:
        config = apply_overrides(_without_lost_settings(base, settings), settings, model_setting_types)
    except UserError as error:
        raise UserError(f"row {row.name!r}: {error}") from None
    # checkpoints more often than runs have them: rows are short
    saving = replace(config.save, minutes=min(config.save.minutes, 2.0))
    return replace(config, run=replace(config.run, threads=1), save=saving)


def _scaled(base: TrainConfig, times: Times) -> int:
    value: Any = base
    for name in times.setting.split("."):
        value = getattr(value, name)
    return round(value * times.factor)


def _without_lost_settings(base: TrainConfig, changed: dict[str, Any]) -> TrainConfig:
    """The base without the settings of its model that have no effect beside those of the row."""
    lost = {name for name, other, allowed in NEEDS if other in changed and changed[other] not in allowed}
    kept = {name: value for name, value in base.model_settings.items() if name not in lost or name in changed}
    return replace(base, model_settings=kept)


def training_config(config: TrainConfig, index: Index) -> TrainConfig:
    """The part of a row's config that is trained, in the form that all rows with its key have.

    Rows that differ in their views only are one run, and a run that one study began is continued by another: so what
    is a default is not written out, and the recipe has no name.
    """
    scoring = replace(config.eval, views="1x1", aggregate="logits", baselines=False)
    settings = _essential_settings(config, len(index.labels))
    return replace(config, recipe="", eval=scoring, model_settings=settings)


def _essential_settings(config: TrainConfig, classes: int) -> dict[str, Any]:
    """The settings of the model without those that are its defaults anyway."""
    kept = dict(config.model_settings)
    model = _model_config(config.model, json.dumps(complete_model_settings(config, classes)))
    plain = _model_config(config.model, "{}")
    if model is None or plain is None:
        return kept
    for name in config.model_settings:
        without = replace(model, **{name: getattr(plain, name)})
        if without.filled() == model.filled():
            model = without
            del kept[name]
    return kept


@cache  # every seed of a row has the same, and every row the same twin
def _model_config(name: str, settings: str) -> ModelConfig | None:
    """The complete config of a model of our own, given its settings as JSON; raises if it cannot be built."""
    with torch.device("meta"):
        model = create_model(name, **json.loads(settings))
    return model.config if isinstance(model, VideoTransformer) else None


def split_contents(index: Index, scored: str, data: DataConfig) -> Contents:
    """Of the training videos and of those that are scored. Files that have not changed are not read again.

    A video that cannot be read has no content: of shards that come through a pipe, only the names are known.
    """
    place = cache_directory() / "clips" if data.cache in (None, "auto") else Path(str(data.cache))
    home = place / "contents"
    with suppress(OSError, UserError):  # where it cannot be written, all files are read again the next time
        make_output(home, "cache")
    names = dict.fromkeys(("train", scored))
    splits = [index.split(name) for name in names]
    digests = iter(content_digests([*chain(*splits)], home, data.workers))
    return {name: _digest([*islice(digests, len(split))], 16) for name, split in zip(names, splits, strict=True)}


def row_key(config: TrainConfig, twin: TrainConfig, index: Index, contents: Contents) -> str:
    """Identifies a trained row, in 24 hexadecimal digits."""
    classes = len(index.labels)
    parts = {
        "numerics": NUMERICS,
        "config": _deciding(config),
        "model": _model(config, classes),
        "twin": _model(twin, classes),
        "labels": index.labels,
        "videos": order_digest(index.split("train")),
        "contents": contents["train"],
    }
    return _digest(parts, 12)


def scoring_key(scoring: Scoring, index: Index, contents: Contents) -> str:
    """Identifies how, and on which videos, a row was scored."""
    videos = {"videos": order_digest(index.split(scoring.split)), "contents": contents[scoring.split]}
    return _digest({"scoring": asdict(scoring), **videos}, 6)


def _digest(value: Any, size: int) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=size).hexdigest()


def _deciding(config: Any, where: str = "") -> dict[str, Any]:
    """The settings that decide the weights and are not at their defaults."""
    found: dict[str, Any] = {}
    default = type(config)()
    for item in fields(config):
        name, value = f"{where}{item.name}", getattr(config, item.name)
        if name in NOT_IN_KEY or value == getattr(default, item.name):
            continue
        if is_dataclass(value) and not isinstance(value, type):
            found |= _deciding(value, f"{name}.")
        else:
            found[name] = [asdict(part) for part in value] if name == "stages" else value
    return found


def _model(config: TrainConfig, classes: int) -> dict[str, Any]:
    """A model's settings, complete, so that a default that is written out is the default; raises if it cannot be."""
    given = complete_model_settings(config, classes)
    model = _model_config(config.model, json.dumps(given))
    if model is None:
        return {"model": config.model, **given}
    default, filled = FilledModelConfig(), model.filled()
    return {
        item.name: getattr(filled, item.name)
        for item in fields(filled)
        if getattr(filled, item.name) != getattr(default, item.name)
    }
