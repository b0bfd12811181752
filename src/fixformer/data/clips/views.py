"""From a video to clips, the same for training, evaluation and prediction; all of it follows from the `ClipSpec`.

Legend: V views = K clips × S crops (clip-major), C colours, T frames, H height, W width.
"""

import numpy as np
import torch
from torch import Tensor

from fixformer.config import ClipSpec
from fixformer.data.clips import sampling, transforms
from fixformer.data.clips.augment import Box, train_clip
from fixformer.data.clips.frames import FrameSource, open_frames, picked
from fixformer.data.video import Decoder, Policy, Source


def train_indices(frames: FrameSource, spec: ClipSpec, rng: np.random.Generator) -> np.ndarray:
    """The frames of one training clip."""
    timeline = _timeline(frames, spec)
    if spec.sampling == "dense":
        return timeline[
            sampling.dense_train(len(timeline), spec.frames, _dense_length(frames, spec), rng, spec.short_video)
        ]
    if spec.augment.span < 1:
        first, count = sampling.spanned(len(timeline), spec.augment.span, rng)
        timeline = timeline[first : first + count]
    return timeline[sampling.uniform_train(len(timeline), spec.frames, rng, spec.short_video)]


def view_indices(frames: FrameSource, spec: ClipSpec, clips: int) -> np.ndarray:
    """`[K, T]`: the frames of the test clips."""
    timeline = _timeline(frames, spec)
    if spec.sampling == "dense":
        length = _dense_length(frames, spec)
        return timeline[sampling.dense_test(len(timeline), spec.frames, length, clips, spec.short_video)]
    return timeline[sampling.uniform_test(len(timeline), spec.frames, clips, spec.short_video)]


def make_train_clip(frames: FrameSource, spec: ClipSpec, rng: np.random.Generator) -> tuple[Tensor, Box]:
    """One augmented clip of bytes and the box to erase after normalisation."""
    return train_clip(frames.get_frames(train_indices(frames, spec, rng)), spec, rng)


def make_view_bytes(frames: FrameSource, spec: ClipSpec, clips: int, crops: int) -> Tensor:
    """`views_VCTHW` of bytes. Frames that clips share are read and scaled once."""
    indices_KT = view_indices(frames, spec, clips)
    wanted, place = np.unique(indices_KT, return_inverse=True)
    clip = transforms.from_frames(frames.get_frames(wanted))
    cropped = transforms.view_crops(clip, spec, crops)
    place_KT = torch.from_numpy(place.reshape(indices_KT.shape))
    return torch.stack([part[:, place_T] for place_T in place_KT for part in cropped])


def make_views(frames: FrameSource, spec: ClipSpec, clips: int = 1, crops: int = 1) -> Tensor:
    """`views_VCTHW` as the model takes them."""
    return transforms.normalise(make_view_bytes(frames, spec, clips, crops), spec.mean, spec.std)


def decoder_views(decoder: Decoder, spec: ClipSpec, clips: int = 1, crops: int = 1) -> Tensor:
    """`make_views` of an open decoder (opened with `short_side=spec.keep_short_side`)."""
    return make_views(picked(decoder, spec), spec, clips, crops)


def file_views(
    source: Source,
    spec: ClipSpec,
    clips: int = 1,
    crops: int = 1,
    *,
    start: float | None = None,
    end: float | None = None,
    backend: str = "pyav",
    damaged: Policy = "strict",
) -> Tensor:
    """`make_views` of a file, its bytes or an open file, or of the part of it from `start` to `end` seconds."""
    with open_frames(source, spec, start=start, end=end, backend=backend, damaged=damaged) as frames:
        return make_views(frames, spec, clips, crops)


def _timeline(frames: FrameSource, spec: ClipSpec) -> np.ndarray:
    """Frame numbers in the order of time: as stored, or resampled at the spec's rate."""
    if spec.clock == "frames":
        return np.arange(len(frames))
    assert spec.fps is not None
    return sampling.clock_ticks(frames.timestamps, spec.fps)


def _dense_length(frames: FrameSource, spec: ClipSpec) -> float:
    by_frame = spec.clock == "frames"
    return sampling.dense_length(
        spec.frames, spec.stride, frames.fps if by_frame else None, spec.fps if by_frame else None
    )
