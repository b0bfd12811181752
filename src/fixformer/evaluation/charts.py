"""Pictures of an evaluation and of a run, as PNG bytes. Needs the `plots` extra."""

import io
import warnings
from importlib.util import find_spec
from typing import Any

from fixformer.evaluation.result import Evaluation

Rows = list[dict[str, Any]]
MOST_NAMES = 64
# Of classes: a dollar sign in one is no formula.
NAMES: dict[str, Any] = {"fontsize": 7, "parse_math": False}


def can_draw() -> bool:
    return find_spec("matplotlib") is not None


def confusion_picture(evaluation: Evaluation) -> bytes:
    """Row: the true class; column: the predicted one; shade: share of the row."""
    import numpy as np

    counts = np.array(evaluation.confusion, dtype=float)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    side = min(max(5.0, 0.28 * len(counts) + 3.5), 24)
    figure, axes = new_figure(side, side)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set(xlabel="predicted", ylabel="true", title="videos by class")
    if len(counts) <= MOST_NAMES:
        axes.set_xticks(range(len(counts)), evaluation.labels, rotation=90, **NAMES)
        axes.set_yticks(range(len(counts)), evaluation.labels, **NAMES)
    figure.colorbar(image, shrink=0.7, label="share of the true class")
    return png(figure)


def recall_picture(evaluation: Evaluation) -> bytes:
    """Recognised share of every class, worst first."""
    pairs = zip(evaluation.recall, evaluation.labels, strict=True)
    known = sorted((recall, name) for recall, name in pairs if recall is not None)
    figure, axes = new_figure(7, min(max(2.0, 0.2 * len(known) + 1), 40))
    axes.barh(range(len(known)), [recall for recall, _ in known], color="#3b6ea5")
    axes.set_yticks(range(len(known)), [name for _, name in known], **NAMES)
    axes.set(xlim=(0, 1), xlabel="recognised share of the class's videos")
    axes.invert_yaxis()
    return png(figure)


def curves_picture(rows: Rows) -> bytes | None:
    """Loss and learning rate, and accuracy where it was measured, over the epochs of a run."""
    steps = [row for row in rows if row["kind"] == "step"]
    scores = [row for row in rows if row["kind"] == "eval"]
    if not steps:
        return None
    figure, (left, right) = new_figure(10, 3.6, columns=2)
    left.plot([row["epoch"] for row in steps], [row["loss"] for row in steps], color="#3b6ea5", linewidth=1)
    left.set(xlabel="epoch", ylabel="training loss", ylim=(0, None))
    rate = left.twinx()
    rate.plot([row["epoch"] for row in steps], [row["lr"] for row in steps], color="#b0b0b0", linewidth=1)
    rate.set_ylabel("learning rate")
    right.plot([row["epoch"] for row in scores], [row["video_top1"] for row in scores], "o-", color="#a53b3b")
    right.set(xlabel="epoch", ylabel="validation video top-1", ylim=(0, 1))
    return png(figure)


def new_figure(
    width: float, height: float, rows: int = 1, columns: int = 1, ratios: list[int] | None = None
) -> tuple[Any, Any]:
    """A figure and its axes, without pyplot, which would choose a window system and keep every figure alive."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, width_ratios=ratios)


def png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a name in another script is drawn as boxes
        figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
