"""Sizes changed after a model is built, and settings no model can be built with: all or nothing, in one sentence."""

from typing import Any

import pytest
import torch

from fixformer import create_model
from fixformer.errors import InputError, SettingsConflict, UserError
from fixformer.models.base import VideoModel

SIZE: dict[str, Any] = {"num_classes": 5, "num_frames": 4, "image_size": 32}
TINY: dict[str, Any] = {**SIZE, "embed_dim": 24, "num_heads": 2, "depth": 1}
BUILT: dict[str, dict[str, Any]] = {
    **{name: TINY for name in ("fixformer_tiny", "xvit_base", "timesformer_base", "vivit_base", "motionformer_base")},
    "mvit_base_16x4": SIZE,
}
LINFORMER: dict[str, Any] = {"attention": "linformer", "slots": 3}
POSITIONS: dict[str, Any] = {"position_embedding": "learned", "time_slots": 3}


def state(model: VideoModel) -> dict[str, Any]:
    shapes = {name: x.shape for name, x in model.state_dict().items()}
    return {"frames": model.num_frames, "size": model.image_size, "settings": model.settings, **shapes}


@pytest.mark.parametrize("name", BUILT)
def test_impossible_sizes_are_refused_before_anything_has_changed(name: str) -> None:
    model = create_model(name, **BUILT[name])
    before = state(model)
    impossible = [{"num_frames": -2}, {"num_frames": 0}, {"num_frames": 2.5}, {"image_size": 0}]
    impossible += [{"num_frames": 8, "image_size": 8}] if model.min_size > 8 else []
    for size in impossible:
        with pytest.raises(InputError, match=next(reversed(size))) as error:
            model.set_input_size(**size)
        assert "\n" not in str(error.value)
        assert state(model) == before


def test_segments_must_divide_the_new_number_of_frames() -> None:
    model = create_model("fixformer_tiny", **TINY, shift_segment=2)
    with pytest.raises(SettingsConflict, match=r"shift_segment=2.*num_frames=5"):
        model.set_input_size(num_frames=5)
    assert model.num_frames == 4


@pytest.mark.parametrize(
    ("name", "own"), [*BUILT.items(), ("fixformer_tiny", TINY | LINFORMER), ("fixformer_tiny", TINY | POSITIONS)]
)
def test_settings_follow_the_sizes(name: str, own: dict[str, Any]) -> None:
    """What `settings` says can be built again and takes the weights."""
    model = create_model(name, **own)
    model.set_input_size(num_frames=6, image_size=48)
    model.reset_classifier(3)
    again = create_model(model.name, **model.settings)
    again.load_state_dict(model.state_dict())
    assert (again.num_frames, again.image_size, again.num_classes) == (6, 48, 3)
    if name.startswith("fixformer"):
        assert model.config == again.config


@pytest.mark.parametrize(
    ("name", "own"), [*BUILT.items(), ("fixformer_tiny", TINY | LINFORMER), ("fixformer_tiny", TINY | POSITIONS)]
)
def test_frozen_tables_stay_frozen(name: str, own: dict[str, Any]) -> None:
    model = create_model(name, **own).requires_grad_(False)
    model.set_input_size(num_frames=6, image_size=48)
    assert not any(parameter.requires_grad for parameter in model.parameters())
    model.requires_grad_(True).set_input_size(num_frames=4, image_size=32)
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("oformer_base", {"landmarks": "abc"}, ["landmarks='abc'"]),
        ("oformer_base", {"landmarks": 2.5}, ["landmarks=2.5"]),
        ("motionformer_base", {"landmarks": 7}, ["landmarks=7", "attention='trajectory'"]),
        ("fixformer_tiny", {"attention": "linformer", "slots": 2.5}, ["slots=2.5"]),
        ("fixformer_tiny", {"attention": "orthoformer", "landmarks": 2.5}, ["landmarks=2.5"]),
        ("fixformer_tiny", {"depth": True}, ["depth=True"]),
        ("fixformer_tiny", {"mlp_ratio": "a"}, ["mlp_ratio='a'"]),
        ("fixformer_tiny", {"dropout": "a"}, ["dropout='a'"]),
        ("fixformer_tiny", {"mlp_conv": "no"}, ["mlp_conv='no'"]),
        ("fixformer_tiny", {"head_hidden_dim": -1}, ["head_hidden_dim=-1"]),
        ("fixformer_tiny", {"patch_padding": 0.5}, ["patch_padding=0.5"]),
        ("xvit_base", {"depth": 1.5}, ["depth=1.5"]),
        ("xvit_base", {"shift_divisor": 1}, ["shift_divisor=1", "from 2 to"]),
        ("xvit_base", {"shift_segment": -1}, ["shift_segment=-1"]),
        ("xvit_base", {"mlp_ratio": float("nan")}, ["mlp_ratio=nan"]),
        ("slowfast_r50_8x8", {"lateral_kernel": -1}, ["lateral_kernel=-1"]),
        ("slowfast_r50_8x8", {"lateral_kernel": "a"}, ["lateral_kernel='a'"]),
        ("tsm_r50", {"num_classes": "a"}, ["num_classes='a'"]),
        ("tsm_r50", {"dropout": "a"}, ["dropout='a'"]),
        ("mvit_base_16x4", {"drop_path": "a"}, ["drop_path='a'"]),
        ("i3d", {"num_frames": 2.5}, ["num_frames=2.5"]),
    ],
    ids=str,
)
def test_wrong_settings_are_named(name: str, settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UserError) as error, torch.device("meta"):
        create_model(name, **settings)
    assert all(word in str(error.value) for word in words)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["fixformer_tiny", "xvit_base"])
@pytest.mark.parametrize("classes", [0, -1, 2.5])
def test_a_classifier_needs_classes(name: str, classes: float) -> None:
    with pytest.raises(InputError, match=f"num_classes={classes}"):
        create_model(name, **TINY).reset_classifier(classes)
