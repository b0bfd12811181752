"""Scoring a list of videos, on one process or many; each video is scored exactly once."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule

from fixformer.config import ClipSpec, DataConfig, EvalConfig, parse_views
from fixformer.data.listing import Sample
from fixformer.data.loading import VideoReader, view_loader
from fixformer.data.loading.datasets import Problem, TestBatch
from fixformer.errors import UserError
from fixformer.evaluation.scores import NOT_FINITE, Scores, have_finite_scores, view_logits
from fixformer.models.base import VideoModel
from fixformer.runtime.distributed import SINGLE_PROCESS, World
from fixformer.runtime.progress import Report
from fixformer.runtime.signals import NEVER_STOP, StopRequest


def score_split(
    model: VideoModel,
    samples: list[Sample],
    spec: ClipSpec,
    config: EvalConfig,
    data: DataConfig,
    *,
    reader: VideoReader | None = None,
    views: str | None = None,
    world: World = SINGLE_PROCESS,
    progress: Report | None = None,
    stop: StopRequest = NEVER_STOP,
) -> Scores:
    """Scores of the samples, in their order, on every process.

    Args:
        views: in place of `config.views`.
        progress: called with (videos done, videos in all) of this process.
    """
    clips, crops = parse_views(views or config.views)
    options: dict[str, Any] = {"clips": clips, "crops": crops, "batch_size": config.batch_size, "reader": reader}
    loader = view_loader(samples, spec, data, **options, **world.loader_options())
    parts = [Scores.empty(model.num_classes, clips * crops)]
    was_training = model.training
    model.eval()
    for batch in _synchronised(loader, world, stop):
        if batch is None or not len(batch.labels_B):
            if isinstance(model, FSDPModule):
                # gathering a sharded model is collective: a process without a batch must run a forward pass too
                with torch.no_grad():
                    model(torch.zeros(1, 3, spec.frames, spec.size, spec.size, device=world.device))
        else:
            logits_BVK = view_logits(model, batch.inputs(spec, world.device)).cpu()
            good_B = have_finite_scores(logits_BVK)
            parts.append(Scores.of(logits_BVK[good_B], batch.labels_B[good_B], batch.index_B[good_B], config.aggregate))
            failed = [samples[i] for i in batch.index_B[~good_B].tolist()]
            parts[-1].problems.extend(Problem(sample.id, sample.path, NOT_FINITE) for sample in failed)
        parts[-1].problems.extend(batch.problems if batch else ())
        if progress and batch:
            progress(sum(len(part) + len(part.problems) for part in parts), -(-len(samples) // world.size))
    model.train(was_training)
    return Scores.join(world.all_gather(Scores.join(parts)))


def require_scores(scores: Scores, split: str) -> None:
    """Raise a `UserError` if no video has a score: there is no accuracy then, not even 0 %."""
    if not len(scores):
        first, count = scores.problems[0], len(scores.problems)
        raise UserError(
            f"none of the {count} videos of split {split!r} could be scored, the first, {first.path}, because: "
            f"{first.message.removeprefix(f'{first.path}: ').rstrip('.')}; run `fixformer check` to see what is wrong."
        )


def _synchronised(batches: Iterable[TestBatch], world: World, stop: StopRequest) -> Iterator[TestBatch | None]:
    """The batches of this process, then None until every process is done; all processes stop at the same batch."""
    own = iter(batches)
    while True:
        batch = next(own, None)
        any_batch, any_stop = world.any(batch is not None, bool(stop))
        if any_stop:
            raise stop.interruption("stopped while scoring videos; resume with --resume.")
        if not any_batch:
            return
        yield batch
