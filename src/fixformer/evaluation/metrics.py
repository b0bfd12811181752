"""Metrics of scores. The name of a metric says whether it counts videos or clips.

Legend: N videos, V views, K classes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fixformer.evaluation.scores import Scores, label_rank


@dataclass(frozen=True)
class Metrics:
    """Fractions in [0, 1]. `mean_class` averages the per-class recall of videos over the classes that occur."""

    video_top1: float
    video_top5: float
    mean_class: float
    clip_top1: float
    clip_top5: float


@dataclass(frozen=True)
class Confusion:
    """Videos of one class taken for another."""

    label: int
    taken_for: int
    videos: list[int]


def compute_metrics(scores: Scores) -> Metrics:
    """The metrics of the scored videos, of which there is at least one: no video is not 0 %."""
    assert len(scores)
    rank_N = label_rank(scores.score_NK, scores.label_N)
    recalls = [recall for recall in class_recall(confusion_matrix(scores)) if recall is not None]
    return Metrics(
        video_top1=_fraction(rank_N < 1),
        video_top5=_fraction(rank_N < 5),
        mean_class=sum(recalls) / len(recalls),
        clip_top1=_fraction(scores.clip_rank_NV < 1),
        clip_top5=_fraction(scores.clip_rank_NV < 5),
    )


def confusion_matrix(scores: Scores) -> Tensor:
    """`[K, K]` counts: row is the true class, column the predicted one."""
    classes = scores.score_NK.shape[1]
    pairs_N = scores.label_N * classes + predicted(scores)
    return torch.bincount(pairs_N, minlength=classes * classes).view(classes, classes)


def predicted(scores: Scores) -> Tensor:
    """The class with the highest score, the lowest number among equals: the true class exactly if its rank is 0."""
    best_N1 = scores.score_NK.max(1, keepdim=True).values
    return (scores.score_NK == best_N1).int().argmax(1)


def class_recall(matrix_KK: Tensor) -> list[float | None]:
    """The fraction of each class's videos that is predicted correctly; None for a class without videos."""
    totals, hits = matrix_KK.sum(1).tolist(), matrix_KK.diagonal().tolist()
    return [hit / total if total else None for hit, total in zip(hits, totals, strict=True)]


def worst_confusions(scores: Scores, most: int = 10) -> list[Confusion]:
    """The most frequent confusions, with the indices of their videos in the split."""
    found: dict[tuple[int, int], list[int]] = {}
    rows = zip(scores.label_N.tolist(), predicted(scores).tolist(), scores.index_N.tolist(), strict=True)
    for label, guess, index in rows:
        if label != guess:
            found.setdefault((label, guess), []).append(index)
    ranked = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    return [Confusion(label, guess, videos) for (label, guess), videos in ranked[:most]]


def _fraction(hits: Tensor) -> float:
    return hits.double().mean().item()
