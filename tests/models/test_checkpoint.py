"""`config.json` of a checkpoint: each thing once, typed when read; with and without a training run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fixformer.config import ClipSpec, DataConfig, EvalConfig, TrainConfig
from fixformer.models.checkpoint import (
    FORMAT,
    CheckpointInfo,
    complete_model_settings,
    load_model,
    read_info,
    write_model,
)
from fixformer.models.registry import create_model

BY_HAND = TrainConfig(
    model="fixformer_tiny",
    model_settings={"embed_dim": 16, "depth": 1, "num_heads": 2, "patch_size": 8},
    clip=ClipSpec(frames=2, size=16),
    eval=EvalConfig(views="2x3"),
)
TRAINED = replace(BY_HAND, data=DataConfig(path="videos", backend="torchcodec"), epochs=7, seed=3)


def write(folder: Path, config: TrainConfig) -> CheckpointInfo:
    info = CheckpointInfo(config, ["a", "b", "c"], metrics={"video_top1": 0.5}, step=12, epoch=1.5)
    model = create_model(config.model, **complete_model_settings(config, 3))
    write_model(folder, model.state_dict(), info)
    return info


@pytest.mark.parametrize("config", [BY_HAND, TRAINED])
def test_what_is_written_is_read(tmp_path: Path, config: TrainConfig) -> None:
    info = write(tmp_path, config)
    model, found = load_model(tmp_path)
    assert found == info
    assert found.is_trained == (config is TRAINED)
    assert model(torch.zeros(1, 3, 2, 16, 16)).shape == (1, 3)


def test_each_thing_is_said_once(tmp_path: Path) -> None:
    write(tmp_path, TRAINED)
    content = json.loads((tmp_path / "config.json").read_text())
    assert content.keys() == {"format", "config", "labels", "metrics", "step", "epoch", "versions", "commit"}
    assert content["config"]["data"]["backend"] == "torchcodec"
    assert not {"num_classes", "num_frames", "image_size"} & content["config"]["model_settings"].keys()


def test_without_training_nothing_is_said_about_training(tmp_path: Path) -> None:
    write(tmp_path, BY_HAND)
    content = json.loads((tmp_path / "config.json").read_text())
    assert content["config"].keys() == {"model", "model_settings", "clip", "eval"}


@pytest.mark.parametrize("config", [BY_HAND, TRAINED])
def test_format_1_is_read(tmp_path: Path, config: TrainConfig) -> None:
    """As its last version wrote it: model, clip and eval beside the recipe, which was empty without training."""
    info = write(tmp_path, config)
    content = json.loads((tmp_path / "config.json").read_text())
    stored = content.pop("config")
    model = {"name": stored["model"], "settings": complete_model_settings(config, 3)}
    outside = {"model": model, "clip": stored["clip"], "eval": stored["eval"]}
    recipe = stored if info.is_trained else {}
    (tmp_path / "config.json").write_text(json.dumps({**content, "format": 1, **outside, "recipe": recipe}))
    found, again = read_info(tmp_path), load_model(tmp_path)[1]
    assert found == again
    assert complete_model_settings(found.config, 3) == complete_model_settings(config, 3)
    assert replace(found, config=replace(found.config, model_settings=config.model_settings)) == info
    assert found.to_json()["format"] == FORMAT
