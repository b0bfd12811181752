"""A few videos with their predictions, as one image for a report.

Legend: V views, C colours, T frames, H height, W width.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fixformer.config import ClipSpec
from fixformer.data.clips.views import file_views
from fixformer.evaluation.charts import NAME_SIZE
from fixformer.evaluation.predictor import Classifier, Prediction
from fixformer.runtime.figures import drawable, new_figure, png_bytes


@dataclass(frozen=True)
class Example:
    """A video's prediction, its true label if known, and `frames_THWC`: the input of the model as uint8 images."""

    prediction: Prediction
    truth: str | None
    frames_THWC: np.ndarray


def make_example(classifier: Classifier, file: str, truth: str | None = None) -> Example:
    return Example(classifier.predict(file), truth, model_input(file, classifier.info.config.clip))


def model_input(file: str, spec: ClipSpec) -> np.ndarray:
    """The middle clip, centre crop, as the model gets it, with the normalisation undone: uint8 `[T, H, W, C]`."""
    view_CTHW = file_views(file, spec, 1, 1)[0]
    mean, std = (np.asarray(values, np.float32).reshape(3, 1, 1, 1) for values in (spec.mean, spec.std))
    image_CTHW = view_CTHW.numpy() * std + mean
    return np.clip(image_CTHW * 255 + 0.5, 0, 255).astype(np.uint8).transpose(1, 2, 3, 0)


def examples_chart(examples: list[Example]) -> bytes:
    """One row per example: its frames in order, and the three best guesses as bars."""
    frames, rows = max(len(example.frames_THWC) for example in examples), len(examples)
    size, ratios = (1.1 * (frames + 4), 1.5 * rows), [1] * frames + [4]
    figure, axes = new_figure(rows, frames + 1, size=size, width_ratios=ratios, grid=False)
    for row, example in zip(np.reshape(axes, (rows, -1)), examples, strict=True):
        for panel, image in zip(row, example.frames_THWC, strict=False):
            panel.imshow(image)
        for panel in row[:-1]:
            panel.axis("off")
        _draw_guesses(row[-1], example)
    return png_bytes(figure)


def _draw_guesses(axes: Any, example: Example) -> None:
    guesses = example.prediction.guesses[:3][::-1]
    colours = ["#2e8b57" if guess.label == example.truth else "#9aa7b5" for guess in guesses]
    axes.barh(range(len(guesses)), [guess.probability for guess in guesses], color=colours)
    for row, guess in enumerate(guesses):
        axes.text(0.02, row, f"{drawable(guess.label)}  {guess.probability:.0%}", va="center", fontsize=NAME_SIZE)
    axes.set(xlim=(0, 1), xticks=[], yticks=[])
    if example.truth is not None:
        axes.set_title(f"true: {drawable(example.truth)}", loc="left", fontsize=NAME_SIZE)
