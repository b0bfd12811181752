"""What a model looked at in one clip.

Legend: T frames, H height, W width, C colours.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fixformer.evaluation.explain.figure_two import FigureTwo
from fixformer.evaluation.explain.heat import overlay
from fixformer.evaluation.explain.sheets import draw_figure_two, draw_sheet
from fixformer.runtime.figures import can_draw, optional
from fixformer.runtime.files import check_writable, make_output, write_json
from fixformer.runtime.pictures import encode_png, write_mp4

MP4_FPS = 4  # slow enough to see where the heat goes


@dataclass(frozen=True)
class LayerRow:
    """How concentrated one attention is, averaged over its queries, heads and sequences.

    Args:
        layer: block and axis, such as "3.space".
        tokens: that attend to each other.
        entropy: of the weights, as a share of the largest possible: 1 is uniform.
        top_tenth: mass of the largest tenth of the weights.
        to_softmax: distance (total variation, 0 to 1) to softmax attention of the same queries and keys.
        gamma: mean fixation ratio; None without fixation.
    """

    layer: str
    tokens: int
    entropy: float
    top_tenth: float
    to_softmax: float
    gamma: float | None


@dataclass(frozen=True)
class Explanation:
    """The result of `Classifier.explain`, of one clip: the frames that `predict(views="1x1")` scores.

    Args:
        label, probability: the best guess for this clip, which is what is explained.
        frames_THWC: the clip's pictures, bytes.
        gamma_THW: heat in [0, 1] for each frame and pixel: the fixation ratio, stretched over the clip; where a model
            has none, the roll-out or the occlusion (`heat_of` says which).
        heats: all heats that were computed, likewise, by name: fixation, roll-out, occlusion.
        raw_range: least and largest value of each heat before it was stretched.
        table: one row per attention.
        correlations: Spearman's, of each heat with the occlusion over its cells; None if one of them is constant.
        occlusion_cells: by how much the label's log-probability falls when a cell is covered; None if not asked for.
        matrices: of the layers asked for, `[sequences, heads, tokens, tokens]`.
        figure: the paper's Fig. 2 on this clip; None for models without our attention.
        notes: what could not be computed for this model, a sentence each.
    """

    file: str
    label: str
    probability: float
    frames_THWC: np.ndarray
    gamma_THW: np.ndarray
    heat_of: str
    heats: dict[str, np.ndarray]
    raw_range: dict[str, tuple[float, float]]
    table: list[LayerRow]
    correlations: dict[str, float | None]
    occlusion_cells: np.ndarray | None = None
    matrices: dict[str, Tensor] = field(default_factory=dict, repr=False)
    figure: FigureTwo | None = None
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """All numbers, without pictures and matrices."""
        cells = None if self.occlusion_cells is None else self.occlusion_cells.tolist()
        return {
            "file": self.file,
            "label": self.label,
            "probability": self.probability,
            "frames": len(self.frames_THWC),
            "heat_of": self.heat_of,
            "raw_range": self.raw_range,
            "layers": [asdict(row) for row in self.table],
            "rank_correlation_with_occlusion": self.correlations,
            "occlusion": cells,
            "figure_2": self._figure_numbers(),
            "notes": self.notes,
        }

    def _figure_numbers(self) -> dict[str, Any] | None:
        if self.figure is None:
            return None
        panels = [{"attention": panel.title, **asdict(panel.concentration)} for panel in self.figure.panels]
        where = {"layer": self.figure.layer, "sequence": self.figure.sequence, "query": self.figure.query}
        return {**where, "grid": list(self.figure.grid), "panels": panels}

    def overlay_frames(self, heat: str | None = None) -> list[bytes]:
        """Every frame with the heat over it, as PNG; `heat` is a name in `heats`."""
        chosen = self.gamma_THW if heat is None else self.heats[heat]
        return [encode_png(picture) for picture in overlay(self.frames_THWC, chosen)]

    def write(self, directory: str | Path) -> list[str]:
        """explanation.json, overlay.mp4, and overlay.png (contact sheet) and figure2.png; gives their names.

        The two pictures need the extra `plots` and are left out without it.
        """
        check_writable(directory)
        make_output(directory, "explain")
        folder = Path(directory)
        write_json(folder / "explanation.json", self.to_json())
        write_mp4(folder / "overlay.mp4", overlay(self.frames_THWC, self.gamma_THW), MP4_FPS)
        written = ["explanation.json", "overlay.mp4"]
        if self.matrices:
            self._write_matrices(folder / "attention.safetensors")
            written.append("attention.safetensors")
        if can_draw():
            with optional("overlay.png"):
                draw_sheet(folder / "overlay.png", self.frames_THWC, self.heats)
                written.append("overlay.png")
        if can_draw() and self.figure is not None:
            with optional("figure2.png"):
                draw_figure_two(folder / "figure2.png", self.figure, self.frames_THWC)
                written.append("figure2.png")
        return written

    def _write_matrices(self, path: Path) -> None:
        from safetensors.torch import save_file

        from fixformer.runtime.files import replacing

        with replacing(path) as temporary:
            save_file({name: matrix.contiguous() for name, matrix in self.matrices.items()}, str(temporary))
