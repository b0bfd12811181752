"""Prediction: a checkpoint as a `Classifier` of video files, with the preprocessing it was trained with.

Legend: V views, K classes, C colours, T frames, H height, W width, D width of the features.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from math import isfinite, prod
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from fixformer.config import EvalConfig, parse_views
from fixformer.config.eval import Views
from fixformer.config.schema import Expect, NonNegative, Positive, PositiveInt, checked, coerce
from fixformer.data.clips.frames import open_frames
from fixformer.data.clips.views import file_views, make_view_bytes
from fixformer.data.video import Limits, Source, open_video
from fixformer.errors import InputError, NotFinite, UserError, explain
from fixformer.evaluation.evaluate import override_eval
from fixformer.evaluation.explain.explaining import explain as explain_clip
from fixformer.evaluation.explain.explanation import Explanation
from fixformer.evaluation.explain.occlusion import Cells, parse_cells
from fixformer.evaluation.scores import NOT_FINITE, combine, have_finite_scores, probabilities, view_logits
from fixformer.evaluation.timeline.frame_models import frame_model
from fixformer.evaluation.timeline.timeline import Timeline
from fixformer.evaluation.timeline.watch import Watching, watch
from fixformer.models.base import VideoModel
from fixformer.models.checkpoint import CheckpointInfo, load_model
from fixformer.models.cost import require_forward_memory
from fixformer.runtime.distributed import choose_device
from fixformer.runtime.progress import Report

# Opening a video of hours reads all of it once; a frame may be far from the key frame before it.
LONG_VIDEO = Limits(seconds=3600, frames=10_000_000)
Seconds = Annotated[float, Expect("a finite number of seconds", isfinite)]


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


class PredictionError(UserError):
    """Why a video could not be classified; takes the place of its prediction."""

    def __init__(self, file: str, reason: Exception) -> None:
        text = str(reason).rstrip(".") or type(reason).__name__
        super().__init__(text if file and text.startswith(file) else f"{file}: {text}")
        self.file = file

    def to_json(self) -> dict[str, Any]:
        return {"file": self.file, "error": str(self)}


class Classifier:
    """A model with its labels and its preprocessing; made by `load`."""

    def __init__(self, model: VideoModel, info: CheckpointInfo, device: torch.device) -> None:
        self.model, self.info, self.device = model.to(device).eval(), info, device
        self._affordable: set[str] = set()

    @property
    def labels(self) -> list[str]:
        return self.info.labels

    @checked
    def predict(
        self,
        file: Source,
        *,
        views: Views | None = None,
        top_k: PositiveInt = 5,
        start: Seconds | None = None,
        end: Seconds | None = None,
    ) -> Prediction:
        """Classify a video, or the part of it from `start` to `end` seconds.

        Args:
            file: path, bytes or an open binary file.
            views: CLIPSxCROPS, such as "2x3"; by default the recipe's.
            top_k: how many guesses to return.
        """
        if start is not None and end is not None and start >= end:
            raise InputError(f"start={start} and end={end}: expected a start before the end.")
        config = self._config(views)
        name = _name_of(file)
        logits_1VK = view_logits(self.model, self.views(file, config, start=start, end=end)[None]).cpu()
        shares_K = _shares(name, config, logits_1VK)[0]
        best = shares_K.topk(min(top_k, len(self.labels)))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        guesses = [Guess(self.labels[number], share) for number, share in pairs]
        return Prediction(name, config.views, guesses, combine(logits_1VK, config.aggregate)[0])

    def predict_each(
        self, files: Iterable[str | Path], *, views: str | None = None, top_k: int = 5
    ) -> Iterator["Prediction | PredictionError"]:
        """Classify many videos; for one that cannot be classified, yields the error in place of a prediction."""
        self._config(coerce(views, Views | None, "views"))  # what would be wrong with all of them is raised
        coerce(top_k, PositiveInt, "top_k")
        if isinstance(files, str | Path) or not isinstance(files, Iterable):
            raise InputError(f"files={files!r}: expected a list of files.")
        for file in files:
            try:
                yield self.predict(file, views=views, top_k=top_k)
            except (UserError, OSError, MemoryError, RuntimeError) as error:
                if explain(error) is None:  # a bug: torch has the same type for it as for an allocation that fails
                    raise
                yield PredictionError(str(file), error)

    def _config(self, views: str | None) -> EvalConfig:
        """How a video is scored, if there is memory for so many views."""
        config = override_eval(self.info.config.eval, views=views)
        if self.device.type == "cpu" and config.views not in self._affordable:
            require_forward_memory(self.model, prod(parse_views(config.views)), f"views={config.views}")
            self._affordable.add(config.views)
        return config

    @torch.no_grad()
    @checked
    def features(self, file: Source, *, views: Views | None = None) -> Tensor:
        """The input of the model's last layer, averaged over the views: `[D]`."""
        config = self._config(views)
        tokens = self.model.forward_features(self.views(file, config))
        return self.model.forward_head(tokens, pre_logits=True).mean(0).float().cpu()

    @checked
    def timeline(
        self,
        file: Source,
        *,
        window: Positive | None = None,
        stride: Positive | None = None,
        smooth: NonNegative | None = None,
        views: Views = "1x1",
        progress: Report | None = None,
    ) -> Timeline:
        """What a video of any length shows when.

        Args:
            file: path, bytes or an open binary file.
            window: seconds that are classified at a time; by default the length of the model's clip, of the training
                videos where the checkpoint knows it, or 2 s.
            stride: seconds from one window to the next; by default 0.15 of a window.
            smooth: standard deviation in seconds with which scores are averaged over time; by default half a stride.
            views: of each window, as in `predict`.
            progress: called with windows done and windows in all.
        """
        config, data, clip = self._config(views), self.info.config.data, self.info.config.clip
        name = _name_of(file)
        how = Watching(window, stride, smooth, views)
        options: dict[str, Any] = {"backend": data.backend, "policy": data.damaged, "limits": LONG_VIDEO}
        with open_video(file, **options, short_side=clip.keep_short_side) as decoder:
            model = frame_model(self.model, clip, self.device)
            return watch(
                name, decoder, clip, model, self.labels, how, partial(_shares, name, config), progress=progress
            )

    @checked
    def explain(
        self,
        file: Source,
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
            file: path, bytes or an open binary file.
            layers: keep the attention matrices of these, as block ("3") or block and axis ("3.space"); the fixation is
                then averaged over these only, and the last of them is drawn.
            occlusion: FRAMESxROWSxCOLUMNS, the cells that are covered one after the other; None leaves it out.
            compare: checkpoints of other models, whose attention is put beside this one's in Fig. 2.
            progress: called with cells done and cells in all.
        """
        clip, data, name = self.info.config.clip, self.info.config.data, _name_of(file)
        part: dict[str, Any] = {"start": start, "end": end, "backend": data.backend, "damaged": data.damaged}
        with open_frames(file, clip, **part) as frames:
            clip_CTHW = make_view_bytes(frames, clip, 1, 1)[0]
        others = {path: load(path, device=str(self.device)) for path in compare}
        beside = [(path, other.model, other._centre_view(file, part)) for path, other in others.items()]
        cells = None if occlusion is None else parse_cells(occlusion)
        options: dict[str, Any] = {"layers": layers, "cells": cells, "compare": beside, "progress": progress}
        return explain_clip(name, self.model, clip, self.labels, clip_CTHW, self.device, **options)

    def _centre_view(self, file: Source, part: dict[str, Any]) -> Tensor:
        return file_views(file, self.info.config.clip, 1, 1, **part).to(self.device)

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


def _name_of(file: Source) -> str:
    return str(file) if isinstance(file, str | Path) else str(getattr(file, "name", "bytes"))


def _shares(name: str, config: EvalConfig, logits_BVK: Tensor) -> Tensor:
    """Class probabilities `[B, K]` of views of the video `name`."""
    if not have_finite_scores(logits_BVK).all():
        raise NotFinite(f"{name}: {NOT_FINITE}; use another checkpoint.")
    return probabilities(logits_BVK, config.aggregate)


def load(checkpoint: str | Path | None = None, *, device: str = "auto") -> Classifier:
    """A classifier from a checkpoint, or from the last checkpoint of a run's directory."""
    if checkpoint is None:
        raise InputError("checkpoint=None: expected a checkpoint, or the directory of a run.")
    chosen = choose_device(device, 0)  # before the weights are read, so that a wrong name fails at once
    model, info = load_model(checkpoint)
    return Classifier(model, info, chosen)


def predict(
    checkpoint: str | Path, file: Source, *, views: str | None = None, top_k: int = 5, device: str = "auto"
) -> Prediction:
    """`load(checkpoint).predict(file)` in one call."""
    return load(checkpoint, device=device).predict(file, views=views, top_k=top_k)
