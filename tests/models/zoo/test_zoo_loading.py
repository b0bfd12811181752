"""Public files are recognised by their names, loaded and reported on, whoever they belong to."""

import re
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

from fixformer import create_model, list_models
from fixformer.config.model import ModelSettings
from fixformer.errors import WeightsError
from fixformer.models.base import VideoModel
from fixformer.models.weights.loading import CONVERTERS, load_weights
from fixformer.models.weights.resnet import from_motionsqueeze, from_tsm
from fixformer.models.zoo.msnet import MSNet
from fixformer.models.zoo.mvit import MViT, MvitSettings
from fixformer.models.zoo.slowfast import SlowFast, SlowFastSettings
from fixformer.models.zoo.tsm import TSM
from fixformer.models.zoo.x3d import X3D

SIZES = {"num_frames": 4, "image_size": 32}
GOLDEN: dict[str, tuple[str, Callable[[], VideoModel]]] = {
    "model_mvit": (
        "MViT (pytorchvideo)",
        lambda: MViT(MvitSettings(num_classes=7, **SIZES), embed_dim=8, depth=4, stage_starts=(1, 3), kv_stride=4),
    ),
    "model_slowfast": (
        "SlowFast (pytorchvideo)",
        lambda: SlowFast(SlowFastSettings(num_classes=5, **SIZES), depths=(1, 1, 1, 1), width=4, beta=4),
    ),
    "model_x3d": (
        "X3D (pytorchvideo)",
        lambda: X3D(
            ModelSettings(num_classes=5, **SIZES),
            **{"stem_dim": 8, "dims": (8, 8, 16, 32), "depths": (1, 2, 5, 3), "expansion": 1.5, "head_dim": 16},
        ),
    ),
}


@torch.no_grad()
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_weights_load_by_their_names(golden, name: str) -> None:
    reference = golden(name)
    source, build = GOLDEN[name]
    model = build().double().eval()
    report = load_weights(model, reference.weights, quiet=True)
    assert (report.source, report.unused, report.interpolated) == (source, [], [])
    assert all(left.endswith("num_batches_tracked") for left in report.initial)
    torch.testing.assert_close(model(reference.video), reference.tensors["logits"], atol=1e-9, rtol=0)


def resnet_names(depths: tuple[int, ...], wrapper: str) -> list[str]:
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    names = ["conv1.weight", *(f"bn1.{leaf}" for leaf in norm)]
    for stage, depth in enumerate(depths):
        for block in (f"layer{stage + 1}.{i}" for i in range(depth)):
            names += [f"{block}.conv1{wrapper}.weight", f"{block}.conv2.weight", f"{block}.conv3.weight"]
            names += [f"{block}.bn{n}.{leaf}" for n in (1, 2, 3) for leaf in norm]
        names += [f"layer{stage + 1}.0.downsample.0.weight"]
        names += [f"layer{stage + 1}.0.downsample.1.{leaf}" for leaf in norm]
    return names


def motion_names() -> list[str]:
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    names = ["chnl_reduction.0.weight", *(f"chnl_reduction.1.{leaf}" for leaf in norm)]
    for unit in range(1, 5):
        names += [f"flow_refinement.conv{unit}.{conv}.weight" for conv in (0, 3)]
        names += [f"flow_refinement.conv{unit}.{n}.{leaf}" for n in (1, 4) for leaf in norm]
    return names


def random_file(names: list[str], model: VideoModel, convert: Callable[[Mapping[str, Tensor]], dict]) -> dict:
    """A file with these names whose tensors fit the model."""
    own = model.state_dict()
    ours = {name: next(iter(convert({name: torch.empty(())}))) for name in names}
    return {name: torch.full_like(own[our], i) for i, (name, our) in enumerate(ours.items())}


DEPTHS = (1, 2)
FILES = {
    "TSM": (
        [f"module.base_model.{name}" for name in resnet_names(DEPTHS, ".net")],
        ["module.new_fc.weight", "module.new_fc.bias"],
    ),
    "a ResNet of torchvision": (resnet_names(DEPTHS, ""), ["fc.weight", "fc.bias"]),
    "MotionSqueeze": (resnet_names(DEPTHS, "") + motion_names(), ["fc.weight", "fc.bias"]),
}


@pytest.mark.parametrize("source", FILES)
def test_resnets_load_by_their_names(source: str) -> None:
    kind, convert = (MSNet, from_motionsqueeze) if source == "MotionSqueeze" else (TSM, from_tsm)
    model = kind(ModelSettings(num_classes=5, **SIZES), depths=DEPTHS, width=8)
    backbone, head = FILES[source]
    file = random_file([*backbone, *head], model, convert)
    report = load_weights(model, file, quiet=True)
    assert (report.source, report.unused, report.initial) == (source, [], [])
    own = model.state_dict()
    assert all(torch.equal(own[ours], theirs) for ours, theirs in convert(file).items())


def test_msnet_takes_a_tsm_file_and_keeps_its_own_motion_module() -> None:
    model = MSNet(ModelSettings(num_classes=5, **SIZES), depths=DEPTHS, width=8)
    backbone, head = FILES["TSM"]
    report = load_weights(model, random_file([*backbone, *head], model, from_tsm), quiet=True)
    assert report.source == "TSM"
    assert report.initial
    assert all(name.startswith("motion.") for name in report.initial)


def test_a_file_of_another_system_is_refused_with_its_name(golden) -> None:
    model = TSM(ModelSettings(num_classes=5, **SIZES), depths=DEPTHS, width=8)
    with pytest.raises(WeightsError, match=r"X3D \(pytorchvideo\).*stages\.0\.0\.a\.conv\.weight"):
        load_weights(model, golden("model_x3d").weights, quiet=True)


def test_our_own_weights_are_not_taken_for_anothers() -> None:
    for name in list_models():
        with torch.device("meta"):
            own = [f"{key} {tensor.ndim}" for key, tensor in create_model(name).state_dict().items()]
        marks = {source: mark for source, (mark, _) in CONVERTERS.items() if any(re.match(mark, key) for key in own)}
        assert not marks, name


def test_a_file_with_more_blocks_is_refused() -> None:
    backbone, head = FILES["TSM"]
    deep = TSM(ModelSettings(num_classes=5, **SIZES), depths=DEPTHS, width=8)
    file = random_file([*backbone, *head], deep, from_tsm)
    with pytest.raises(WeightsError, match=r"no stages\.1\.1\b"):
        load_weights(TSM(ModelSettings(num_classes=5, **SIZES), depths=(1, 1), width=8), file, quiet=True)
