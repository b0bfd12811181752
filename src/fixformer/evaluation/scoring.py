"""Scores of a list of videos, on one process or many; each video is scored exactly once."""

from collections.abc import Callable

from fixformer.config import ClipSpec, DataConfig
from fixformer.data.dataset import Reader, TestVideos
from fixformer.data.index import Sample
from fixformer.data.loader import ViewLoader
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
    videos = TestVideos(samples, spec, clips=clips, crops=crops, reader=reader)
    loader = ViewLoader(
        videos,
        batch_size=config.batch_size,
        workers=data.workers,
        prefetch=data.prefetch,
        rank=world.rank,
        world=world.size,
        pin_memory=world.device.type == "cuda",
    )
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
