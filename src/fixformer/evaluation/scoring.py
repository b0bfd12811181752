"""Scores of a list of videos, on one process or many; each video is scored exactly once."""

from collections.abc import Callable, Iterable
from typing import Any

from fixformer.config import ClipSpec, DataConfig
from fixformer.data.dataset import Reader, TestBatch, TestVideos
from fixformer.data.index import Sample
from fixformer.data.loader import ViewLoader
from fixformer.data.shard_loader import shard_view_loader, shards_of
from fixformer.distributed import ALONE, World
from fixformer.eval_config import EvalConfig, parse_views
from fixformer.evaluation.views import Scores, view_logits
from fixformer.models.base import VideoModel

Progress = Callable[[int, int], None]


def score_split(
    model: VideoModel,
    samples: list[Sample],
    spec: ClipSpec,
    config: EvalConfig,
    data: DataConfig,
    *,
    reader: Reader | None = None,
    views: str | None = None,
    world: World = ALONE,
    progress: Progress | None = None,
) -> Scores:
    """Scores of the samples, in their order, on every process. `progress` is told (videos done, videos) of this one."""
    clips, crops = parse_views(views or config.views)
    loader = _loader(samples, spec, config, data, clips=clips, crops=crops, reader=reader, world=world)
    parts = [Scores.empty(model.num_classes, clips * crops)]
    was_training = model.training
    model.eval()
    for batch in loader:
        if len(batch.labels_B):
            logits_BVK = view_logits(model, batch.inputs(spec, world.device))
            parts.append(Scores.of(logits_BVK, batch.labels_B, batch.index_B, config.aggregate))
        parts[-1].problems.extend(batch.problems)
        if progress:
            progress(sum(len(part) + len(part.problems) for part in parts), -(-len(samples) // world.size))
    model.train(was_training)
    return Scores.join(world.all(Scores.join(parts)))


def _loader(
    samples: list[Sample],
    spec: ClipSpec,
    config: EvalConfig,
    data: DataConfig,
    *,
    clips: int,
    crops: int,
    reader: Reader | None,
    world: World,
) -> Iterable[TestBatch]:
    """Files in any order, or shards in theirs."""
    options: dict[str, Any] = {
        "batch_size": config.batch_size,
        "workers": data.workers,
        "prefetch": data.prefetch,
        "rank": world.rank,
        "world": world.size,
        "pin_memory": world.device.type == "cuda",
    }
    if data.location is not None:
        way: dict[str, Any] = {"location": data.location, "backend": data.backend, "damaged": data.damaged}
        return shard_view_loader(shards_of(samples, data), None, spec, clips=clips, crops=crops, **way, **options)
    return ViewLoader(TestVideos(samples, spec, clips=clips, crops=crops, reader=reader), **options)
