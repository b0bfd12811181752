"""Which frames of a video make a clip: pure index arithmetic, no video, no decoding.

Uniform clips cut the video into as many segments as the clip has frames; dense clips take frames a stride apart. Both
come for training (drawn from a generator) and for testing (K fixed clips), and follow the released code to the index,
float32 rounding included (`tests/golden/sampling.json`).

Legend: n frames in the video, T frames in the clip, K test clips.
"""

import math

import numpy as np

from fixformer.errors import InputError, UserError

# Timestamps may be anything: an hour at the highest rate has fewer.
MOST_TICKS = 10_000_000
SHORT_POLICIES = ("repeat_last", "loop", "error")


class ShortVideoError(InputError):
    """A video without the listed part or, under the policy "error", with fewer frames than a clip needs."""


def segment_bounds(n: int, frames: int) -> np.ndarray:
    """First and last index, both inclusive, of every segment: `[T, 2]`. Neighbours share their boundary."""
    _check(n, frames)
    edges = np.round((n - 1) / frames * np.arange(frames + 1)).astype(np.int64)
    return np.stack([edges[:-1], edges[1:]], axis=1)


def uniform_train(n: int, frames: int, rng: np.random.Generator, short: str = "repeat_last") -> np.ndarray:
    """One index drawn from every segment."""
    bounds = segment_bounds(_stretched(n, frames, short), frames)
    return rng.integers(bounds[:, 0], bounds[:, 1], endpoint=True) % n


def uniform_test(n: int, frames: int, clips: int = 1, short: str = "repeat_last") -> np.ndarray:
    """`[K, T]`: the middle of every segment, then its start, its end, and ever finer fractions of it."""
    bounds = segment_bounds(_stretched(n, frames, short), frames)
    length = bounds[:, 1] - bounds[:, 0]
    places = [bounds[:, 0] + np.floor(length * view_fraction(k)).astype(np.int64) for k in range(_positive(clips))]
    return np.stack(places) % n


def view_fraction(view: int) -> float:
    """Where in a segment a test view looks: 1/2, 0, 1, 1/4, 3/4, 1/8, ... so that fewer views are always among more."""
    if view < 3:
        return (0.5, 0.0, 1.0)[view]
    level = (view - 1).bit_length()
    return (2 * (view - 1 - 2 ** (level - 1)) + 1) / 2**level


def dense_length(frames: int, stride: int, video_fps: float | None = None, fps: float | None = None) -> float:
    """Frames of the video that a clip covers; scaled by the video's rate where both rates are known."""
    length = float(frames * stride)
    return length if video_fps is None or fps is None else length * video_fps / fps


def dense_train(n: int, frames: int, length: float, rng: np.random.Generator, short: str = "repeat_last") -> np.ndarray:
    """A clip of the given length at a random start."""
    return dense_clip(n, frames, length, rng.uniform(0, max(n - length, 0)), short)


def dense_test(n: int, frames: int, length: float, clips: int = 1, short: str = "repeat_last") -> np.ndarray:
    """`[K, T]`: clip k of K begins at k/K of the spare frames, so the last one ends before the video does."""
    spare = max(n - length, 0)
    starts = [spare * k / clips for k in range(_positive(clips))]
    return np.stack([dense_clip(n, frames, length, start, short) for start in starts])


def dense_clip(n: int, frames: int, length: float, start: float, short: str = "repeat_last") -> np.ndarray:
    """`frames` indices from `start` over `length` frames of the video."""
    _check(n, frames)
    assert short in SHORT_POLICIES, short
    if short == "error" and length > n:
        raise ShortVideoError(f"a clip of {length:g} frames does not fit a video of {n}; set short_video or a stride.")
    line = linspace(start, start + length - 1, frames)
    if short == "loop":
        return line.astype(np.int64) % n
    return line.clip(0, n - 1).astype(np.int64)


