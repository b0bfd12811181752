"""Numbers from scores. A metric says in its name whether it counts videos or clips.

Legend: N videos, V views, K classes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fixformer.evaluation.scores import Scores, comparable, label_rank


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
    """Of the scored videos; of none, all are 0."""
    if len(scores) == 0:
        return Metrics(0.0, 0.0, 0.0, 0.0, 0.0)
    rank_N = label_rank(scores.score_NK, scores.label_N)
    return Metrics(
        video_top1=_share(rank_N < 1),
        video_top5=_share(rank_N < 5),
        mean_class=_mean_class(confusion_matrix(scores)),
        clip_top1=_share(scores.clip_rank_NV < 1),
        clip_top5=_share(scores.clip_rank_NV < 5),
    )


def confusion_matrix(scores: Scores) -> Tensor:
    """`[K, K]` counts: row is the true class, column the predicted one."""
    classes = scores.score_NK.shape[1]
    pairs_N = scores.label_N * classes + predicted(scores)
    return torch.bincount(pairs_N, minlength=classes * classes).view(classes, classes)


def predicted(scores: Scores) -> Tensor:
    """The class with the highest score; among equal ones the lowest number. The true class if its rank is 0."""
    score_NK = comparable(scores.score_NK, scores.label_N)
    best_N1 = score_NK.max(1, keepdim=True).values
    return (score_NK == best_N1).int().argmax(1)


def class_recall(matrix_KK: Tensor) -> list[float | None]:
    """Share of each class's videos that were recognised; None for a class without videos."""
    totals, hits = matrix_KK.sum(1).tolist(), matrix_KK.diagonal().tolist()
    return [hit / total if total else None for hit, total in zip(hits, totals, strict=True)]


def worst_confusions(scores: Scores, most: int = 10) -> list[Confusion]:
    """The most frequent mistakes, with the places of their videos in the split."""
    found: dict[tuple[int, int], list[int]] = {}
    rows = zip(scores.label_N.tolist(), predicted(scores).tolist(), scores.index_N.tolist(), strict=True)
    for label, guess, index in rows:
        if label != guess:
            found.setdefault((label, guess), []).append(index)
    ranked = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    return [Confusion(label, guess, videos) for (label, guess), videos in ranked[:most]]


def _mean_class(matrix_KK: Tensor) -> float:
    known = [recall for recall in class_recall(matrix_KK) if recall is not None]
    return sum(known) / len(known)


def _share(hits: Tensor) -> float:
    return hits.double().mean().item()
