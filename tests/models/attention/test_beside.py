"""The convolution of the values and the output gate: what they compute, with every attention, pattern and order."""

from fnmatch import fnmatchcase
from typing import Any, get_args

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fixformer import create_model
from fixformer.config.model import AttentionName
from fixformer.errors import WeightsError
from fixformer.models.attention.beside import LocalValues, OutputGate
from fixformer.models.attention.module import Attention
from fixformer.models.base import VideoModel
from fixformer.models.cost import cost
from fixformer.models.video_transformer import attentions
from fixformer.models.weights.loading import ADDED, load_weights

SMALL: dict[str, Any] = {"num_classes": 7, "num_frames": 4, "image_size": 44, "depth": 2}
SETTINGS = [{"local": True}, {"output_gate": True}, {"local": True, "output_gate": True}]
FEW = {"performer": {"random_features": 16}, "linformer": {"slots": 5}, "orthoformer": {"landmarks": 3}}
FEW |= {"lara": {"landmarks": 4}, "nystrom": {"landmarks": 3}}


def tiny(**settings: Any) -> VideoModel:
    torch.manual_seed(0)
    model = create_model("fixformer_tiny", **{**SMALL, **FEW.get(settings.get("attention", ""), {}), **settings})
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if "norm.weight" in name else 0.0, std=0.1)
    return model.eval()


def clip(batch: int = 2, frames: int = 4, height: int = 44, width: int = 44) -> Tensor:
    return torch.randn(batch, 3, frames, height, width, generator=torch.Generator().manual_seed(1))


def test_the_convolution_sees_the_eight_tokens_around_in_the_same_frame_and_channel() -> None:
    local = LocalValues(6).double()
    torch.nn.init.normal_(local.weight)
    torch.nn.init.normal_(local.bias)
    v_BTHWhE = torch.randn(2, 3, 4, 5, 2, 3, dtype=torch.float64)
    expected = local.bias.expand(2, 3, 4, 5, 6).clone()
    padded = F.pad(v_BTHWhE.flatten(-2), (0, 0, 1, 1, 1, 1))
    for row in range(3):
        for column in range(3):
            expected += padded[:, :, row : row + 4, column : column + 5] * local.weight[:, 0, row, column]
    torch.testing.assert_close(local(v_BTHWhE), expected)


@pytest.mark.parametrize("pattern", ["factorised", "joint", "windowed"])
@pytest.mark.parametrize("order", ["association_first", "fixation_first"])
def test_attention_is_what_it_was_plus_the_values_times_the_gate(pattern: str, order: str) -> None:
    """(attention + local values) · gate, then the projection; the values are those that are attended to."""
    model = tiny(local=True, output_gate=True, pattern=pattern, order=order)
    for module in attentions(model):
        x_BTHWD, seen = torch.randn(2, 3, 4, 5, 128), []
        hooks = [
            module.attend.register_forward_hook(lambda _, inputs, output, seen=seen: seen.extend([inputs[2], output]))
        ]
        found = module(x_BTHWD)
        hooks[0].remove()
        v_GhNE, y_GhNE = seen
        v_BTHWD, y_BTHWD = (module.axis.tokens(x, (2, 3, 4, 5)) for x in (v_GhNE, y_GhNE))
        assert isinstance(module.local, LocalValues)
        assert isinstance(module.output_gate, OutputGate)
        local = F.conv2d(
            v_BTHWD.flatten(0, 1).permute(0, 3, 1, 2), module.local.weight, module.local.bias, padding=1, groups=128
        ).permute(0, 2, 3, 1)
        gate = torch.sigmoid(x_BTHWD @ module.output_gate.fc.weight.T + module.output_gate.fc.bias + 3)
        expected = module.proj((y_BTHWD + local.unflatten(0, (2, 3))) * gate)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("pattern", ["factorised", "joint", "windowed"])
