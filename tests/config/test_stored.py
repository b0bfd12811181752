"""What earlier versions wrote still loads, with the same names and values."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fixformer import create_model
from fixformer.config import Stage, TrainConfig, changes
from fixformer.config.overrides import apply_overrides
from fixformer.config.recipes import get_recipe
from fixformer.config.schema import dump, load
from fixformer.models.registry import model_setting_types

# "config" in the run.json of a run, and "recipe" in the config.json of its checkpoints, as written before the schema:
# lsa64_all with the overrides below.
STORED = Path(__file__).parent / "train_config_format_1.json"
OVERRIDES = {
    **{"data.path": "lsa64", "output": "runs/lsa64_all", "init": "w.safetensors", "fps": "none", "threads": "1"},
    **{"depth": "2", "mlp_ratio": "2", "kernel": "elu1", "fixation_shared": "false"},
    **{"betas": "0.8,0.9", "stages": "8x64:24,8x96:12@8"},
}


def with_later_settings(stored: dict[str, Any]) -> dict[str, Any]:
    """Settings that came after format 1 are written with their defaults, which change nothing."""
    stored |= {"pretrained": True, "frozen_epochs": 0, "frozen_draws": 4}
    stored["optim"] |= {"stem_scale": 1.0, "stem_frozen": 0}
    stored["data"] |= {"cache_gb": 20.0, "balance": "none", "fold": None}
    stored["eval"] |= {"baselines": False}
    stored["clip"]["augment"] |= {"elastic": 0.0}
    stored["run"] |= {"processes": None}
    return stored


def test_a_stored_run_loads_and_is_written_alike() -> None:
    stored = json.loads(STORED.read_text())
    config = load(TrainConfig, stored)
    assert config.stages == (Stage(24, 8, 64), Stage(12, 8, 96, 8))
    assert (config.optim.betas, config.clip.augment.jitter) == ((0.8, 0.9), (96, 116))
    assert json.loads(json.dumps(dump(config))) == with_later_settings(stored)


def test_the_same_command_gives_the_stored_run() -> None:
    config = apply_overrides(get_recipe("lsa64_all"), OVERRIDES, model_setting_types)
    stored = load(TrainConfig, json.loads(STORED.read_text()))
    assert config == stored
    assert changes(config, stored) == []
    assert changes(replace(config, seed=1), stored) == ["seed: 1 -> 0"]


# "settings" of the model in the config.json of checkpoints.
SETTINGS: dict[str, dict[str, Any]] = {
    "fixformer_tiny": {
        **{"num_classes": 12, "num_frames": 8, "image_size": 32, "stem": "conv", "patch_size": 8, "pool": "grid"},
        **{"position_embedding": "learned", "dropout": 0.1, "attention": "performer", "random_features": 16},
        **{"mlp_ratio": 2, "fixation_shared": False, "shift_segment": None, "mlp_conv": 1},
    },
    "fixformer_base_released": {"num_classes": 400, "shift_keep": 0.75, "shift_segment": 8, "fixation_shared": False},
    "xvit_base": {"num_classes": 174, "num_frames": 8, "shift_divisor": 8, "fixation": "cooperative", "drop_path": 0.1},
    "oformer_base": {"num_classes": 5, "landmarks": 64, "values": "projected"},
    "slowfast_r101_8x8": {"num_classes": 400, "lateral_kernel": 7, "dropout": 0},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_models_are_built_from_stored_settings(name: str) -> None:
    with torch.device("meta"):
        model = create_model(name, **SETTINGS[name])
    assert model.settings == SETTINGS[name]
    assert model.num_classes == SETTINGS[name]["num_classes"]
