"""Settings on top of a recipe: by full or last name, as text or value, and refused with the nearest names."""

from dataclasses import replace
from typing import Any

import pytest

from fixformer.config import DataConfig, Stage, TrainConfig, changes
from fixformer.config.overrides import apply_overrides, resolve, words_to_data_settings
from fixformer.config.recipes import RECIPES, get_recipe
from fixformer.config.schema import dump, load, words_to_settings
from fixformer.errors import SettingsConflict, UnknownName, UserError
from fixformer.models.registry import model_setting_types


def changed_config(config: TrainConfig, settings: dict[str, Any]) -> TrainConfig:
    return apply_overrides(config, settings, model_setting_types)


@pytest.fixture
def config() -> TrainConfig:
    return replace(get_recipe("lsa64"), data=DataConfig(path="somewhere", kind="lsa64"))


def test_by_full_name_by_last_word_and_for_the_model(config: TrainConfig) -> None:
    words = ["optim.lr=0.01", "epochs=10", "stages=", "colour=0.5", "depth=2", "model.mlp_ratio=2", "cache=none"]
    changed = changed_config(config, words_to_settings([*words, "betas=0.8,0.9", "policy=v0", "flip=1"]))
    assert (changed.optim.lr, changed.epochs, changed.stages) == (0.01, 10, ())
    assert (changed.clip.augment.colour, changed.clip.augment.policy, changed.clip.augment.flip) == (0.5, "v0", 1.0)
    assert changed.model_settings["depth"] == changed.model_settings["mlp_ratio"] == 2
    assert changed.optim.betas == (0.8, 0.9)
    assert changed.data.cache is None


def test_another_size_takes_the_jitter_with_it(config: TrainConfig) -> None:
    low, high = config.clip.augment.jitter
    changed = changed_config(config, {"size": 2 * config.clip.size})
    assert changed.clip.augment.jitter == (2 * low, 2 * high)
    explicit = changed_config(config, {"size": 32, "jitter": "40,50"})
    assert explicit.clip.augment.jitter == (40, 50)


def test_another_size_takes_what_is_kept_of_a_video_with_it(config: TrainConfig) -> None:
    assert config.clip.keep_short_side is not None
    double = changed_config(config, {"size": 2 * config.clip.size}).clip.keep_short_side
    assert double == 2 * config.clip.keep_short_side
    assert changed_config(config, {"size": 128, "keep_short_side": 140}).clip.keep_short_side == 140


def test_settings_of_the_data_alone() -> None:
    words = ["labels=names.txt", "data.recording_set=1", "val_fraction=0.5", "cache=none"]
    found = {"labels": "names.txt", "recording_set": 1, "val_fraction": 0.5, "cache": None}
    assert words_to_data_settings(words) == found
    with pytest.raises(UnknownName, match=r"lables.*labels"):
        words_to_data_settings(["lables=x"])
    with pytest.raises(UserError, match=r"workers=2.*--workers 2"):
        words_to_data_settings(["workers=2"])


def test_names_that_are_offered_differ(config: TrainConfig) -> None:
    with pytest.raises(UnknownName, match=r"'batchsize'.*batch_size or patch_size or eval\.batch_size"):
        changed_config(config, {"batchsize": 3})


def test_stages_as_text_and_over_other_epochs(config: TrainConfig) -> None:
    changed = changed_config(config, {"stages": "4x32:3,8x48:2@8"})
    assert changed.stages == (Stage(3, 4, 32), Stage(2, 8, 48, 8))
    assert changed.epochs == 5
    assert [stage.epochs for stage in changed_config(changed, {"epochs": 10}).stages] == [6, 4]
    assert [changed.stage_of(epoch).frames for epoch in range(5)] == [4, 4, 4, 8, 8]
    assert changed.stage_of(4).batch_size == 8


def test_another_model_keeps_the_settings_it_knows(config: TrainConfig) -> None:
    changed = changed_config(config, {"model": "tsm_r50", "stages": ""})
    assert changed.model == "tsm_r50"
    assert "patch_size" not in changed.model_settings


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"epoch": 3}, UnknownName, ["'epoch'", "epochs"]),
        ({"optim.lrr": 3}, UnknownName, ["optim.lr"]),
        ({"fixaton": "none"}, UnknownName, ["fixation"]),
        ({"model": "fixformer_tny"}, UnknownName, ["fixformer_tiny"]),
        ({"epochs": "many"}, UserError, ["epochs='many'", "int"]),
        ({"epochs": 0}, UserError, ["epochs=0", "from 1 to"]),
        ({"lr": -1.0}, UserError, ["lr=-1.0", "more than 0"]),
        ({"optimiser": "adam"}, UnknownName, ["adam", "adamw"]),
        ({"precision": "float16"}, UnknownName, ["float16"]),
        ({"num_classes": 3}, UserError, ["num_classes", "labels"]),
        ({"num_frames": 3}, UserError, ["clip.frames"]),
        ({"steps": 3, "batch_size": 0}, UserError, ["batch_size=0"]),
        ({"stages": "8x48"}, UserError, ["8x48", "FRAMESxSIZE:EPOCHS"]),
        ({"stages": "8x48:3", "epochs": 4}, SettingsConflict, ["3 epochs", "epochs=4"]),
        ({"epochs": 2, "stages": "", "warmup_epochs": 5}, SettingsConflict, ["warmup_epochs=5", "epochs=2"]),
        ({"micro_batch": 1000}, SettingsConflict, ["micro_batch=1000"]),
        ({"views": "2x2"}, UserError, ["'2x2'", "2x3"]),
        ({"jitter": "8,9"}, SettingsConflict, ["jitter", "size"]),
        ({"betas": "0.9"}, UserError, ["betas", "two values"]),
        ({"seed": str(2**70)}, UserError, ["seed=1180591620717411303424", "64 bits"]),
        ({"device": "mps"}, UserError, ["device='mps'", "cuda:NUMBER"]),
        ({"device": "meta"}, UserError, ["device='meta'", "cpu"]),
        ({"lr": "inf"}, UserError, ["lr=inf"]),
        ({"weight_decay": "inf"}, UserError, ["weight_decay=inf"]),
        ({"stages": "8x48:3@0"}, UserError, ["stages.batch_size=0"]),
    ],
)
def test_mistakes(config: TrainConfig, settings: dict[str, Any], error: type[UserError], words: list[str]) -> None:
    with pytest.raises(error) as raised:
        changed_config(config, settings)
    assert all(word in str(raised.value) for word in words), raised.value


def test_a_word_without_a_value() -> None:
    with pytest.raises(UserError, match=r"'epochs'.*name=value"):
        words_to_settings(["epochs"])


@pytest.mark.parametrize("name", RECIPES)
def test_a_config_survives_json(name: str) -> None:
    config = replace(get_recipe(name), data=DataConfig(path="x"))
    assert load(TrainConfig, dump(config)) == config


def test_changes_name_what_matters_and_nothing_else(config: TrainConfig) -> None:
    same = changed_config(config, {"workers": 7, "keep": 5, "device": "cpu", "output": "b", "data.path": "elsewhere"})
    assert changes(config, same) == []
    other = changed_config(config, {"lr": 0.5, "depth": 9})
    old = config.optim.lr
    assert sorted(changes(config, other)) == ["model_settings.depth: None -> 9", f"optim.lr: {old} -> 0.5"]


def test_an_ambiguous_word_names_its_meanings(config: TrainConfig) -> None:
    with pytest.raises(UserError, match=r"path .*data\.path or other\.path"):
        resolve("path", config.model, {"data.path": str, "other.path": str})
