"""Prediction: a checkpoint as a `Classifier` of video files, with the preprocessing it was trained with.

Legend: V views, K classes, C colours, T frames, H height, W width, D width of the features.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fixformer.config import EvalConfig, parse_views
from fixformer.data.clips.sampling import ShortVideoError
from fixformer.data.clips.views import file_views
from fixformer.data.video import DecodeError, Source
from fixformer.errors import UserError
from fixformer.evaluation.evaluate import override_eval
from fixformer.evaluation.scores import combine, probabilities, view_logits
from fixformer.models.base import VideoModel
from fixformer.models.checkpoint import CheckpointInfo, load_model
from fixformer.runtime.distributed import choose_device


@dataclass(frozen=True)
class Guess:
    """A label and its probability."""

    label: str
    probability: float


@dataclass(frozen=True)
class Prediction:
    """The best guesses for one video, best first. `scores_K` are the combined scores of all classes."""

    file: str
    views: str
    guesses: list[Guess]
    scores_K: Tensor

    @property
    def label(self) -> str:
        return self.guesses[0].label

    def to_json(self) -> dict[str, Any]:
        top = [{"label": guess.label, "probability": guess.probability} for guess in self.guesses]
        return {"file": self.file, "views": self.views, "top": top}


class Classifier:
    """A model with its labels and its preprocessing; made by `load`."""

    def __init__(self, model: VideoModel, info: CheckpointInfo, device: torch.device) -> None:
        self.model, self.info, self.device = model.to(device).eval(), info, device

    @property
    def labels(self) -> list[str]:
        return self.info.labels

    def predict(
        self,
        file: Source,
        *,
        views: str | None = None,
        top_k: int = 5,
        start: float | None = None,
        end: float | None = None,
    ) -> Prediction:
        """Classify a video, or the part of it from `start` to `end` seconds.

        Args:
            file: path, bytes or an open binary file.
            views: CLIPSxCROPS, such as "2x3"; by default the recipe's.
            top_k: how many guesses to return.
        """
        if top_k < 1:
            raise UserError(f"top_k={top_k}: expected at least 1.")
        config = override_eval(self.info.config.eval, views=views)
        logits_1VK = view_logits(self.model, self.views(file, config, start=start, end=end)[None]).cpu()
        shares_K = probabilities(logits_1VK, config.aggregate)[0]
        best = shares_K.topk(min(top_k, len(self.labels)))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        guesses = [Guess(self.labels[number], share) for number, share in pairs]
        name = str(file) if isinstance(file, str | Path) else getattr(file, "name", "bytes")
        return Prediction(name, config.views, guesses, combine(logits_1VK, config.aggregate)[0])

    def predict_each(
        self, files: Iterable[str], *, views: str | None = None, top_k: int = 5
    ) -> Iterator[Prediction | UserError]:
        """Classify many videos; for one that cannot be read, yields the error in place of a prediction."""
        for file in files:
            try:
                yield self.predict(file, views=views, top_k=top_k)
            except (DecodeError, ShortVideoError) as error:
                yield error

    @torch.no_grad()
    def features(self, file: Source, *, views: str | None = None) -> Tensor:
        """The input of the model's last layer, averaged over the views: `[D]`."""
        config = override_eval(self.info.config.eval, views=views)
        tokens = self.model.forward_features(self.views(file, config))
        return self.model.forward_head(tokens, pre_logits=True).mean(0).float().cpu()

    def views(
        self, file: Source, config: EvalConfig, *, start: float | None = None, end: float | None = None
    ) -> Tensor:
        """The views of a video as evaluation makes them: `[V, C, T, H, W]` on the device."""
        clips, crops = parse_views(config.views)
        data, clip = self.info.config.data, self.info.config.clip
        views_VCTHW = file_views(
            file, clip, clips, crops, start=start, end=end, backend=data.backend, damaged=data.damaged
        )
        return views_VCTHW.to(self.device)


def load(checkpoint: str | Path, *, device: str = "auto") -> Classifier:
    """A classifier from a checkpoint, or from the last checkpoint of a run's directory."""
    chosen = choose_device(device, 0)  # before the weights are read, so that a wrong name fails at once
    model, info = load_model(checkpoint)
    return Classifier(model, info, chosen)


def predict(
    checkpoint: str | Path, file: Source, *, views: str | None = None, top_k: int = 5, device: str = "auto"
) -> Prediction:
    """`load(checkpoint).predict(file)` in one call."""
    return load(checkpoint, device=device).predict(file, views=views, top_k=top_k)
