"""The released preset against the outputs of the released code."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from fixformer import create_model
from fixformer.models.video_transformer import VideoTransformer
from fixformer.models.weights import from_released

SIZES = {
    "num_classes": 11,
    "num_frames": 8,
    "image_size": 56,
    "embed_dim": 64,
    "num_heads": 2,
    "depth": 2,
    "head_hidden_dim": 48,
}
VARIANTS = {
    "a_shift4_sharedgate_div4": {},
    "b_shift8_unsharedgate_div8": {"fixation_shared": False, "shift_shape": "square", "shift_keep": 0.75},
    "c_plain_relu": {"fixation": "none", "association": "none"},
    "d_softmax": {"attention": "softmax", "fixation": "none", "association": "none"},
    "d2_softmax_gate_shift": {"attention": "softmax"},
    "e_orthoformer_all_tokens": {"attention": "orthoformer", "fixation": "none", "association": "none"},
    "e2_orthoformer_start0": {
        "attention": "orthoformer",
        "landmarks": 6,
        "fixation": "none",
        "association": "none",
    },
    "f_long_tiled_temp_embed": {},
    "f2_long_tiled_segmented_shift": {
        "fixation_shared": False,
        "shift_shape": "square",
        "shift_keep": 0.75,
        "shift_segment": 8,
    },
}


def released_weights(golden: Path, variant: str) -> dict[str, Tensor]:
    """The reference's own state dict: common weights plus the gates of the file the metadata names."""
    with safe_open(golden / f"released_{variant}.safetensors", "pt") as file:
        gates = file.metadata().get("gate_weights_in", "")
        gated = file.metadata()["gate"] != "none"
    tensors = load_file(golden / "released_common.safetensors")
    if gated:
        tensors |= load_file(golden / f"{gates}.safetensors")
    return {name.removeprefix("weights."): x.double() for name, x in tensors.items() if name.startswith("weights.")}


def released_video(golden: Path, variant: str) -> Tensor:
    video = load_file(golden / "released_common.safetensors")["video_i8"].double() / 64
    return torch.cat(list(video[:, None]), dim=2) if variant.startswith("f") else video


def released_model(golden: Path, variant: str) -> VideoTransformer:
    model = create_model("fixformer_base_released", **SIZES, **VARIANTS[variant])
    assert isinstance(model, VideoTransformer)
    model.double().eval().load_state_dict(from_released(released_weights(golden, variant)))
    return model


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_and_intermediates(golden_dir: Path, variant: str) -> None:
    expected = load_file(golden_dir / f"released_{variant}.safetensors")
    model = released_model(golden_dir, variant)
    seen: dict[str, Tensor] = {}
    first = model.blocks[0]
    first.register_forward_hook(lambda _m, _i, out: seen.update(block0=out[0].flatten(1, 2)))
    first.space.body.register_forward_hook(lambda _m, _i, out: seen.update(block0_spatial_attn=out[0].flatten(1, 2)))
    first.time.body.register_forward_hook(
        lambda _m, _i, out: seen.update(block0_temporal_attn=out[0].flatten(1, 2).transpose(0, 1))
    )
    with torch.no_grad():
        features = model.forward_features(released_video(golden_dir, variant))
        logits = model.forward_head(features)
    torch.testing.assert_close(logits, expected["logits"], atol=1e-9, rtol=0)
    torch.testing.assert_close(features.mean((2, 3)).flatten(0, 1), expected["frame_features"], atol=1e-9, rtol=0)
    for name in seen.keys() & expected.keys():
        torch.testing.assert_close(seen[name], expected[name].double(), atol=2e-6, rtol=0)


def test_patch_embedding(golden_dir: Path) -> None:
    model = released_model(golden_dir, "c_plain_relu")
    tokens = model.patch_embed(released_video(golden_dir, "c_plain_relu"))[0].flatten(1, 2)
    expected = load_file(golden_dir / "released_common.safetensors")["patch_embed"]
    torch.testing.assert_close(tokens, expected.double(), atol=2e-6, rtol=0)


@pytest.mark.parametrize("variant", ["a_shift4_sharedgate_div4", "c_plain_relu"])
def test_float32_within_released_tolerance(golden_dir: Path, variant: str) -> None:
    model = released_model(golden_dir, variant).float()
    with torch.no_grad():
        logits = model(released_video(golden_dir, variant).float())
    expected = load_file(golden_dir / f"released_{variant}.safetensors")["logits"]
    torch.testing.assert_close(logits.double(), expected, atol=1.5e-6, rtol=0)


@pytest.mark.parametrize(("gate", "settings"), [("none", {"fixation": "none"}), ("shared", {})])
def test_parameters_are_the_released_ones_minus_its_unused_layer(
    golden_costs: list[dict], gate: str, settings: dict
) -> None:
    row = next(r for r in golden_costs if r["system"] == "LVT" and r["gate"] == gate and r["frames"] == 16)
    with torch.device("meta"):
        model = create_model("fixformer_base_released", **settings)
    assert sum(p.numel() for p in model.parameters()) == row["params"] - row["of_which_unused_params"]["new_fc"]
