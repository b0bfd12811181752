"""Outputs of the reference implementations, reproduced in float64 with their weights under our names."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fixformer.config.model import ModelSettings
from fixformer.models.weights.pytorchvideo import (
    from_pytorchvideo_mvit,
    from_pytorchvideo_slowfast,
    from_pytorchvideo_x3d,
)
from fixformer.models.weights.renaming import rename
from fixformer.models.weights.resnet import from_motionsqueeze, from_tsm
from fixformer.models.zoo.i3d import I3D, Inception, InflatedStem, SameMaxPool, Widths
from fixformer.models.zoo.msnet import MotionSqueeze
from fixformer.models.zoo.mvit import MViT, MvitSettings
from fixformer.models.zoo.slowfast import SlowFast, SlowFastSettings
from fixformer.models.zoo.tsm import ShiftBottleneck
from fixformer.models.zoo.x3d import X3D
from fixformer.ops.motion_squeeze import correlation, frame_pairs, normalise, squeeze_motion

EXACT = {"atol": 1e-9, "rtol": 0}
ROUNDED = {"atol": 2e-6, "rtol": 0}


def load(model: nn.Module, weights: Mapping[str, Tensor], prefix: str = "") -> nn.Module:
    """All weights under `prefix`, and no others but the counters of normalisations, which golden files leave out."""
    own = {name.removeprefix(prefix): t for name, t in weights.items() if name.startswith(prefix)}
    model = model.double().eval()
    missing, unexpected = model.load_state_dict(own, strict=False)
    assert not unexpected
    assert all(name.endswith("num_batches_tracked") for name in missing)
    return model


def test_mvit(golden) -> None:
    reference = golden("model_mvit")
    settings = MvitSettings(num_classes=7, num_frames=4, image_size=32)
    model = MViT(settings, embed_dim=8, depth=4, stage_starts=(1, 3), kv_stride=4)
    load(model, from_pytorchvideo_mvit(reference.weights))
    outputs: list[Tensor] = []
    for block in model.blocks[:2]:
        block.register_forward_hook(lambda _module, _inputs, output: outputs.append(output[0]))
    with torch.no_grad():
        logits = model(reference.video)
    torch.testing.assert_close(logits, reference.tensors["logits"], **EXACT)
    for output, name in zip(outputs, ("block0", "block1"), strict=True):
        torch.testing.assert_close(output, reference.tensors[name], **ROUNDED)


def test_slowfast(golden) -> None:
    reference = golden("model_slowfast")
    settings = SlowFastSettings(num_classes=5, num_frames=8, image_size=32)
    model = SlowFast(settings, depths=(1, 1, 1, 1), width=4, beta=4)
    load(model, from_pytorchvideo_slowfast(reference.weights))
    with torch.no_grad():
        torch.testing.assert_close(model(reference.video), reference.tensors["logits"], **EXACT)


def test_x3d(golden) -> None:
    reference = golden("model_x3d")
    model = X3D(
        ModelSettings(num_classes=5, num_frames=4, image_size=32),
        stem_dim=8,
        dims=(8, 8, 16, 32),
        depths=(1, 2, 5, 3),
        expansion=1.5,
        head_dim=16,
    )
    load(model, from_pytorchvideo_x3d(reference.weights))
    with torch.no_grad():
        torch.testing.assert_close(model(reference.video), reference.tensors["logits"], **EXACT)


def test_tsm_bottleneck(golden) -> None:
    reference = golden("module_tsm_bottleneck")
    weights = from_tsm({f"module.base_model.layer1.0.{name}": t for name, t in reference.weights.items()})
    block = load(ShiftBottleneck(16, 8, 32, stride=2), weights, "stages.0.0.")
    with torch.no_grad():
        out = block(reference.tensors["x"], 4)
    torch.testing.assert_close(out, reference.tensors["out"], **EXACT)


@torch.no_grad()
def test_motion_squeeze(golden) -> None:
    reference = golden("module_motionsqueeze")
    module = load(MotionSqueeze(128), from_motionsqueeze(reference.weights), "motion.")
    x_NCHW = reference.tensors["x"]
    features_BTCHW = module.reduce(x_NCHW)[None]
    first, second = frame_pairs(normalise(features_BTCHW, dim=2))
    scores = correlation(first[:, 0], second[:, 0], radius=7).relu()
    torch.testing.assert_close(scores[0].flatten(1), reference.tensors["correlation_pair0"], **ROUNDED)
    motion_TCHW = squeeze_motion(features_BTCHW)[0]
    torch.testing.assert_close(motion_TCHW[:2, :2], reference.tensors["flow"], **EXACT)
    torch.testing.assert_close(motion_TCHW[:2, 2:], reference.tensors["confidence"], **EXACT)
    torch.testing.assert_close(module(x_NCHW, 3)[[0, 2]], reference.tensors["out_clip0"], **ROUNDED)


I3D_RULES = (
    (r"b0\.", "point."),
    (r"b1a\.", "wide.0."),
    (r"b1b\.", "wide.1."),
    (r"b2a\.", "narrow.0."),
    (r"b2b\.", "narrow.1."),
    (r"b3b\.", "pooled.1."),
    (r"conv3d\.", "conv."),
    (r"bn\.", "norm."),
)


@torch.no_grad()
def test_i3d_stem_and_inception(golden) -> None:
    reference = golden("module_i3d")
    weights = rename(reference.weights, I3D_RULES)
    stem = load(InflatedStem(3, 6), weights, "stem.")(reference.tensors["x"])
    torch.testing.assert_close(stem, reference.tensors["stem.out"], **EXACT)
    mixed = load(Inception(6, Widths(4, 3, 5, 2, 3, 4)), weights, "mixed.")(stem)
    torch.testing.assert_close(mixed, reference.tensors["mixed.out"], **EXACT)


def test_i3d_pools(golden) -> None:
    reference = golden("module_i3d")
    pools = [name for name in reference.tensors if name.startswith("pool_")]
    assert len(pools) == 4
    for name in pools:
        kernel, stride = name.removeprefix("pool_").removesuffix(".out").split("_s")
        pool = SameMaxPool(tuple(map(int, kernel.split("x"))), tuple(map(int, stride)))
        torch.testing.assert_close(pool(-reference.tensors["x"].abs()), reference.tensors[name], **ROUNDED)


def test_i3d_classifies_neighbouring_frames_and_averages() -> None:
    model = I3D(ModelSettings(num_classes=3, num_frames=8, image_size=32), width=1 / 8).eval()
    features = torch.randn(2, model.num_features, 4, 1, 1)
    edges_count_half = torch.tensor([0.5, 1, 1, 0.5]) / 3
    pooled = (features[..., 0, 0] * edges_count_half).sum(dim=2)
    torch.testing.assert_close(model.forward_head(features), model.head(pooled))
