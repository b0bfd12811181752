"""The result of an evaluation: metrics, and the protocol they were measured with."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import av
import torch

from fixformer.config import ClipSpec, DataConfig, EvalConfig
from fixformer.data.listing import Index
from fixformer.evaluation.chance import chance_warning
from fixformer.evaluation.metrics import (
    Metrics,
    class_recall,
    compute_metrics,
    confusion_matrix,
    predicted,
    worst_confusions,
)
from fixformer.evaluation.scores import Scores
from fixformer.models.checkpoint import CheckpointInfo
from fixformer.runtime.console import printable

# Failures that are printed; the JSON has all.
MOST_FAILURES = 10
MOST_MISTAKES = 10  # pairs of classes that are listed


@dataclass(frozen=True)
class Protocol:
    """How a number was measured."""

    dataset: str
    path: str
    split: str
    model: str
    step: int
    clip: str
    views: str
    aggregate: str
    decoder: str
    scored: int
    listed: int
    seed: int | None
    commit: str

    def __str__(self) -> str:
        """One line, printed under every accuracy."""
        score = "logits summed" if self.aggregate == "logits" else "probabilities averaged"
        clips, _, crops = self.views.partition("x")
        return (
            f"{self.dataset} {self.split} | {self.clip} | {clips} clips x {crops} crops, {score} | {self.decoder} | "
            f"{self.scored}/{self.listed} videos scored | seed {self.seed} | commit {self.commit or 'unknown'}"
        )


@dataclass(frozen=True)
class Failure:
    """A listed video without a score."""

    path: str
    message: str

    def __str__(self) -> str:
        return self.message if self.message.startswith(self.path) else f"{self.path}: {self.message}"


@dataclass(frozen=True)
class Mistake:
    """A frequent confusion of two classes, with its files."""

    label: str
    taken_for: str
    files: list[str]


@dataclass(frozen=True)
class VideoScore:
    """The prediction for one video and its probability."""

    path: str
    label: int
    predicted: int
    probability: float


@dataclass(frozen=True)
class Evaluation:
    """A complete evaluation. `confusion` counts videos: row is the true class, column the predicted one."""

    metrics: Metrics
    protocol: Protocol
    labels: list[str]
    recall: list[float | None]
    confusion: list[list[int]]
    mistakes: list[Mistake]
    failures: list[Failure]
    videos: list[VideoScore]

    def to_json(self) -> dict[str, Any]:
        """Everything but `videos`, which are written to a file of their own."""
        values = asdict(self)
        del values["videos"]
        return {"protocol_line": str(self.protocol), "warning": self.warning, **values}

    @property
    def warning(self) -> str | None:
        """That the score is not better than chance, and what to try."""
        return chance_warning(self.confusion, self.metrics.video_top1)

    def __str__(self) -> str:
        m = self.metrics
        lines = [
            f"video top-1 {m.video_top1:.2%}   top-5 {m.video_top5:.2%}   mean per class {m.mean_class:.2%}   "
            f"(clip top-1 {m.clip_top1:.2%}, top-5 {m.clip_top5:.2%})",
            str(self.protocol),
            *(f"  not scored: {failure}" for failure in self.failures[:MOST_FAILURES]),
        ]
        if len(self.failures) > MOST_FAILURES:
            lines.append(f"  and {len(self.failures) - MOST_FAILURES} more, see `failures` in the JSON")
        if self.warning:
            lines.append(self.warning)
        return "\n".join(map(printable, lines))


def summarise(
    scores: Scores, index: Index, split: str, info: CheckpointInfo, config: EvalConfig, data: DataConfig
) -> Evaluation:
    """The evaluation of a split from its scores."""
    samples, missing, labels = index.split(split), index.missing_in(split), info.labels
    matrix_KK = confusion_matrix(scores)
    protocol = Protocol(
        dataset=name_of_set(data.path, index.kind),
        path=str(index.root),
        split=split,
        model=info.config.model,
        step=info.step,
        clip=describe_clip(info.config.clip),
        views=config.views,
        aggregate=config.aggregate,
        decoder=f"{data.backend} {av.__version__}" if data.backend == "pyav" else data.backend,
        scored=len(scores),
        listed=len(samples) + len(missing),
        seed=info.config.seed if info.is_trained else None,
        commit=info.commit,
    )
    return Evaluation(
        metrics=compute_metrics(scores),
        protocol=protocol,
        labels=labels,
        recall=class_recall(matrix_KK),
        confusion=matrix_KK.tolist(),
        mistakes=[
            Mistake(labels[found.label], labels[found.taken_for], [samples[i].path for i in found.videos])
            for found in worst_confusions(scores, MOST_MISTAKES)
        ],
        failures=[
            *(Failure(problem.path, problem.message) for problem in scores.problems),
            *(Failure(sample.path, "no such file") for sample in missing),
        ],
        videos=_video_scores(scores, [sample.path for sample in samples], config),
    )


def from_videos(
    metrics: Metrics, protocol: Protocol, labels: list[str], failures: list[Failure], videos: list[VideoScore]
) -> Evaluation:
    """An evaluation with what can be counted from the predictions."""
    confusion = [[0] * len(labels) for _ in labels]
    mistakes: dict[tuple[int, int], list[str]] = {}
    for video in videos:
        confusion[video.label][video.predicted] += 1
        if video.label != video.predicted:
            mistakes.setdefault((video.label, video.predicted), []).append(video.path)
    worst = sorted(mistakes.items(), key=lambda item: (-len(item[1]), item[0]))[:MOST_MISTAKES]
    return Evaluation(
        metrics=metrics,
        protocol=protocol,
        labels=labels,
        recall=class_recall(torch.tensor(confusion)),
        confusion=confusion,
        mistakes=[Mistake(labels[label], labels[taken_for], files) for (label, taken_for), files in worst],
        failures=failures,
        videos=videos,
    )


def describe_clip(spec: ClipSpec) -> str:
    """Frames × stride @ size."""
    stride = "uniform" if spec.sampling == "uniform" else f"stride {spec.stride}"
    return f"{spec.frames} frames x {stride} @ {spec.size}{' squeezed' if spec.fit == 'squeeze' else ''}"


def name_of_set(path: str, kind: str) -> str:
    """What a user would call the data: its directory, or an annotation file in its directory, and the layout.

    A set that is called like its layout is named once; LSA64's own index.csv is not named at all.
    """
    place = Path(os.path.realpath(path))
    name = place.name
    if place.is_file():
        name = place.parent.name if kind == "lsa64" else f"{place.parent.name}/{place.name}"
    return kind if name in ("", kind) else f"{name} ({kind})"


def _video_scores(scores: Scores, paths: list[str], config: EvalConfig) -> list[VideoScore]:
    guess_N, share_NK = predicted(scores), scores.score_NK
    if config.aggregate == "logits":  # summed over the views; probabilities come from their mean
        share_NK = (scores.score_NK / scores.clip_rank_NV.shape[1]).softmax(-1)
    share_N = share_NK.gather(1, guess_N[:, None])[:, 0]
    columns = (scores.index_N.tolist(), scores.label_N.tolist(), guess_N.tolist(), share_N.tolist())
    return [VideoScore(paths[index], label, guess, share) for index, label, guess, share in zip(*columns, strict=True)]
