"""The picture of a timeline: thumbnails, a band of coloured segments, and the certainty over time. Needs `plots`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fixformer.evaluation.timeline.subtitles import Cue
from fixformer.runtime.figures import distinct_colours, drawable, new_figure, patch, save_figure

# labels in the legend: those shown longest; all others are grey
MOST_NAMED = len(distinct_colours())
GREY = "#b8bfc6"
WIDTH = 12.0  # inches
PALEST = 0.35  # opacity of a segment of no certainty
LETTERS = 110  # of a label's size that fit into the strip
LEGEND_LETTERS = 190  # likewise of a row of the legend

Thumbnails = list[tuple[float, np.ndarray]]


def draw_strip(
    path: Path, segments: Sequence[Cue], seconds: float, curve_2N: Sequence[np.ndarray], thumbnails: Thumbnails
) -> None:
    """Write the strip. `curve_2N` are the times of the windows and the probability of the best class of each."""
    figure, (pictures, band, curve) = new_figure(3, 1, size=(WIDTH, 3.4), grid=False)
    pictures.get_gridspec().set_height_ratios([1.2, 0.6, 1.1])
    _draw_thumbnails(pictures, thumbnails, seconds)
    colours = colours_of(segments)
    for segment in segments:
        _draw_segment(band, curve, segment, colours.get(segment.label, GREY), seconds)
    curve.plot(*curve_2N, color="#30363d", linewidth=0.8)
    for panel in (pictures, band, curve):
        panel.set_xlim(0, seconds)
        panel.spines[["top", "right", "left"]].set_visible(False)
    for panel in (pictures, band):
        panel.set(xticks=[], yticks=[])
        panel.spines["bottom"].set_visible(False)
    curve.set(ylim=(0, 1.05), yticks=[0, 1], xlabel="seconds", ylabel="best class")
    handles, names = [patch(colour) for colour in colours.values()], [drawable(name) for name in colours]
    columns = max(1, min(5, LEGEND_LETTERS // max(len(name) + 6 for name in names)))
    figure.legend(handles, names, loc="outside lower center", ncols=columns, fontsize=8, frameon=False)
    save_figure(figure, path)


def colours_of(segments: Sequence[Cue]) -> dict[str, Any]:
    """A colour for each of the labels that are shown longest."""
    shown: dict[str, float] = {}
    for segment in segments:
        shown[segment.label] = shown.get(segment.label, 0) + segment.end - segment.start
    longest = sorted(shown, key=lambda label: -shown[label])[:MOST_NAMED]
    return dict(zip(longest, distinct_colours(), strict=False))


def _draw_thumbnails(panel: Any, thumbnails: Thumbnails, seconds: float) -> None:
    each = seconds / max(len(thumbnails), 1)
    for place, (_, picture) in enumerate(thumbnails):
        panel.imshow(picture, extent=(place * each, (place + 0.97) * each, 0, 1), aspect="auto")
    panel.set_ylim(0, 1)


def _draw_segment(band: Any, curve: Any, segment: Cue, colour: Any, seconds: float) -> None:
    width = segment.end - segment.start
    opacity = PALEST + (1 - PALEST) * segment.certainty
    band.broken_barh([(segment.start, width)], (0, 1), color=colour, alpha=opacity, edgecolor="white", linewidth=1)
    curve.axvspan(segment.start, segment.end, color=colour, alpha=0.25 * segment.certainty, linewidth=0)
    if len(segment.label) < LETTERS * width / seconds:
        middle = segment.start + width / 2
        band.text(middle, 0.5, drawable(segment.label), ha="center", va="center", fontsize=8)


def thumbnail_times(seconds: float, count: int) -> Sequence[float]:
    """The middles of `count` equal parts of a video."""
    return [(place + 0.5) * seconds / count for place in range(count)]