@pytest.mark.parametrize("attention", get_args(AttentionName))
def test_with_every_attention_in_every_pattern(attention: str, pattern: str) -> None:
    model = tiny(attention=attention, pattern=pattern, depth=1, local=True, output_gate=True).train()
    model(clip()).square().sum().backward()
    silent = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert not silent
    for module in attentions(model):
        learned = dict(module.named_parameters())
        assert all(learned[name].grad.any() for name in ("local.weight", "output_gate.fc.weight"))  # type: ignore[union-attr]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 44, 44), (2, 9, 60, 33), (1, 3, 16, 100)])
def test_any_number_of_frames_and_any_resolution(settings: dict[str, Any], shape: tuple[int, ...]) -> None:
    model, video = tiny(**settings), clip(*shape)
    assert model(video).isfinite().all()
    if shape[0] > 1:
        torch.testing.assert_close(model(video)[1:], model(video[1:]), atol=1e-4, rtol=1e-3)


def test_a_fresh_network_is_nearly_the_one_without() -> None:
    """The filters are zero; the gate lets 95 % pass, more or less by token."""
    torch.manual_seed(0)
    model = create_model("fixformer_tiny", **SMALL, local=True, output_gate=True)
    for module in attentions(model):
        assert module.local is not None
        assert not module.local.weight.any()
        assert not module.local.bias.any()
        assert module.output_gate is not None
        gate = module.output_gate(F.layer_norm(torch.randn(2, 3, 4, 5, 128), (128,)))
        assert 0.9 < gate.mean() < 0.97
        assert gate.min() > 0.8


def test_they_are_off_by_default_and_then_cost_nothing() -> None:
    module = attentions(create_model("fixformer_tiny", **SMALL))[0]
    assert module.local is module.output_gate is None
    assert not [name for name, _ in module.named_parameters() if "local" in name or "output_gate" in name]


def test_parameters_and_multiplications() -> None:
    """For each of 24 attentions: 3x3 filters of 512 channels, and a Linear; a token of 16 x 17 x 17 costs as much."""
    D, tokens = 512, 16 * 17 * 17
    plain, local, gated = (cost("fixformer_base", **settings) for settings in ({}, {"local": True}, SETTINGS[1]))
    assert local.params - plain.params == 24 * (9 * D + D)
    assert local.macs - plain.macs == 24 * tokens * 9 * D
    assert gated.params - plain.params == 24 * (D * D + D)
    assert gated.macs - plain.macs == gated.executed_macs - plain.executed_macs == 24 * tokens * D * D


def test_weights_from_elsewhere_leave_them_as_they_are() -> None:
    """Weights of ours without them are another network, which is said."""
    for name in ("local.weight", "local.bias", "output_gate.fc.weight", "output_gate.fc.bias"):
        assert any(fnmatchcase(f"blocks.3.time.body.{name}", pattern) for pattern in ADDED)
    plain, both = tiny(), tiny(local=True, output_gate=True)
    with pytest.raises(WeightsError, match=r"space\.body\.local\.weight"):
        load_weights(both, plain.state_dict(), quiet=True)
    same = create_model("fixformer_tiny", **SMALL, local=True, output_gate=True).eval()
    assert load_weights(same, both.state_dict(), quiet=True).initial == []
    torch.testing.assert_close(same(clip()), both(clip()))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_exports_with_a_free_batch_size(settings: dict[str, Any]) -> None:
    model = tiny(depth=1, **settings)
    program = torch.export.export(model, (clip(2),), dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=64)},))
    torch.testing.assert_close(program.module()(clip(3)), model(clip(3)), atol=1e-5, rtol=1e-4)


def test_autocast_is_close() -> None:
    model = tiny(local=True, output_gate=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = model(clip())
    torch.testing.assert_close(low.float(), model(clip()), atol=0.1, rtol=0.1)


def test_other_models_have_neither() -> None:
    model = create_model("timesformer_base", num_frames=2, image_size=32, embed_dim=32, depth=1, num_heads=2)
    found = [module for module in model.modules() if isinstance(module, Attention)]
    assert [(module.local, module.output_gate) for module in found] == [(None, None)] * 2
