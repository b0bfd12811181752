"""The interface of all models, so that one training loop, one evaluation and one test work with each of them.

Shapes: B batch, C channels, T frames, H height, W width.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from fixformer.config.clip import MOST_PIXELS, FrameCount
from fixformer.config.schema import coerce, int_between
from fixformer.errors import InputError


class VideoModel(nn.Module):
    """A classifier of clips: `video_BCTHW` in, logits `[B, num_classes]` out.

    Subclasses set the sizes below and implement `forward_features`, `forward_head` and `reset_classifier`.
    `create_model(model.name, **model.settings)` always builds a model of the same sizes.
    """

    num_classes: int
    num_features: int
    num_frames: int
    image_size: int
    min_size: int = 1
    name: str = ""
    settings: dict[str, Any]

    def forward_features(self, video_BCTHW: Tensor) -> Tensor:
        raise NotImplementedError

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        raise NotImplementedError

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the last layer by a fresh one for `num_classes` classes."""
        raise NotImplementedError

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute activations in the backward pass to save memory; gradients are identical."""
        raise NotImplementedError

    def no_weight_decay(self) -> set[str]:
        """Names of parameters that an optimiser should not decay, beyond biases and norms."""
        return set()

    def set_input_size(self, num_frames: int | None = None, image_size: int | None = None) -> None:
        """Change the clip size the model is made for. This default is for models that run at any size."""
        frames = self.num_frames if num_frames is None else num_frames
        size = self.image_size if image_size is None else image_size
        self.check_input_size(frames, size)
        self.num_frames, self.image_size = frames, size
        self.remember(num_frames=frames, image_size=size)

    def check_input_size(self, num_frames: int, image_size: int) -> None:
        """Raise a `UserError` for a clip size the model cannot have, before anything is changed."""
        coerce(num_frames, FrameCount, "num_frames")
        coerce(image_size, Annotated[int, int_between(self.min_size, MOST_PIXELS)], "image_size")

    def remember(self, **sizes: Any) -> None:
        """Update `settings` after a size has changed; a model not built by `create_model` has none."""
        if hasattr(self, "settings"):
            self.settings = {**self.settings, **sizes}

    def adapt_image_weights(self, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights this model takes from an image ViT, which come under the names of our own Transformer."""
        return dict(named)

    def forward(self, video_BCTHW: Tensor) -> Tensor:
        check_video(video_BCTHW, min_size=self.min_size)
        return self.forward_head(self.forward_features(video_BCTHW))


def check_video(video_BCTHW: Tensor, min_size: int = 1, channels: int = 3) -> None:
    """Raise an `InputError` for what cannot be a clip. Values are checked except when compiling, shapes always."""
    shape = tuple(video_BCTHW.shape)
    if video_BCTHW.ndim != 5:
        hint = (
            "add a batch axis with video[None]" if video_BCTHW.ndim == 4 else "pass [batch, 3, frames, height, width]"
        )
        raise InputError(f"expected 5 axes [B, C, T, H, W], got {video_BCTHW.ndim} in shape {shape}; {hint}.")
    _, C, T, H, W = shape
    if C != channels:
        hint = "permute it to [B, C, T, H, W]" if channels in (shape[2], shape[-1]) else "convert it to RGB"
        raise InputError(f"expected {channels} channels on axis 1 of the video, got {C} in shape {shape}; {hint}.")
    if not video_BCTHW.is_floating_point():
        raise InputError(f"expected a normalised float video, got {video_BCTHW.dtype}; scale and normalise it first.")
    if T < 1 or min(H, W) < min_size:
        raise InputError(
            f"{T} frames of {H}x{W} pixels: expected at least 1 frame of {min_size}x{min_size}; use larger frames."
        )
    if torch.compiler.is_compiling() or video_BCTHW.is_meta:
        return
    # One pass over the video; only if the sum is not finite is it searched, since finite values may overflow in a sum.
    if torch.isfinite(video_BCTHW.detach().sum(dtype=torch.float32)):
        return
    bad = ~torch.isfinite(video_BCTHW)
    if bad.any():
        clip, _, frame = bad.nonzero()[0, :3].tolist()
        raise InputError(
            f"the video has {int(bad.sum())} NaN or infinite values, the first in clip {clip}, frame {frame}; "
            "check the file and the normalisation."
        )
