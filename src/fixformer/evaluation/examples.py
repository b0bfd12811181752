"""Some videos with what the classifier makes of them, for a report.

Legend: V views, C colours, T frames, H height, W width.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fixformer.config import ClipSpec
from fixformer.data.clips.views import file_views
from fixformer.evaluation.charts import NAMES, new_figure, png
from fixformer.evaluation.predictor import Classifier, Prediction


@dataclass(frozen=True)
class Example:
    """A video, its true label where it is known, and its prediction. `frames_THWC` are what the model saw, as bytes."""

    prediction: Prediction
    truth: str | None
    frames_THWC: np.ndarray


def make_example(classifier: Classifier, file: str, truth: str | None = None) -> Example:
    return Example(classifier.predict(file), truth, seen_frames(file, classifier.info.clip))


def seen_frames(file: str, spec: ClipSpec) -> np.ndarray:
    """The middle clip, centre crop, as the model gets it, turned back into a picture."""
    view_CTHW = file_views(file, spec, 1, 1)[0]
    mean, std = (np.asarray(values, np.float32).reshape(3, 1, 1, 1) for values in (spec.mean, spec.std))
    picture = view_CTHW.numpy() * std + mean
    return np.clip(picture * 255 + 0.5, 0, 255).astype(np.uint8).transpose(1, 2, 3, 0)


def examples_picture(examples: list[Example]) -> bytes:
    """One row each: the frames in order, the three best guesses as bars."""
    frames = max(len(example.frames_THWC) for example in examples)
    figure, axes = new_figure(1.1 * (frames + 4), 1.5 * len(examples), len(examples), frames + 1, [1] * frames + [4])
    for row, example in zip(np.reshape(axes, (len(examples), -1)), examples, strict=True):
        for place, picture in zip(row, example.frames_THWC, strict=False):
            place.imshow(picture)
        for place in row[:-1]:
            place.axis("off")
        _bars(row[-1], example)
    return png(figure)


def _bars(axes: Any, example: Example) -> None:
    guesses = example.prediction.guesses[:3][::-1]
    colours = ["#2e8b57" if guess.label == example.truth else "#9aa7b5" for guess in guesses]
    axes.barh(range(len(guesses)), [guess.probability for guess in guesses], color=colours)
    for place, guess in enumerate(guesses):
        axes.text(0.02, place, f"{guess.label}  {guess.probability:.0%}", va="center", **NAMES)
    axes.set(xlim=(0, 1), xticks=[], yticks=[])
    if example.truth is not None:
        axes.set_title(f"true: {example.truth}", loc="left", **NAMES)
