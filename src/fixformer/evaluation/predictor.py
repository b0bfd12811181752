"""Prediction: a checkpoint as a `Classifier` of videos, with the preprocessing it was trained with.

Legend: V views, K classes, C colours, T frames, H height, W width, D width of the features.
"""

from collections.abc import Iterator
from functools import partial
from math import isfinite, prod
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from fixformer.config import EvalConfig, parse_views
from fixformer.config.clip import FrameRate
from fixformer.config.eval import Views
from fixformer.config.schema import Expect, NonNegative, Positive, PositiveInt, checked, coerce
from fixformer.config.train import Device
from fixformer.data.clips.frames import open_frames
from fixformer.data.clips.views import file_views, make_view_bytes
from fixformer.data.video import Limits, VideoSource, open_video
from fixformer.errors import NotFinite
from fixformer.evaluation.answers import Guess, Prediction, PredictionError, answer_each, check_part
from fixformer.evaluation.evaluate import override_eval
from fixformer.evaluation.explain.explaining import explain as explain_clip
from fixformer.evaluation.explain.explanation import Explanation
from fixformer.evaluation.explain.occlusion import Cells, parse_cells
from fixformer.evaluation.scores import NOT_FINITE, combine, have_finite_scores, probabilities, view_logits
from fixformer.evaluation.sources import DOWNLOAD_LIMIT, each_source, name_of, opened
from fixformer.evaluation.timeline.frame_models import frame_model
from fixformer.evaluation.timeline.timeline import Timeline
from fixformer.evaluation.timeline.watch import Watching, watch
from fixformer.models.base import VideoModel
from fixformer.models.checkpoint import CheckpointInfo, load_model
from fixformer.models.cost import require_forward_memory
from fixformer.models.shipped_model import SHIPPED
from fixformer.runtime.distributed import choose_device
from fixformer.runtime.progress import Report

# Opening a video of hours reads all of it once. The table of its packets takes about 1 kB a frame: 3 GB for 33 hours.
LONG_VIDEO = Limits(seconds=3600, frames=3_000_000)
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
        check_part(start, end)
        config = self._config(views)
        name = name_of(file)
        views_VCTHW = self.views(file, config, start=start, end=end, fps=fps)
        logits_1VK = view_logits(self.model, views_VCTHW[None]).cpu()
        shares_K = _shares(name, config, logits_1VK)[0]
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

    @checked
    def timeline(
        self,
        file: Any,
        *,
        window: Positive | None = None,
        stride: Positive | None = None,
        smooth: NonNegative | None = None,
        views: Views = "1x1",
        cuts: bool = True,
        progress: Report | None = None,
    ) -> Timeline:
        """What a video of any length shows when.

        Args:
            file: as in `predict`.
            window: seconds that are classified at a time; by default the length of the model's clip, of the training
                videos where the checkpoint knows it, or 2 s.
            stride: seconds from one window to the next; by default 0.15 of a window.
            smooth: standard deviation in seconds with which scores are averaged over time; by default half a stride.
            views: of each window, as in `predict`.
            cuts: look for the cuts of an edited video; no piece of a segment goes over one.
            progress: called with windows done and windows in all.
        """
        config, data, clip = self._config(views), self.info.config.data, self.info.config.clip
        name = name_of(file)
        how = Watching(window, stride, smooth, views, cuts)
        options: dict[str, Any] = {"backend": data.backend, "policy": data.damaged, "limits": LONG_VIDEO}
        with (
            opened(file, self.download_limit) as source,
            open_video(source, **options, short_side=clip.keep_short_side) as decoder,
        ):
            model = frame_model(self.model, clip, self.device)
            shares = partial(_shares, name, config)
            hints: dict[str, Any] = {"typical": self.info.video_seconds, "progress": progress}
            return watch(name, decoder, clip, model, self.labels, how, shares, **hints)

    @checked
    def explain(
        self,
        file: Any,
        *,
        layers: tuple[str, ...] | None = None,
        occlusion: Cells | None = "4x4x4",
        compare: tuple[str, ...] = (),
        start: Seconds | None = None,
        end: Seconds | None = None,
        progress: Report | None = None,
    ) -> Explanation:
        """What the model looked at in a video, or in its part from `start` to `end` seconds.

        Args:
            file: as in `predict`.
            layers: keep the attention matrices of these, as block ("3") or block and axis ("3.space"); the fixation is
                then averaged over these only, and the last of them is drawn.
            occlusion: FRAMESxROWSxCOLUMNS, the cells that are covered one after the other; None leaves it out.
            compare: checkpoints of other models, whose attention is put beside this one's in Fig. 2.
            progress: called with cells done and cells in all.
        """
        clip, data, name = self.info.config.clip, self.info.config.data, name_of(file)
        part: dict[str, Any] = {"start": start, "end": end, "backend": data.backend, "damaged": data.damaged}
        others = {path: load(path, device=str(self.device)) for path in compare}
        with opened(file, self.download_limit) as video:
            with open_frames(video, clip, **part) as frames:
                clip_CTHW = make_view_bytes(frames, clip, 1, 1)[0]
            beside = [(path, other.model, other._centre_view(video, part)) for path, other in others.items()]
        cells = None if occlusion is None else parse_cells(occlusion)
        options: dict[str, Any] = {"layers": layers, "cells": cells, "compare": beside, "progress": progress}
        return explain_clip(name, self.model, clip, self.labels, clip_CTHW, self.device, **options)

    def _centre_view(self, video: VideoSource, part: dict[str, Any]) -> Tensor:
        return file_views(video, self.info.config.clip, 1, 1, **part).to(self.device)

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


def _shares(name: str, config: EvalConfig, logits_BVK: Tensor) -> Tensor:
    """Class probabilities `[B, K]` of views of the video `name`."""
    if not have_finite_scores(logits_BVK).all():
        raise NotFinite(f"{name}: {NOT_FINITE}; use another checkpoint.")
    return probabilities(logits_BVK, config.aggregate)


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
