"""Every name in `list_models()` through the same verbs: small where its settings allow, else on a short, small clip."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from fixformer import create_model, list_models
from fixformer.errors import InputError
from fixformer.models.base import VideoModel
from fixformer.models.cost import count_params
from fixformer.models.registry import describe, list_settings
from fixformer.models.weights.loading import load_weights

NAMES = list_models()
SMALL = {"embed_dim": 24, "depth": 2, "num_heads": 2, "head_hidden_dim": 16, "temporal_depth": 1, "landmarks": 3}
# What the paper compares, by the names of design.md.
COMPARED = {
    *("xvit_base", "timesformer_base", "timesformer_hr", "vivit_base", "vivit_large", "vivit_large_fe"),
    *("motionformer_base", "oformer_base", "rala_base", "mvit_base_16x4", "mvit_base_32x3", "slowfast_r50_8x8"),
    *("slowfast_r101_8x8", "tsm_r50", "tsm_r101", "msnet_r50", "i3d", "x3d_m"),
}
LANDMARKS = {"oformer_base", "rala_base"}
TUBELETS = {"vivit_base", "vivit_large", "vivit_large_fe", "motionformer_base", "oformer_base", "rala_base"}
SIZE = 32


def is_small(name: str) -> bool:
    """Whether its settings make it small. The convolutional networks and MViT have one size."""
    return "embed_dim" in list_settings(name)


def build(name: str, **settings: Any) -> VideoModel:
    """The model on clips of 4 frames of 32 pixels, with every parameter awake."""
    own = list_settings(name)
    small = {key: value for key, value in SMALL.items() if key in own and (key != "landmarks" or name in LANDMARKS)}
    small |= {"head_hidden_dim": 0} if name.startswith("fixformer_vit") else {}
    torch.manual_seed(0)
    model = create_model(name, **{"num_classes": 5, "num_frames": 4, "image_size": SIZE, **small, **settings})
    for parameter in model.parameters():
        if parameter.ndim == 1 or not parameter.any():  # norms and layers that start at zero hide what is behind them
            parameter.data.add_(0.1 * torch.rand_like(parameter))
    return model


def clip(batch: int = 2, frames: int = 4, height: int = SIZE, width: int = SIZE) -> Tensor:
    return torch.randn(batch, 3, frames, height, width, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module", params=NAMES)
def model(request: pytest.FixtureRequest) -> VideoModel:
    """Built once; a test that changes it works on a copy."""
    return build(request.param).eval()


def test_all_compared_systems_have_a_name_and_a_sentence() -> None:
    assert set(NAMES) >= COMPARED
    assert all(describe(name) for name in COMPARED)


@pytest.mark.parametrize("name", NAMES)
def test_full_size_is_built_without_memory(name: str) -> None:
    with torch.device("meta"):
        model = create_model(name)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert count_params(model) > 1e5
    assert model.name == name
    assert {"num_classes", "num_frames", "image_size"} <= set(list_settings(name))


def test_forward_is_features_and_head(model: VideoModel) -> None:
    with torch.no_grad():
        logits = model(clip())
        features = model.forward_features(clip())
        assert logits.shape == (2, model.num_classes) == (2, 5)
        assert logits.isfinite().all()
        torch.testing.assert_close(model.forward_head(features), logits, atol=1e-5, rtol=1e-4)
        assert model.forward_head(features, pre_logits=True).ndim == 2


def test_clips_do_not_see_each_other(model: VideoModel) -> None:
    with torch.no_grad():
        torch.testing.assert_close(model(clip(3))[1:2], model(clip(3)[1:2]), atol=1e-4, rtol=1e-3)


def test_every_parameter_learns_and_the_classifier_can_be_replaced(model: VideoModel) -> None:
    learner = copy.deepcopy(model).train()
    learner.reset_classifier(3)
    assert learner.num_classes == 3
    logits = learner(clip())
    assert logits.shape == (2, 3)
    nn.functional.cross_entropy(logits, torch.tensor([0, 2])).backward()
    silent = [name for name, p in learner.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert not silent
    assert learner.no_weight_decay() <= {name for name, _ in learner.named_parameters()}


def test_recomputing_gives_the_same_gradients(model: VideoModel) -> None:
    if not is_small(model.name):
        pytest.skip("tests/models/zoo/test_zoo_verbs.py does this on small networks")
    gradients = []
    for checkpointing in (False, True):
        learner = copy.deepcopy(model).train()
        learner.set_grad_checkpointing(checkpointing)
        torch.manual_seed(3)
        learner(clip()).square().sum().backward()
        gradients.append([parameter.grad for parameter in learner.parameters()])
    assert all(torch.equal(one, two) for one, two in zip(*gradients, strict=True))


def test_other_lengths_and_sizes(model: VideoModel) -> None:
    with torch.no_grad():
        assert model(clip(1, 6, 48, 37)).isfinite().all()
        if model.name in TUBELETS:
            with pytest.raises(InputError, match="3 frames"):
                model(clip(1, 3))
        else:
            assert model(clip(1, 1)).isfinite().all()


def test_sized_for_another_clip(model: VideoModel) -> None:
    other = copy.deepcopy(model)
    other.set_input_size(num_frames=8, image_size=48)
    assert (other.num_frames, other.image_size) == (8, 48)
    with torch.no_grad():
        torch.testing.assert_close(other(clip(1, 8, 48, 48)), model(clip(1, 8, 48, 48)), atol=1e-4, rtol=1e-3)


def test_a_file_gives_the_model_back(model: VideoModel, tmp_path: Path) -> None:
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    other = build(model.name).eval()
    for parameter in other.parameters():
        nn.init.zeros_(parameter)
    report = load_weights(other, tmp_path / "model.safetensors", quiet=True)
    assert (report.source, report.initial, report.interpolated, report.unused) == ("fixformer", [], [], [])
    with torch.no_grad():
        assert torch.equal(other(clip()), model(clip()))


@pytest.mark.slow
def test_exports(model: VideoModel) -> None:
    """For one batch size; any size is tested on one model of each class, because it takes far longer."""
    exported = build(model.name, depth=1).eval() if is_small(model.name) else model
    program = torch.export.export(exported, (clip(),))
    with torch.no_grad():
        torch.testing.assert_close(program.module()(clip()), exported(clip()), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("video", [torch.zeros(3, 4, 32, 32), torch.zeros(1, 3, 4, 32, 32, dtype=torch.uint8)])
def test_what_is_not_a_video_is_refused(model: VideoModel, video: Tensor) -> None:
    with pytest.raises(InputError):
        model(video)
