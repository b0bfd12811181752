"""What is kept of a frame that several windows share, and the logits of windows from it.

Legend: B views of windows, S crops, C colours or channels, T frames, H height, W width, K classes.
"""

from typing import Protocol

import torch
from torch import Tensor

from fixformer.config import ClipSpec
from fixformer.data.clips.transforms import normalise
from fixformer.models.base import VideoModel
from fixformer.models.layers.lite0 import Lite0Stem
from fixformer.models.video_transformer import VideoTransformer


class FrameModel(Protocol):
    """A model in two halves: what depends on one frame alone, and the rest."""

    def keep(self, crops_SCTHW: Tensor) -> Tensor:
        """Of crops of bytes, what is kept of every frame: `[T, S, ...]`."""
        ...

    def logits(self, kept_BT: Tensor) -> Tensor:
        """`[B, K]` of the kept frames `[B, T, ...]` of views."""
        ...


class FromPixels:
    """Keeps the bytes."""

    def __init__(self, model: VideoModel, spec: ClipSpec, device: torch.device) -> None:
        self._model, self._spec, self._device = model, spec, device

    def keep(self, crops_SCTHW: Tensor) -> Tensor:
        return crops_SCTHW.permute(2, 0, 1, 3, 4).contiguous()

    @torch.no_grad()
    def logits(self, kept_BTCHW: Tensor) -> Tensor:
        bytes_BCTHW = kept_BTCHW.transpose(1, 2).to(self._device)
        return self._model(normalise(bytes_BCTHW, self._spec.mean, self._spec.std)).float().cpu()


class FromStemFeatures:
    """Keeps the features of a stem that sees one frame at a time: most of the work, and windows share many frames."""

    def __init__(self, model: VideoTransformer, stem: Lite0Stem, spec: ClipSpec, device: torch.device) -> None:
        self._model, self._stem, self._spec, self._device = model, stem, spec, device

    @torch.no_grad()
    def keep(self, crops_SCTHW: Tensor) -> Tensor:
        video_SCTHW = normalise(crops_SCTHW.to(self._device), self._spec.mean, self._spec.std)
        return self._stem.extract(video_SCTHW).transpose(0, 1).cpu()

    @torch.no_grad()
    def logits(self, kept_BTHWC: Tensor) -> Tensor:
        x_BTHWD = self._stem.embed(kept_BTHWC.to(self._device))
        return self._model.forward_head(self._model.encode(x_BTHWD)).float().cpu()


def frame_model(model: VideoModel, spec: ClipSpec, device: torch.device) -> FrameModel:
    """The division of a model that saves most work."""
    stem = getattr(model, "patch_embed", None)
    if isinstance(model, VideoTransformer) and isinstance(stem, Lite0Stem):
        return FromStemFeatures(model, stem, spec, device)
    return FromPixels(model, spec, device)
