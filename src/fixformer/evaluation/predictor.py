"""Prediction: a checkpoint as a `Classifier` of videos, with the preprocessing it was trained with.

Legend: V views, K classes, C colours, T frames, H height, W width, D width of the features.
"""

from collections.abc import Iterator
from math import isfinite, prod
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from fixformer.config import EvalConfig, parse_views
from fixformer.config.clip import FrameRate
from fixformer.config.eval import Views
from fixformer.config.schema import Expect, PositiveInt, checked, coerce
from fixformer.config.train import Device
from fixformer.data.clips.views import file_views
from fixformer.errors import InputError, NotFinite
from fixformer.evaluation.answers import Guess, Prediction, PredictionError, answer_each
from fixformer.evaluation.evaluate import override_eval
from fixformer.evaluation.scores import NOT_FINITE, combine, have_finite_scores, probabilities, view_logits
from fixformer.evaluation.sources import DOWNLOAD_LIMIT, each_source, name_of, opened
from fixformer.models.base import VideoModel
from fixformer.models.checkpoint import CheckpointInfo, load_model
from fixformer.models.cost import require_forward_memory
from fixformer.models.shipped_model import SHIPPED
from fixformer.runtime.distributed import choose_device

Seconds = Annotated[float, Expect("a finite number of seconds", isfinite)]


class Classifier:
    """A model with its labels and its preprocessing; made by `load`.

    Wherever it takes a video, that is a path, a URL, "-" for standard input, bytes, an open binary file, a folder of
    images, or a clip: a numpy array or torch tensor of RGB frames, uint8 `[T, H, W, 3]`.
    """

    def __init__(
        self, model: VideoModel, info: CheckpointInfo, device: torch.device, download_limit: int = DOWNLOAD_LIMIT
    ) -> None:
        self.model, self.info, self.device = model.to(device).eval(), info, device
        self.download_limit = download_limit
        self._affordable: set[str] = set()

    @property
    def labels(self) -> list[str]:
        return self.info.labels

    @checked
    def predict(
        self,
        file: Any,
        *,
        views: Views | None = None,
        top_k: PositiveInt = 5,
        start: Seconds | None = None,
        end: Seconds | None = None,
        fps: FrameRate | None = None,
    ) -> Prediction:
        """Classify a video, or the part of it from `start` to `end` seconds.

        Args:
            file: one video, see the class.
            views: CLIPSxCROPS, such as "2x3"; by default the recipe's.
            top_k: how many guesses to return.
            start, end: of the part.
            fps: frame rate of a folder of images or a clip, which have no timestamps.
        """
        if start is not None and end is not None and start >= end:
            raise InputError(f"start={start} and end={end}: expected a start before the end.")
        config = self._config(views)
        name = name_of(file)
        views_VCTHW = self.views(file, config, start=start, end=end, fps=fps)
        logits_1VK = view_logits(self.model, views_VCTHW[None]).cpu()
        if not have_finite_scores(logits_1VK).all():
            raise NotFinite(f"{name}: {NOT_FINITE}; use another checkpoint.")
        shares_K = probabilities(logits_1VK, config.aggregate)[0]
        best = shares_K.topk(min(top_k, len(self.labels)))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        guesses = [Guess(self.labels[number], share) for number, share in pairs]
        return Prediction(name, config.views, guesses, combine(logits_1VK, config.aggregate)[0])

    def predict_each(
        self, files: Any, *, views: str | None = None, top_k: int = 5
    ) -> Iterator["Prediction | PredictionError"]:
        """Classify many videos; for one that cannot be classified, yields the error in place of a prediction.

        Args:
            files: a folder, with all videos in it at any depth, a pattern such as "clips/*.mp4", or a list of these and
                of anything that `predict` takes.
            views, top_k: as for `predict`.
        """
        self.prepare_to_score(views, top_k)
        yield from answer_each(lambda video: self.predict(video, views=views, top_k=top_k), each_source(files))

    def prepare_to_score(self, views: str | None, top_k: int) -> None:
        """Raise a `UserError` for what would be wrong with the answer for every video."""
        self._config(coerce(views, Views | None, "views"))
        coerce(top_k, PositiveInt, "top_k")

    def _config(self, views: str | None) -> EvalConfig:
        """How a video is scored, if there is memory for so many views."""
        config = override_eval(self.info.config.eval, views=views)
        if self.device.type == "cpu" and config.views not in self._affordable:
            require_forward_memory(self.model, prod(parse_views(config.views)), f"views={config.views}")
            self._affordable.add(config.views)
        return config

    @torch.no_grad()
    @checked
    def features(self, file: Any, *, views: Views | None = None) -> Tensor:
        """The input of the model's last layer, averaged over the views: `[D]`."""
        config = self._config(views)
        tokens = self.model.forward_features(self.views(file, config))
        return self.model.forward_head(tokens, pre_logits=True).mean(0).float().cpu()

    def views(
        self,
        file: Any,
        config: EvalConfig,
        *,
        start: float | None = None,
        end: float | None = None,
        fps: float | None = None,
    ) -> Tensor:
        """The views of a video as evaluation makes them: `[V, C, T, H, W]` on the device."""
        clips, crops = parse_views(config.views)
        data, clip = self.info.config.data, self.info.config.clip
        options: dict[str, Any] = {"backend": data.backend, "damaged": data.damaged, "fps": fps}
        with opened(file, self.download_limit) as video:
            views_VCTHW = file_views(video, clip, clips, crops, start=start, end=end, **options)
        return views_VCTHW.to(self.device)


@checked
def load(
    checkpoint: str | Path | None = None, *, device: Device = "auto", download_limit: PositiveInt = DOWNLOAD_LIMIT
) -> Classifier:
    """A classifier from a checkpoint.

    Args:
        checkpoint: a checkpoint, or the directory of a run, whose last checkpoint is used; None is the small model that
            comes with the package, which knows 12 generated motions.
        device: "auto", "cpu", "cuda" or "cuda:NUMBER".
        download_limit: how many MB of a URL or of standard input are read before it is refused.
    """
    chosen = choose_device(device, 0)  # before the weights are read, so that a wrong name fails at once
    model, info = load_model(SHIPPED if checkpoint is None else checkpoint)
    return Classifier(model, info, chosen, download_limit)


def predict(
    checkpoint: str | Path | None, file: Any, *, views: str | None = None, top_k: int = 5, device: str = "auto"
) -> Prediction:
    """`load(checkpoint).predict(file)` in one call."""
    return load(checkpoint, device=device).predict(file, views=views, top_k=top_k)
