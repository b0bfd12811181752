"""What a long video shows when: scores of overlapping windows, and the segments they are merged into.

Legend: N windows, K classes.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Segment:
    """A part of a video with one label, in seconds; `certainty` is the mean probability of the label."""

    start: float
    end: float
    label: str
    certainty: float


@dataclass(frozen=True)
class Timeline:
    """The result of `Classifier.timeline`.

    Args:
        file: what was read.
        seconds: length of the video.
        window, stride: of the windows, in seconds, as used.
        smooth: standard deviation of the smoothing, in seconds.
        times: the middle of every window, in seconds.
        scores_NK: class probabilities of every window, before smoothing: what `predict(start=, end=)` gives.
        segments: one after the other, without gaps.
    """

    file: str
    seconds: float
    window: float
    stride: float
    smooth: float
    labels: list[str]
    times: np.ndarray
    scores_NK: np.ndarray
    segments: list[Segment]

    def to_json(self) -> dict[str, Any]:
        raise NotImplementedError

    def write(self, directory: str | Path) -> list[str]:
        """timeline.json, segments.csv, scores.csv, timeline.png, timeline.vtt, timeline.srt; gives their names."""
        raise NotImplementedError
