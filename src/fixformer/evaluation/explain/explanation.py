"""What a model looked at in one clip.

Legend: T frames, H height, W width, C colours; lower-case h, w rows and columns of tokens.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


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
        frames_THWC: the clip's pictures, bytes.
        gamma_THW: heat in [0, 1] for each frame and pixel: the fixation ratio, stretched over the clip; where a model
            has no fixation, the attention roll-out or the occlusion (`heat_of` says which).
        table: one row per attention.
        notes: what could not be computed for this model, a sentence each.
    """

    file: str
    label: str
    probability: float
    frames_THWC: np.ndarray
    gamma_THW: np.ndarray
    heat_of: str
    table: list[LayerRow]
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        raise NotImplementedError

    def overlay_frames(self) -> list[bytes]:
        """Every frame with the heat over it, as PNG."""
        raise NotImplementedError

    def write(self, directory: str | Path) -> list[str]:
        """explanation.json, overlay.png (contact sheet), overlay.mp4, figure2.png; gives the names written."""
        raise NotImplementedError
