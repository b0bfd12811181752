"""Charts of an evaluation and of a run, as PNG bytes. Needs the `plots` extra."""

from typing import Any

from fixformer.evaluation.baselines import Baselines
from fixformer.evaluation.result import Evaluation
from fixformer.runtime.figures import drawable, new_figure, png_bytes

Rows = list[dict[str, Any]]
# With more classes the names beside a confusion matrix would overlap.
MOST_NAMES = 64
NAME_SIZE = 7  # points, of class names


def confusion_chart(evaluation: Evaluation) -> bytes:
    """Row: the true class; column: the predicted one; shade: fraction of the row."""
    import numpy as np

    counts = np.array(evaluation.confusion, dtype=float)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    side = min(max(5.0, 0.28 * len(counts) + 3.5), 24)
    figure, axes = new_figure(size=(side, side), grid=False)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set(xlabel="predicted", ylabel="true", title="videos by class")
    if len(counts) <= MOST_NAMES:
        names = [drawable(label) for label in evaluation.labels]
        axes.set_xticks(range(len(counts)), names, rotation=90, fontsize=NAME_SIZE)
        axes.set_yticks(range(len(counts)), names, fontsize=NAME_SIZE)
    figure.colorbar(image, shrink=0.7, label="fraction of the true class")
    return png_bytes(figure)


def recall_chart(evaluation: Evaluation) -> bytes:
    """Recall of every class, worst first."""
    pairs = zip(evaluation.recall, evaluation.labels, strict=True)
    known = sorted((recall, name) for recall, name in pairs if recall is not None)
    figure, axes = new_figure(size=(7, min(max(2.0, 0.2 * len(known) + 1), 40)))
    axes.barh(range(len(known)), [recall for recall, _ in known], color="#3b6ea5")
    axes.set_yticks(range(len(known)), [drawable(name) for _, name in known], fontsize=NAME_SIZE)
    axes.set(xlim=(0, 1), xlabel="recall")
    axes.invert_yaxis()
    return png_bytes(figure)


def training_chart(rows: Rows) -> bytes | None:
    """Loss and learning rate, and accuracy where it was measured, over the epochs of a run."""
    steps = [row for row in rows if row["kind"] == "step" and _has_numbers(row, "epoch", "loss", "lr")]
    scores = [row for row in rows if row["kind"] == "eval" and _has_numbers(row, "epoch", "video_top1")]
    if not steps:
        return None
    figure, (left, right) = new_figure(columns=2, grid=False)
    left.plot([row["epoch"] for row in steps], [row["loss"] for row in steps], color="#3b6ea5", linewidth=1)
    left.set(xlabel="epoch", ylabel="training loss", ylim=(0, None))
    rate = left.twinx()
    rate.plot([row["epoch"] for row in steps], [row["lr"] for row in steps], color="#b0b0b0", linewidth=1)
    rate.set_ylabel("learning rate")
    right.plot([row["epoch"] for row in scores], [row["video_top1"] for row in scores], "o-", color="#a53b3b")
    right.set(xlabel="epoch", ylabel="validation video top-1", ylim=(0, 1))
    return png_bytes(figure)


def learning_chart(baselines: Baselines) -> bytes:
    """Accuracy of a linear classifier over the number of training videos; the band spans the draws."""
    points = baselines.curve
    videos = [point.videos for point in points]
    figure, axes = new_figure()
    axes.fill_between(videos, [point.low for point in points], [point.high for point in points], alpha=0.2)
    axes.plot(videos, [point.accuracy for point in points], "o-", color="#3b6ea5")
    axes.set_xscale("log", base=2)
    axes.set_xticks(videos, [str(number) for number in videos])
    axes.minorticks_off()
    title = f"linear classifier on {baselines.curve_of}"
    axes.set(xlabel="training videos", ylabel="accuracy", ylim=(0, 1), title=title)
    return png_bytes(figure)


def _has_numbers(row: dict[str, Any], *names: str) -> bool:
    """Whether a row of a log, which may have been damaged, can be drawn."""
    return all(isinstance(row.get(name), int | float) for name in names)
