"""Which frames of a video the clips of a spec take. No torch here: `fixformer predict model.onnx` runs without it.

Legend: K test clips, T frames in the clip.
"""

import numpy as np

from fixformer.config import ClipSpec
from fixformer.data.clips import sampling
from fixformer.data.clips.frames import FrameSource


def view_indices(frames: FrameSource, spec: ClipSpec, clips: int) -> np.ndarray:
    """`[K, T]`: the frames of the test clips."""
    timeline, length = timeline_of(frames, spec)
    if spec.sampling == "dense":
        return timeline[sampling.dense_test(len(timeline), spec.frames, length, clips, spec.short_video)]
    return timeline[sampling.uniform_test(len(timeline), spec.frames, clips, spec.short_video)]


def timeline_of(frames: FrameSource, spec: ClipSpec) -> tuple[np.ndarray, float]:
    """Frame numbers in order of time, and how many of them a dense clip covers.

    With the clock "frames" the numbers are as stored, and the length is scaled by the video's rate; with "seconds" the
    video is resampled at the spec's rate first.
    """
    if spec.clock == "frames":
        return np.arange(len(frames)), sampling.dense_length(spec.frames, spec.stride, frames.fps, spec.fps)
    assert spec.fps is not None
    return sampling.clock_ticks(frames.timestamps, spec.fps), sampling.dense_length(spec.frames, spec.stride)
