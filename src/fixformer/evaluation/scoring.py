"""Scores of a list of videos, on one process or many; each video is scored exactly once."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule

from fixformer.config import ClipSpec, DataConfig, EvalConfig, parse_views
from fixformer.data.listing import Sample
from fixformer.data.loading import VideoReader, view_loader
from fixformer.data.loading.datasets import TestBatch
from fixformer.evaluation.scores import Scores, view_logits
from fixformer.models.base import VideoModel
from fixformer.runtime.distributed import ALONE, World
from fixformer.runtime.progress import Report
from fixformer.runtime.signals import NEVER, StopRequest


def score_split(
    model: VideoModel,
    samples: list[Sample],
    spec: ClipSpec,
    config: EvalConfig,
    data: DataConfig,
    *,
    reader: VideoReader | None = None,
    views: str | None = None,
    world: World = ALONE,
    progress: Report | None = None,
    stop: StopRequest = NEVER,
) -> Scores:
    """Scores of the samples, in their order, on every process. `progress` is told (videos done, videos) of this one."""
    clips, crops = parse_views(views or config.views)
    options: dict[str, Any] = {"clips": clips, "crops": crops, "batch_size": config.batch_size, "reader": reader}
    loader = view_loader(samples, spec, data, **options, **world.place())
    parts = [Scores.empty(model.num_classes, clips * crops)]
    was_training = model.training
    model.eval()
    for batch in _in_step(loader, world, stop):
        if batch is None or not len(batch.labels_B):
            _keep_company(model, spec, world)
        else:
            logits_BVK = view_logits(model, batch.inputs(spec, world.device))
            parts.append(Scores.of(logits_BVK, batch.labels_B, batch.index_B, config.aggregate))
        parts[-1].problems.extend(batch.problems if batch else ())
        if progress and batch:
            progress(sum(len(part) + len(part.problems) for part in parts), -(-len(samples) // world.size))
    model.train(was_training)
    return Scores.join(world.all(Scores.join(parts)))


def _in_step(batches: Iterable[TestBatch], world: World, stop: StopRequest) -> Iterator[TestBatch | None]:
    """A batch on every process by turns, None on one that has no more, until none has; all stop at the same turn."""
    own = iter(batches)
    while True:
        batch = next(own, None)
        is_going, is_stopped = world.any(batch is not None, bool(stop))
        if is_stopped:
            raise stop.stopped("stopped while scoring videos; go on with --resume.")
        if not is_going:
            return
        yield batch


def _keep_company(model: VideoModel, spec: ClipSpec, world: World) -> None:
    """A pass over nothing: the parts of a sharded model come together only if every process asks for them."""
    if isinstance(model, FSDPModule):
        with torch.no_grad():
            model(torch.zeros(1, 3, spec.frames, spec.size, spec.size, device=world.device))
