"""Golden files in double precision, and the smallest networks of every class in the zoo."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from fixformer.config.model import ModelSettings
from fixformer.models.zoo.common.pooled_classifier import PooledClassifier
from fixformer.models.zoo.i3d import I3D
from fixformer.models.zoo.msnet import MSNet
from fixformer.models.zoo.mvit import MViT, MvitSettings
from fixformer.models.zoo.slowfast import SlowFast, SlowFastSettings
from fixformer.models.zoo.tsm import TSM
from fixformer.models.zoo.x3d import X3D

SIZES = {"num_classes": 5, "num_frames": 4, "image_size": 32}

TINY: dict[str, Callable[..., PooledClassifier]] = {
    "i3d": lambda **s: I3D(ModelSettings(**SIZES | s), width=1 / 8),
    "msnet": lambda **s: MSNet(ModelSettings(**SIZES | s), depths=(1, 2), width=8),
    "mvit": lambda **s: MViT(
        MvitSettings(**SIZES | {"drop_path": 0.1} | s), depth=4, embed_dim=8, stage_starts=(1, 3), kv_stride=4
    ),
    "slowfast": lambda **s: SlowFast(SlowFastSettings(**SIZES | s), depths=(1, 1, 2, 1), width=8, beta=4),
    "tsm": lambda **s: TSM(ModelSettings(**SIZES | s), depths=(1, 2), width=8, shift_every=2),
    "x3d": lambda **s: X3D(
        ModelSettings(**SIZES | s), stem_dim=8, dims=(8, 16), depths=(1, 2), expansion=1.5, head_dim=16
    ),
}


@pytest.fixture(params=sorted(TINY))
def tiny(request: pytest.FixtureRequest) -> Callable[..., PooledClassifier]:
    """A builder of a small network, once for each class; the same weights every time."""

    def build(**settings: object) -> PooledClassifier:
        torch.manual_seed(0)
        return TINY[request.param](**settings)

    return build


@dataclass(frozen=True)
class Golden:
    """The weights under the reference's names, and everything else; floating point is float64."""

    weights: dict[str, Tensor]
    tensors: dict[str, Tensor]

    @property
    def video(self) -> Tensor:
        return self.tensors["video_i8"].double() / 64


@pytest.fixture
def golden(golden_dir: Path) -> Callable[[str], Golden]:
    def load(name: str) -> Golden:
        tensors = load_file(golden_dir / f"{name}.safetensors")
        doubles = {key: t.double() if t.is_floating_point() else t for key, t in tensors.items()}
        prefix = "weights."
        weights = {key.removeprefix(prefix): t for key, t in doubles.items() if key.startswith(prefix)}
        return Golden(weights, {key: t for key, t in doubles.items() if not key.startswith(prefix)})

    return load
