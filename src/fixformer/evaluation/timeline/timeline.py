"""What a long video shows when: scores of overlapping windows, and the segments they are merged into.

Legend: N windows, K classes.
"""

import csv
import io
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fixformer.evaluation.timeline.strip import draw_strip
from fixformer.evaluation.timeline.subtitles import srt, vtt
from fixformer.runtime.figures import can_draw, optional
from fixformer.runtime.files import check_writable, make_output, write_json, write_text


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
        window, stride, smooth: in seconds, as used; `window_from` says where the window's length comes from.
        views: of each window.
        times: the middle of every window, in seconds.
        scores_NK: class probabilities of every window, before smoothing: what `predict(start=, end=)` gives.
        segments: one after the other, without gaps.
        thumbnails: pictures from along the video, with their seconds.
    """

    file: str
    seconds: float
    window: float
    window_from: str
    stride: float
    smooth: float
    views: str
    labels: list[str]
    times: np.ndarray
    scores_NK: np.ndarray
    segments: list[Segment]
    thumbnails: list[tuple[float, np.ndarray]] = field(default_factory=list, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Everything but the scores of all classes (scores.csv) and the pictures."""
        names = ("file", "seconds", "window", "window_from", "stride", "smooth", "views")
        settings = {name: getattr(self, name) for name in names}
        best_N = self.scores_NK.argmax(-1)
        rows = zip(self.times.tolist(), best_N.tolist(), self.scores_NK.max(-1).tolist(), strict=True)
        windows = [{"time": time, "label": self.labels[k], "probability": share} for time, k, share in rows]
        return {**settings, "segments": [asdict(segment) for segment in self.segments], "windows": windows}

    def write(self, directory: str | Path) -> list[str]:
        """timeline.json, segments.csv, scores.csv, timeline.png, timeline.vtt, timeline.srt; gives their names.

        The picture needs the extra `plots` and is left out without it.
        """
        check_writable(directory)
        make_output(directory, "timeline")
        folder = Path(directory)
        write_json(folder / "timeline.json", self.to_json())
        texts = {
            "segments.csv": self._segments_csv(),
            "scores.csv": self._scores_csv(),
            "timeline.vtt": vtt(self.segments),
            "timeline.srt": srt(self.segments),
        }
        for name, text in texts.items():
            write_text(folder / name, text)
        written = ["timeline.json", *texts]
        if can_draw():
            with optional("timeline.png"):
                curve = (self.times, self.scores_NK.max(-1))
                draw_strip(folder / "timeline.png", self.segments, self.seconds, curve, self.thumbnails)
                written.append("timeline.png")
        return written

    def _segments_csv(self) -> str:
        rows = [(f"{s.start:.3f}", f"{s.end:.3f}", s.label, f"{s.certainty:.4f}") for s in self.segments]
        return _csv([("start", "end", "label", "certainty"), *rows])

    def _scores_csv(self) -> str:
        """A row per window, a column per class."""
        half = min(self.window, self.seconds) / 2
        rows = zip(self.times.tolist(), self.scores_NK.tolist(), strict=True)
        lines = [(f"{t - half:.3f}", f"{t + half:.3f}", *(f"{share:.4g}" for share in row)) for t, row in rows]
        return _csv([("start", "end", *self.labels), *lines])


def _csv(rows: list[tuple[str, ...]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
