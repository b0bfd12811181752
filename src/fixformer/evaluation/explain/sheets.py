"""The contact sheet of an explanation, and the paper's Fig. 2. Needs `plots`.

Legend: T frames, H height, W width, C colours.
"""

from pathlib import Path
from typing import Any

import numpy as np

from fixformer.data.clips.sampling import evenly_spaced
from fixformer.evaluation.explain.figure_two import FigureTwo
from fixformer.evaluation.explain.heat import overlay
from fixformer.runtime.figures import new_figure, save_figure

MOST_COLUMNS = 8
INCHES = 1.5  # of a picture in the sheet


def draw_sheet(path: Path, frames_THWC: np.ndarray, heats: dict[str, np.ndarray]) -> None:
    """Frames from left to right: as they are, and with every heat over them."""
    chosen = evenly_spaced(len(frames_THWC), MOST_COLUMNS)
    rows = {"clip": frames_THWC} | {name: overlay(frames_THWC, heat) for name, heat in heats.items()}
    size = (INCHES * len(chosen) + 0.4, INCHES * len(rows) + 0.3)
    figure, axes = new_figure(len(rows), len(chosen), size=size, grid=False)
    for panels, (name, pictures) in zip(np.reshape(axes, (len(rows), -1)), rows.items(), strict=True):
        for panel, number in zip(panels, chosen, strict=True):
            panel.imshow(pictures[number])
            panel.set(xticks=[], yticks=[])
            panel.spines[:].set_visible(False)
        panels[0].set_ylabel(name, fontsize=9)
    for panel, number in zip(np.reshape(axes, (len(rows), -1))[0], chosen, strict=True):
        panel.set_title(f"frame {number}", fontsize=8)
    save_figure(figure, path)


def draw_figure_two(path: Path, found: FigureTwo, frames_THWC: np.ndarray) -> None:
    """Above the matrices, brighter is larger; below what the marked query attends to, if its sequence is a frame."""
    is_frame = len(found.grid) == 2
    columns = len(found.panels)
    figure, axes = new_figure(1 + is_frame, columns, size=(2.9 * columns, 3.2 * (1 + is_frame)), grid=False)
    axes = np.reshape(axes, (-1, columns))
    for letter, place, panel in zip("abcdefgh", range(columns), found.panels, strict=False):
        _draw_matrix(axes[0, place], panel.matrix_NN)
        numbers = panel.concentration
        axes[0, place].set_title(f"({letter}) {panel.title}", fontsize=10)
        text = f"entropy {numbers.entropy:.3f}, top tenth {numbers.top_tenth:.1%}\nto softmax {numbers.to_softmax:.3f}"
        axes[0, place].set_xlabel(text, fontsize=8)
        if is_frame:
            picture = frames_THWC[min(found.sequence, len(frames_THWC) - 1)]
            _draw_query(axes[1, place], panel.matrix_NN[found.query], found, picture)
    figure.suptitle(f"layer {found.layer}, mean over heads", fontsize=9)
    save_figure(figure, path)


def _draw_matrix(panel: Any, matrix_NN: np.ndarray) -> None:
    # one weight may be many times larger than all others, which would then all be black
    panel.imshow(matrix_NN, cmap="inferno", vmin=0, vmax=np.quantile(matrix_NN, 0.995))
    panel.set(xticks=[], yticks=[], ylabel="")


def _draw_query(panel: Any, row_N: np.ndarray, found: FigureTwo, picture_HWC: np.ndarray) -> None:
    height, width = found.grid
    row, column = divmod(found.query, width)
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    panel.imshow(picture_HWC.mean(-1), cmap="gray", extent=extent)
    panel.imshow(row_N.reshape(found.grid), cmap="inferno", alpha=0.6, extent=extent, interpolation="bilinear")
    panel.plot(column, row, "s", markersize=9, markerfacecolor="none", markeredgecolor="cyan")
    panel.set(xticks=[], yticks=[])
