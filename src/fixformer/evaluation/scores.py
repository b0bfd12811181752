"""Scores of videos from the logits of their views, the same for evaluation and prediction.

Legend: B videos, V views, K classes, N videos of a whole split.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fixformer.config import Aggregate
from fixformer.config.schema import checked
from fixformer.data.loading.datasets import Problem
from fixformer.models.base import VideoModel


@torch.no_grad()
def view_logits(model: VideoModel, views_BVCTHW: Tensor) -> Tensor:
    """Logits of every view: `[B, V, K]`."""
    return model(views_BVCTHW.flatten(0, 1)).float().unflatten(0, views_BVCTHW.shape[:2])


# NaN compares false with everything: a video with such scores is a failure, and neither right nor wrong.
NOT_FINITE = "the model gives NaN or infinite scores for it"


def have_finite_scores(logits_BVK: Tensor) -> Tensor:
    """`[B]`: whether the scores of a video, and the sum of its views, are numbers."""
    return logits_BVK.sum(1).isfinite().all(-1)  # one NaN or infinity makes its sum one


@checked
def combine(logits_BVK: Tensor, aggregate: Aggregate) -> Tensor:
    """One score per class: the sum of the views' logits, or the mean of their probabilities."""
    return logits_BVK.sum(1) if aggregate == "logits" else logits_BVK.softmax(-1).mean(1)


@checked
def probabilities(logits_BVK: Tensor, aggregate: Aggregate) -> Tensor:
    """Class probabilities `[B, K]`, ranked as by `combine`: logits are averaged before the softmax."""
    return logits_BVK.mean(1).softmax(-1) if aggregate == "logits" else combine(logits_BVK, aggregate)


@dataclass
class Scores:
    """Scores of videos. `index_N`: their indices in the split; `clip_rank_NV`: the true label's rank in each view."""

    score_NK: Tensor
    label_N: Tensor
    index_N: Tensor
    clip_rank_NV: Tensor
    problems: list[Problem] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.label_N)

    @staticmethod
    def of(logits_BVK: Tensor, label_B: Tensor, index_B: Tensor, aggregate: Aggregate) -> "Scores":
        assert have_finite_scores(logits_BVK).all()
        ranks = label_rank(logits_BVK, label_B[:, None].expand(logits_BVK.shape[:2]))
        return Scores(combine(logits_BVK, aggregate), label_B, index_B, ranks)

    @staticmethod
    def empty(classes: int, views: int) -> "Scores":
        none = torch.empty(0, dtype=torch.int64)
        return Scores(torch.empty(0, classes), none, none, none.view(0, 1).expand(0, views))

    @staticmethod
    def join(parts: list["Scores"]) -> "Scores":
        """All parts as one, in the order of the split."""
        order = torch.cat([part.index_N for part in parts]).argsort()
        problems = sorted((problem for part in parts for problem in part.problems), key=lambda problem: problem.id)
        return Scores(
            torch.cat([part.score_NK for part in parts])[order],
            torch.cat([part.label_N for part in parts])[order],
            torch.cat([part.index_N for part in parts])[order],
            torch.cat([part.clip_rank_NV for part in parts])[order],
            problems,
        )


def label_rank(score_XK: Tensor, label_X: Tensor) -> Tensor:
    """How many classes rank before the true one; among equal scores the lower number ranks first."""
    own = score_XK.gather(-1, label_X[..., None])
    earlier = torch.arange(score_XK.shape[-1]) < label_X[..., None]
    return ((score_XK > own) | ((score_XK == own) & earlier)).sum(-1)
