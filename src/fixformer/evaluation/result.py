"""The outcome of an evaluation: numbers, and everything a reader needs to know how they were measured."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import av
import torch

from fixformer.config import ClipSpec, DataConfig, EvalConfig
from fixformer.data.listing import Index
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
        """One line, to be printed under every accuracy."""
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
    """A frequent confusion, with its files."""

    label: str
    taken_for: str
    files: list[str]


@dataclass(frozen=True)
class VideoScore:
    """What one video got."""

    path: str
    label: int
    predicted: int
    probability: float


@dataclass(frozen=True)
class Evaluation:
    """All of it. `confusion` counts videos: row is the true class, column the predicted one."""

    metrics: Metrics
    protocol: Protocol
    labels: list[str]
    recall: list[float | None]
    confusion: list[list[int]]
    mistakes: list[Mistake]
    failures: list[Failure]
    videos: list[VideoScore]

    def to_json(self) -> dict[str, Any]:
        """The numbers with their protocol; the rows of `videos` are written to a file of their own."""
        values = asdict(self)
        del values["videos"]
        return {"protocol_line": str(self.protocol), **values}

    def _not_scored(self, most: int = 10) -> str:
        rows = [f"\n  not scored: {failure}" for failure in self.failures[:most]]
        more = len(self.failures) - len(rows)
        return "".join(rows) + (f"\n  and {more} more, see `failures` in the JSON" if more else "")

    def __str__(self) -> str:
        m = self.metrics
        return (
            f"video top-1 {m.video_top1:.2%}   top-5 {m.video_top5:.2%}   mean per class {m.mean_class:.2%}   "
            f"(clip top-1 {m.clip_top1:.2%}, top-5 {m.clip_top5:.2%})\n{self.protocol}{self._not_scored()}"
        )


def summarise(
    scores: Scores, index: Index, split: str, info: CheckpointInfo, config: EvalConfig, data: DataConfig
) -> Evaluation:
    """Scores of a split as an evaluation."""
    samples, missing = index.split(split), index.missing_in(split)
    matrix_KK = confusion_matrix(scores)
    labels = info.labels
    failures = [Failure(problem.path, problem.message) for problem in scores.problems]
    return Evaluation(
        metrics=compute_metrics(scores),
        protocol=_protocol(scores, index, split, info, config, data),
        labels=labels,
        recall=class_recall(matrix_KK),
        confusion=matrix_KK.tolist(),
        mistakes=[
            Mistake(labels[found.label], labels[found.taken_for], [samples[i].path for i in found.videos])
            for found in worst_confusions(scores)
        ],
        failures=failures + [Failure(sample.path, "no such file") for sample in missing],
        videos=_video_scores(scores, [sample.path for sample in samples], config),
    )


def describe_clip(spec: ClipSpec) -> str:
    """Frames × stride @ size."""
    stride = "uniform" if spec.sampling == "uniform" else f"stride {spec.stride}"
    return f"{spec.frames} frames x {stride} @ {spec.size}{' squeezed' if spec.fit == 'squeeze' else ''}"


def _protocol(
    scores: Scores, index: Index, split: str, info: CheckpointInfo, config: EvalConfig, data: DataConfig
) -> Protocol:
    return Protocol(
        dataset=_dataset(index),
        path=str(index.root),
        split=split,
        model=info.model,
        step=info.step,
        clip=describe_clip(info.clip),
        views=config.views,
        aggregate=config.aggregate,
        decoder=f"{data.backend} {av.__version__}" if data.backend == "pyav" else data.backend,
        scored=len(scores),
        listed=len(index.split(split)) + len(index.missing_in(split)),
        seed=info.recipe.get("seed"),
        commit=info.commit,
    )


def _dataset(index: Index) -> str:
    """The name of its directory or file, and its layout, which is not what it is: motions are laid out like SSv2."""
    name = Path(index.root).absolute().name
    return name if name in ("", index.kind) else f"{name} ({index.kind})"


def _video_scores(scores: Scores, paths: list[str], config: EvalConfig) -> list[VideoScore]:
    guesses = predicted(scores)
    shares_NK = _probabilities(scores, config)
    columns = (scores.index_N.tolist(), scores.label_N.tolist(), guesses.tolist())
    own = shares_NK.gather(1, guesses[:, None])[:, 0].tolist()
    rows = zip(*columns, own, strict=True)
    return [VideoScore(paths[index], label, guess, share) for index, label, guess, share in rows]


def _probabilities(scores: Scores, config: EvalConfig) -> torch.Tensor:
    if config.aggregate == "probabilities":
        return scores.score_NK
    views = scores.clip_rank_NV.shape[1]
    return (scores.score_NK / views).softmax(-1)
