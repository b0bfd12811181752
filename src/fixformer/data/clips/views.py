"""From a video to clips, the same for training, evaluation and prediction; all of it follows from the `ClipSpec`.

Legend: V views = K clips x S crops (clip-major), C colours, T frames, H height, W width.
"""

import numpy as np
import torch
from torch import Tensor

from fixformer.config import Backend, ClipSpec
from fixformer.config.clip import FrameRate
from fixformer.data.clips import sampling, transforms
from fixformer.data.clips.augment import Box, train_clip
from fixformer.data.clips.frames import FrameSource, open_frames
from fixformer.data.clips.indices import timeline_of, view_indices
from fixformer.data.video import Policy, VideoSource


def make_train_clip(frames: FrameSource, spec: ClipSpec, rng: np.random.Generator) -> tuple[Tensor, Box]:
    """One augmented clip of bytes and the box to erase after normalisation."""
    timeline, length = timeline_of(frames, spec)
    if spec.sampling == "dense":
        picks_T = sampling.dense_train(len(timeline), spec.frames, length, rng, spec.short_video)
    else:
        if spec.augment.span < 1:
            first, count = sampling.spanned(len(timeline), spec.augment.span, rng)
            timeline = timeline[first : first + count]
        picks_T = sampling.uniform_train(len(timeline), spec.frames, rng, spec.short_video)
    return train_clip(frames.get_frames(timeline[picks_T]), spec, rng)


def make_view_bytes(frames: FrameSource, spec: ClipSpec, clips: int, crops: int) -> Tensor:
    """`views_VCTHW` of bytes. Frames that clips share are read and scaled once."""
    indices_KT = view_indices(frames, spec, clips)
    wanted, place = np.unique(indices_KT, return_inverse=True)
    clip = transforms.from_frames(frames.get_frames(wanted))
    cropped = transforms.view_crops(clip, spec, crops)
    place_KT = torch.from_numpy(place.reshape(indices_KT.shape))
    return torch.stack([part[:, place_T] for place_T in place_KT for part in cropped])


def file_views(
    source: VideoSource,
    spec: ClipSpec,
    clips: int = 1,
    crops: int = 1,
    *,
    start: float | None = None,
    end: float | None = None,
    backend: Backend = "pyav",
    damaged: Policy = "strict",
    fps: FrameRate | None = None,
) -> Tensor:
    """`views_VCTHW` as the model takes them, of whatever `open_video` opens, from `start` to `end` seconds."""
    with open_frames(source, spec, start=start, end=end, backend=backend, damaged=damaged, fps=fps) as frames:
        return transforms.normalise(make_view_bytes(frames, spec, clips, crops), spec.mean, spec.std)
