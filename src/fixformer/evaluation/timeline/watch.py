"""Making a timeline: windows of several lengths over an open video, their scores, and the segments."""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fixformer.config import ClipSpec, parse_views
from fixformer.data.clips.sampling import dense_length
from fixformer.data.video import Decoder
from fixformer.errors import InputError
from fixformer.evaluation.timeline.frame_models import FrameModel
from fixformer.evaluation.timeline.segments import LENGTHS, WindowScores, find_pieces, smoothed
from fixformer.evaluation.timeline.strip import thumbnail_times
from fixformer.evaluation.timeline.timeline import Segment, Timeline
from fixformer.evaluation.timeline.windows import Window, WindowFrames, plan_windows, seconds_of, window_starts
from fixformer.runtime.progress import Report

DEFAULT_WINDOW = 2.0  # seconds: of most actions that data sets of short clips show
STRIDE = 0.15  # of the window: on LSA64 as good as 0.05
SMOOTH = 0.5  # of the stride
BATCH_VIEWS = 8
THUMBNAILS = 12
# Two windows a frame apart hardly differ; and a day of video has fewer.
MOST_WINDOWS = 1_000_000


LEAST_SHARE = 1e-12  # of a class, so that it has a logarithm

Probabilities = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Watching:
    """How a video is watched. What is None follows from the model and the video."""

    window: float | None = None
    stride: float | None = None
    smooth: float | None = None
    views: str = "1x1"


@dataclass(frozen=True)
class Choice:
    """Seconds of the window, where they come from, and the lengths of all windows."""

    window: float
    source: str
    lengths: list[float]


def choose_window(
    given: float | None, spec: ClipSpec, fps: float | None, typical: float | None, seconds: float
) -> Choice:
    """The window: as given, the length of a dense clip, that of the training videos, or the default.

    A dense clip covers the same time wherever it begins, so for such a model there is one length only.
    """
    dense = None
    if spec.sampling == "dense":
        in_seconds = spec.clock == "seconds"
        rate = spec.fps if in_seconds else fps
        length = dense_length(spec.frames, spec.stride, *(() if in_seconds else (fps, spec.fps)))
        dense = length / rate if rate else None
    candidates = (
        (given, "given"),
        (dense, "the model's clip"),
        (typical, "the median training video"),
        (DEFAULT_WINDOW, "default"),
    )
    chosen, source = next((value, source) for value, source in candidates if value is not None)
    window = min(chosen, seconds)
    shares = (1.0,) if spec.sampling == "dense" else LENGTHS
    return Choice(window, source, sorted({min(share * window, seconds) for share in (*shares, 1.0)}))


def watch(
    name: str,
    decoder: Decoder,
    spec: ClipSpec,
    model: FrameModel,
    labels: list[str],
    how: Watching,
    probabilities: Probabilities,
    *,
    typical: float | None = None,
    progress: Report | None = None,
) -> Timeline:
    """The timeline of an open video.

    Args:
        name: of the video.
        probabilities: of the classes `[B, K]`, from the logits of views `[B, V, K]`.
        typical: length of the training videos, in seconds, if known.
    """
    times_F = decoder.timestamps
    seconds = seconds_of(times_F)
    choice = choose_window(how.window, spec, decoder.info.fps, typical, seconds)
    stride = how.stride or STRIDE * choice.window
    smooth = SMOOTH * stride if how.smooth is None else how.smooth
    if len(choice.lengths) * seconds / stride > MOST_WINDOWS:
        raise InputError(f"stride={stride:g} s: too many windows in {seconds:g} s of video; use a longer stride.")
    total = sum(len(window_starts(seconds, length, stride)) for length in choice.lengths)
    clips, crops = parse_views(how.views)
    plans = [plan_windows(decoder, times_F, spec, length, stride, clips) for length in choice.lengths]
    windows = heapq.merge(*plans, key=lambda window: window.first)
    frames = WindowFrames(decoder, times_F, spec, crops, model, thumbnail_times(seconds, THUMBNAILS))
    found: dict[float, list[tuple[float, np.ndarray]]] = {length: [] for length in choice.lengths}
    for done, (window, logp_K) in enumerate(_score(frames.of_each(windows), model, probabilities), 1):
        found[window.length].append((window.middle, logp_K))
        if progress:
            progress(done, total)
    scores = [WindowScores(length, *map(np.stack, zip(*rows, strict=True))) for length, rows in found.items()]
    main = next(part for part in scores if part.length == choice.window)
    pieces = find_pieces([smoothed(part, stride, smooth) for part in scores], choice.window, seconds)
    segments = [Segment(piece.start, piece.end, labels[piece.label], piece.certainty) for piece in pieces]
    return Timeline(
        file=name,
        seconds=seconds,
        window=choice.window,
        window_from=choice.source,
        stride=stride,
        smooth=smooth,
        views=how.views,
        labels=labels,
        times=main.times_N,
        scores_NK=np.exp(main.logp_NK),
        segments=segments,
        thumbnails=frames.thumbnails,
    )


def _score(
    windows: Iterator[tuple[Window, Tensor]], model: FrameModel, probabilities: Probabilities
) -> Iterator[tuple[Window, np.ndarray]]:
    """Log-probabilities of each window, computed for several at a time."""
    batch: list[tuple[Window, Tensor]] = []
    for window, kept_VT in windows:
        batch.append((window, kept_VT))
        if len(batch) * len(kept_VT) >= BATCH_VIEWS:
            yield from _score_batch(batch, model, probabilities)
            batch = []
    if batch:
        yield from _score_batch(batch, model, probabilities)


def _score_batch(
    batch: list[tuple[Window, Tensor]], model: FrameModel, probabilities: Probabilities
) -> Iterator[tuple[Window, np.ndarray]]:
    kept_BVT = torch.stack([kept_VT for _, kept_VT in batch])
    logits_BVK = model.logits(kept_BVT.flatten(0, 1)).unflatten(0, kept_BVT.shape[:2])
    for (window, _), share_K in zip(batch, probabilities(logits_BVK).numpy(), strict=True):
        yield window, np.log(np.maximum(share_K, LEAST_SHARE))
