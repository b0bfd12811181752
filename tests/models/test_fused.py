"""Inference in chunks equals the plain forward, and is used only where it pays and nobody would notice."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fixformer import create_model
from fixformer.models import fused, fused_parts
from fixformer.models.base import VideoModel
from fixformer.models.fused import may_run_in_place
from fixformer.models.fused_mlp import FusedMlp

SETTINGS: list[dict[str, Any]] = [
    {},
    {"pattern": "joint"},
    {"pattern": "windowed"},
    {"attention": "softmax"},
    {"attention": "softmax", "fixation": "none", "association": "none"},
    {"attention": "performer"},
    {"attention": "cosformer"},
    {"attention": "linformer", "slots": 5},
    {"attention": "orthoformer", "landmarks": 3},
    {"attention": "lara", "landmarks": 4},
    {"attention": "nystrom", "landmarks": 3},
    {"attention": "lara", "pattern": "joint", "landmarks": 8},
    {"attention": "mala"},
    {"attention": "mala", "order": "fixation_first"},
    {"attention": "inline", "pattern": "joint"},
    {"attention": "rank"},
    {"attention": "rank", "kernel": "relu"},
    {"kernel": "polar"},
    {"local": True},
    {"output_gate": True, "attention": "softmax"},
    {"local": True, "output_gate": True, "pattern": "windowed"},
    {"kernel": "elu1"},
    {"fixation": "separate"},
    {"fixation_merge": "add", "association": "time"},
    {"fixation_shared": False, "association": "space"},
    {"shift_shape": "square", "shift_time": 2, "shift_keep": 0.3},
    {"reading": "released", "shift_shape": "square"},
    {"reading": "released", "shift_segment": 1},
    {"order": "fixation_first"},
    {"embed_dim": 48, "num_heads": 3},
    {"mlp_conv": False, "position_embedding": "learned"},
    {"patch_norm": False},
]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several chunks even for a small clip."""
    monkeypatch.setattr(fused_parts, "CHUNK_BYTES", 30_000)
    monkeypatch.setattr(fused, "SMALLEST_BYTES", 0)
    monkeypatch.setattr(fused, "SMALLEST_TRAINING_BYTES", 0)


def tiny(**settings: Any) -> VideoModel:
    torch.manual_seed(0)
    model = create_model("fixformer_tiny", **{"num_classes": 5, "depth": 2, **settings}).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.1)
    return model


@pytest.mark.parametrize("shape", [(2, 3, 3, 40, 33), (1, 3, 1, 16, 16), (1, 3, 5, 50, 62)])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.filterwarnings("ignore:Linformer")
@torch.no_grad()
def test_equals_the_plain_forward(settings: dict[str, Any], shape: tuple[int, ...]) -> None:
    model, video = tiny(**settings), torch.randn(shape)
    assert may_run_in_place(model, model.blocks, model.patch_embed(video))
    chunked = model(video)
    model.set_chunked_inference(False)
    torch.testing.assert_close(chunked, model(video), atol=2e-5, rtol=1e-4)


@torch.no_grad()
def test_a_clip_is_cut_into_chunks_and_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model, video = tiny(depth=1), torch.randn(1, 3, 5, 50, 62)
    before, seen = video.clone(), []
    original = FusedMlp._activate
    monkeypatch.setattr(FusedMlp, "_activate", lambda self, x: seen.append(len(x)) or original(self, x))
    model(video)
    assert sum(seen) == 5
    assert len(seen) > 1
    assert torch.equal(video, before)


def test_is_not_used_where_it_would_be_noticed() -> None:
    model = tiny()
    x = torch.randn(1, 2, 3, 3, 128)
    assert not may_run_in_place(model, model.blocks, x)  # gradients are on
    with torch.no_grad():
        assert not may_run_in_place(model, model.blocks, x.double())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert not may_run_in_place(model, model.blocks, x)
        for observed in (model.blocks[0], model.time_embed):
            handle = observed.register_forward_hook(lambda *_: None)
            assert not may_run_in_place(model, model.blocks, x)
            handle.remove()
        assert may_run_in_place(model, model.blocks, x)
        model.blocks[1].train()  # stochastic depth at test time
        assert not may_run_in_place(model, model.blocks, x)


@torch.no_grad()
def test_small_clips_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    model = tiny()
    width = model.blocks[0].mlp.body.fc1.out_features
    tokens = fused.SMALLEST_BYTES // (4 * width)
    assert may_run_in_place(model, model.blocks, torch.empty(1, tokens, 1, 1, 128))
    assert not may_run_in_place(model, model.blocks, torch.empty(1, tokens - 1, 1, 1, 128))


class LoraLinear(nn.Linear):
    """A low-rank update beside frozen weights, as fine-tuning libraries put it in the place of a Linear."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + x.mean(-1, keepdim=True)


def quantised(linear: nn.Linear) -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(linear), {nn.Linear}, dtype=torch.qint8)[0]


def lora(linear: nn.Linear) -> nn.Module:
    replaced = LoraLinear(linear.in_features, linear.out_features)
    replaced.load_state_dict(linear.state_dict())
    return replaced


class Wrapper(nn.Module):
    """The same as a module that holds the Linear and has none of its attributes."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x.mean(-1, keepdim=True)


@pytest.mark.parametrize("replace", [lora, quantised, Wrapper])
@pytest.mark.parametrize(
    "name", ["mlp.body.fc1", "space.body.qkv", "time.body.proj", "space.body.steps.fixate.gate.fc"]
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
@torch.no_grad()
def test_a_foreign_layer_in_the_place_of_a_linear_takes_the_plain_path(name: str, replace: Any) -> None:
    model, video = tiny(), torch.randn(1, 3, 5, 50, 62)
    plain = model(video)
    parent, _, leaf = name.rpartition(".")
    setattr(model.blocks[1].get_submodule(parent), leaf, replace(model.blocks[1].get_submodule(name)))
    assert not may_run_in_place(model, model.blocks, model.patch_embed(video))
    replaced = model(video)
    assert not torch.equal(replaced, plain)  # it was called
    model.set_chunked_inference(False)
    assert torch.equal(replaced, model(video))