def linspace(first: float, last: float, count: int) -> np.ndarray:
    """`torch.linspace`, which the released code uses, without torch: float32, computed from both ends."""
    begin, end = np.float32(first), np.float32(last)
    if count == 1:
        return np.array([begin])
    step = (end - begin) / np.float32(count - 1)
    i = np.arange(count)
    # a product and a sum that are rounded once, as by the processor's fused multiply-add
    line = np.where(i < count // 2, begin + np.float64(step) * i, end - np.float64(step) * (count - 1 - i))
    return line.astype(np.float32)


def spanned(n: int, share: float, rng: np.random.Generator) -> tuple[int, int]:
    """First frame and number of frames of a random part of the video that covers at least this share of it."""
    _check(n, 1)
    count = max(1, round(n * rng.uniform(share, 1)))
    return int(rng.integers(n - count, endpoint=True)), count


def evenly_spaced(n: int, count: int | None) -> np.ndarray:
    """At most `count` indices from first to last; all of them if None."""
    if count is None or n <= count:
        return np.arange(n)
    return np.round(np.linspace(0, n - 1, count)).astype(np.int64)


def clock_ticks(timestamps: np.ndarray, fps: float) -> np.ndarray:
    """The video resampled at a constant rate: for every tick, the index of the frame on show then."""
    if len(timestamps) < 2:
        return np.zeros(len(timestamps), np.int64)
    last_shown = timestamps[-1] - timestamps[-2]
    seconds = float(timestamps[-1] + last_shown)
    if seconds * fps > MOST_TICKS:
        raise InputError(f"a video of {seconds:g} s at fps={fps:g} has more than {MOST_TICKS} frames; lower fps.")
    count = max(1, round(seconds * fps))
    # the nanosecond absorbs rounding of the timestamps, and is too short to reach another frame
    return np.clip(np.searchsorted(timestamps, np.arange(count) / fps + 1e-9, side="right") - 1, 0, None)


def frames_between(timestamps: np.ndarray, start: float | None, end: float | None) -> tuple[int, int]:
    """First index and number of frames on show from `start` to `end` seconds, at least one."""
    _check(len(timestamps), 1)
    # the last frame is taken to last as long as the one before it; of a single frame nothing is known
    seconds = float(2 * timestamps[-1] - timestamps[-2]) if len(timestamps) > 1 else math.inf
    if problem := part_problem(start, end, seconds):
        raise ShortVideoError(f"{problem}; correct its start and end.")
    first = 0 if start is None else int(np.searchsorted(timestamps, start + 1e-9, side="right")) - 1
    first = min(max(first, 0), len(timestamps) - 1)
    stop = len(timestamps) if end is None else int(np.searchsorted(timestamps, end - 1e-9, side="left"))
    return first, max(stop - first, 1)


def part_problem(start: float | None, end: float | None, seconds: float) -> str | None:
    """Why a video of this duration has no part from `start` to `end`; None if it has."""
    begin, stop = 0.0 if start is None else start, math.inf if end is None else end
    # comparisons with NaN are false, so NaN is refused too
    if begin < seconds and stop > max(begin, 0.0):
        return None
    part = f"from {begin:g} s to {'its end' if end is None else f'{end:g} s'}"
    return f"the part {part} is empty or outside the video of {seconds:g} s"


def _stretched(n: int, frames: int, short: str) -> int:
    """The length whose segments are cut: under "loop" a short video is played until it is long enough."""
    assert short in SHORT_POLICIES, short
    if n >= frames or short == "repeat_last":
        return n
    if short == "error":
        raise ShortVideoError(
            f"a clip of {frames} frames does not fit a video of {n}; set short_video or fewer frames."
        )
    return n * -(-frames // max(n, 1))


def _check(n: int, frames: int) -> None:
    if n < 1:
        raise ShortVideoError("the video has no frames.")
    assert frames >= 1, frames


def _positive(clips: int) -> int:
    if clips < 1:
        raise UserError(f"clips={clips}: expected at least 1.")
    return clips
