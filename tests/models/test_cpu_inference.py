"""Inference in pieces equals the plain forward."""

from typing import Any

import pytest
import torch

from fixformer import create_model
from fixformer.models import cpu_inference as lean

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
]


@pytest.mark.parametrize("shape", [(2, 3, 3, 40, 33), (1, 3, 1, 16, 16), (1, 3, 5, 50, 62)])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.filterwarnings("ignore:Linformer")
def test_equals_the_plain_forward(
    settings: dict[str, Any], shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lean, "PIECE_BYTES", 30_000)  # several pieces even for this small clip
    torch.manual_seed(0)
    model = create_model("fixformer_tiny", num_classes=5, depth=2, **settings).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    video = torch.randn(shape)
    plain = model(video).detach()
    with torch.no_grad():
        assert lean.is_lean(model.blocks, video)
        torch.testing.assert_close(model(video), plain, atol=2e-5, rtol=1e-4)


def test_is_not_used_where_it_would_be_noticed() -> None:
    model = create_model("fixformer_tiny", num_classes=5).eval()
    x = torch.randn(1, 2, 3, 3, 128)
    assert not lean.is_lean(model.blocks, x)  # gradients are on
    with torch.no_grad():
        assert not lean.is_lean(model.blocks, x.double())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert not lean.is_lean(model.blocks, x)
        handle = model.blocks[0].register_forward_hook(lambda *_: None)
        assert not lean.is_lean(model.blocks, x)
        handle.remove()
        assert lean.is_lean(model.blocks, x)
        assert not lean.is_lean(model.train().blocks, x)
