"""Files of transformers' TimeSformer and ViViT: bare ones are recognised, other networks refused, sizes may differ."""

from typing import Any

import pytest
import torch
from torch import nn

from fixformer import create_model
from fixformer.errors import WeightsError
from fixformer.models.base import VideoModel
from fixformer.models.weights.loading import load_weights

transformers = pytest.importorskip("transformers")

FRAMES, SIZE, WIDTH = 4, 32, 24


def config(kind: str, **settings: Any) -> Any:
    sizes = {"image_size": SIZE, "num_frames": FRAMES, "hidden_size": WIDTH, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 3, "intermediate_size": 2 * WIDTH, "num_labels": 5}
    return getattr(transformers, f"{kind}Config")(**{**sizes, **settings})


def ours(name: str, **settings: Any) -> VideoModel:
    sizes = {"num_classes": 5, "num_frames": FRAMES, "image_size": SIZE, "embed_dim": WIDTH, "num_heads": 3, "depth": 2}
    return create_model(name, **{**sizes, "mlp_ratio": 2, **settings}).eval()


def awake(model: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model.eval()


@torch.no_grad()
@pytest.mark.parametrize(
    ("kind", "name", "source"),
    [
        ("Timesformer", "timesformer_base", "TimeSformer (transformers)"),
        ("Vivit", "vivit_base", "ViViT (transformers)"),
    ],
)
def test_a_bare_model_is_recognised(kind: str, name: str, source: str) -> None:
    theirs = awake(getattr(transformers, f"{kind}Model")(config(kind)))
    model = ours(name)
    report = load_weights(model, theirs.state_dict(), quiet=True)
    assert (report.source, report.interpolated) == (source, [])
    assert report.initial == ["head.fc.weight", "head.fc.bias"]
    assert all(name.startswith("pooler.") for name in report.unused)
    video = torch.randn(1, 3, FRAMES, SIZE, SIZE)
    expected = theirs(video.transpose(1, 2)).last_hidden_state[:, 0]
    torch.testing.assert_close(model.forward_features(video)[:, 0], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("attention_type", ["joint_space_time", "space_only"])
@pytest.mark.parametrize("model", ["TimesformerModel", "TimesformerForVideoClassification"])
def test_a_timesformer_without_attention_in_time_is_refused(attention_type: str, model: str) -> None:
    theirs = getattr(transformers, model)(config("Timesformer", attention_type=attention_type))
    with pytest.raises(WeightsError, match="no attention in time"):
        load_weights(ours("timesformer_base"), theirs.state_dict(), quiet=True)


def test_a_deeper_timesformer_is_refused() -> None:
    theirs = transformers.TimesformerForVideoClassification(config("Timesformer"))
    with pytest.raises(WeightsError, match=r"no blocks\.1\b"):
        load_weights(ours("timesformer_base", depth=1), theirs.state_dict(), quiet=True)


def test_parts_of_a_video_model_may_not_be_missing() -> None:
    theirs = transformers.TimesformerForVideoClassification(config("Timesformer")).state_dict()
    del theirs["timesformer.encoder.layer.1.temporal_dense.bias"]
    with pytest.raises(WeightsError, match=r"blocks\.1\.time_fc\.bias"):
        load_weights(ours("timesformer_base"), theirs, quiet=True)
    joint = transformers.VivitForVideoClassification(config("Vivit")).state_dict()
    with pytest.raises(WeightsError, match="temporal_cls_token"):
        load_weights(ours("vivit_large_fe"), joint, quiet=True)


@torch.no_grad()
@pytest.mark.parametrize(("frames", "height", "width"), [(7, SIZE, SIZE), (3, 80, 80), (6, 48, 112), (2, 16, 32)])
def test_timesformer_at_another_length_and_size(frames: int, height: int, width: int) -> None:
    theirs = awake(transformers.TimesformerForVideoClassification(config("Timesformer", image_size=64)))
    model = ours("timesformer_base", image_size=64)
    load_weights(model, theirs.state_dict(), quiet=True)
    # Its blocks arrange tokens by the config, whatever the clip; its tables have the size they were built with.
    theirs.config.num_frames, theirs.config.image_size = frames, width
    video = torch.randn(2, 3, frames, height, width)
    expected = theirs(video.transpose(1, 2)).logits
    torch.testing.assert_close(model(video), expected, atol=1e-5, rtol=0)
    if height == width:
        sized = ours("timesformer_base", num_frames=frames, image_size=height)
        assert "time_embed.slots" in load_weights(sized, theirs.state_dict(), quiet=True).interpolated
        torch.testing.assert_close(sized(video), expected, atol=1e-5, rtol=0)
        model.set_input_size(frames, height)
        torch.testing.assert_close(model(video), expected, atol=1e-5, rtol=0)
