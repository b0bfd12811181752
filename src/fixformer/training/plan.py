"""`fixformer train --dry-run`: an estimate of the steps, memory and time of a run."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import torch

from fixformer.config import TrainConfig, parse_views
from fixformer.config.schema import dump
from fixformer.data.listing import Index
from fixformer.models.cost import Cost, Part, cost
from fixformer.models.registry import create_model
from fixformer.runtime.machine import sgemm_gmacs
from fixformer.training.initialise import no_image_network

# A training step costs a forward pass and twice as much backward. Steps of fixformer_tiny (8x48, 12x64) and
# fixformer_small (8x112) on one thread ran at 0.47 to 0.59 of the matrix-multiply rate measured right before and after
# them. Their peak memory was 1.34 to 1.57 times the stored activations: some gradients exist beside them.
PASSES, EFFICIENCY, PEAK = 3, 0.5, 1.6
# Python, torch and the other libraries, measured; the aspect ratio of most videos.
PROCESS_MB, ASPECT = 350, 16 / 9
BYTES = {"float32": 4, "bf16": 2, "fp16": 2}


@dataclass(frozen=True)
class Plan:
    """An estimate for one process on this machine.

    Args:
        memory_mb: weights, optimiser state and activations, on the device of the model.
        host_mb: the process itself and the mapped part of its cache, which the system reclaims when memory is short.
        gmacs: the measured matrix-multiply rate, in billions of multiply-accumulates per second.
    """

    config: dict[str, Any]
    classes: int
    train_videos: int
    test_videos: int
    steps: int
    params: int
    memory_mb: float
    host_mb: float
    hours: float
    gmacs: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        minutes = 60 * self.hours
        if minutes >= 60:
            duration = f"{self.hours:.1f} hours"
        else:
            duration = f"{minutes:.0f} minutes" if minutes >= 2 else "a minute or two"
        return (
            f"{json.dumps(self.config, indent=1)}\n"
            f"{self.train_videos} training and {self.test_videos} test videos of {self.classes} classes\n"
            f"{self.config['model']}: {self.params / 1e6:.2f} M parameters\n"
            f"{self.steps} steps of {self.config['batch_size']} clips, {self.config['epochs']} epochs\n"
            f"estimated for one process: {self.memory_mb / 1024:.1f} GB of memory for the model and its activations, "
            f"{self.host_mb / 1024:.1f} GB for the process and its cache, {duration} on this machine\n"
            f"(assuming {EFFICIENCY:.0%} of the {self.gmacs:.0f} billion multiply-accumulates per second measured now)"
        )


def make_plan(config: TrainConfig, index: Index) -> Plan:
    """The plan of a run. Costs are counted on the meta device; only the machine's speed is measured."""
    videos, tests = len(index.split("train")), len(index.split(index.eval_split))
    stages = [config.stage_of(epoch) for epoch in range(config.epochs)]
    costs = _costs(config, len(index.labels))
    final = costs[config.clip.frames, config.clip.size]
    macs = _macs(config, index, costs) + tests * prod(parse_views(config.eval.views)) * final.executed_macs
    by_stage = [
        _training_bytes(config, stage.batch_size or config.batch_size, costs[stage.frames, stage.size])
        for stage in set(stages)
    ]
    gmacs = sgemm_gmacs(0.3)
    return Plan(
        config=dump(config),
        classes=len(index.labels),
        train_videos=videos,
        test_videos=tests,
        steps=sum(videos // (stage.batch_size or config.batch_size) for stage in stages),
        params=final.params,
        memory_mb=max(_evaluation_bytes(config, final), *by_stage) / 2**20,
        host_mb=PROCESS_MB + _cache_bytes(config, videos + tests) / 2**20,
        hours=macs / (gmacs * 1e9 * EFFICIENCY) / 3600,
        gmacs=gmacs,
    )


def _costs(config: TrainConfig, classes: int) -> dict[tuple[int, int], Cost]:
    """Of a clip, by frames and size: of the final evaluation and of all stages."""
    stages = {(stage.frames, stage.size) for stage in config.stages}
    return {
        (frames, size): cost(config.model, frames, size, num_classes=classes, **config.model_settings)
        for frames, size in {(config.clip.frames, config.clip.size), *stages}
    }


def _macs(config: TrainConfig, index: Index, costs: Mapping[tuple[int, int], Cost]) -> int:
    """Multiply-accumulates of all steps and of the evaluations on the way."""
    videos, tests, macs = len(index.split("train")), len(index.split(index.eval_split)), 0
    for epoch, stage in enumerate(map(config.stage_of, range(config.epochs)), 1):
        batch = stage.batch_size or config.batch_size
        is_scored = epoch == config.epochs or (config.eval.every and epoch % config.eval.every == 0)
        found = costs[stage.frames, stage.size]
        trained_macs = found.executed_macs - (_stem(config, found).macs if epoch <= config.frozen_epochs else 0)
        macs += PASSES * (videos // batch) * batch * trained_macs + tests * bool(is_scored) * found.executed_macs
    if config.frozen_epochs:  # the features of each draw are computed once
        stem = _stem(config, costs[config.clip.frames, config.clip.size])
        macs += min(config.frozen_draws, config.frozen_epochs) * videos * stem.macs
    return macs


def training_macs(config: TrainConfig, index: Index) -> int:
    """Multiply-accumulates of a run without its final evaluation."""
    return _macs(config, index, _costs(config, len(index.labels)))


def process_bytes(config: TrainConfig, classes: int, processes: int) -> float:
    """Memory of each of so many processes."""
    costs = _costs(config, classes)
    batch = {(s.frames, s.size): s.batch_size or config.batch_size for s in map(config.stage_of, range(config.epochs))}
    most = max(_training_bytes(config, clips // processes, costs[shape]) for shape, clips in batch.items())
    return PROCESS_MB * 2**20 + max(most, _evaluation_bytes(config, costs[config.clip.frames, config.clip.size]))


def _training_bytes(config: TrainConfig, batch: int, found: Cost) -> float:
    """Weights, gradients, optimiser state, averaged weights, clips, and activations with their gradients."""
    clips = min(batch, config.micro_batch or batch)
    blocks, depth = _block_activations(found)
    # of a stem that is never trained nothing is stored
    kept = found.activations - (_stem(config, found).activations if config.frozen_epochs == config.epochs else 0)
    # recomputing stores the input of each block and the activations of one block at a time
    stored = kept - (blocks * (1 - 2 / (depth + 1)) if config.run.checkpointing else 0)
    half = BYTES[config.run.precision] / 4
    return _weight_bytes(config, found) + clips * (PEAK * stored * half + 3 * found.frames * found.size**2 * 4)


def _stem(config: TrainConfig, found: Cost) -> Part:
    """What the image network of `frozen_epochs` costs."""
    for part in found.parts:
        if part.name == "patch_embed":
            return part
    raise no_image_network(config)


def _evaluation_bytes(config: TrainConfig, found: Cost) -> float:
    """Weights, clips, and the peak of a forward pass: a third of what training stores for a block, as measured."""
    clips = config.eval.batch_size * prod(parse_views(config.eval.views))
    blocks, depth = _block_activations(found)
    peak = (blocks or found.activations) / (3 * depth)
    return _weight_bytes(config, found) + clips * (peak + 3 * found.frames * found.size**2 * 4)


def _weight_bytes(config: TrainConfig, found: Cost) -> int:
    """Weights, gradients, moments of the optimiser and averaged weights, in float32."""
    moments = 2 if config.optim.optimiser == "adamw" else 1
    return (2 + moments + (config.ema is not None)) * 4 * found.params


def _block_activations(found: Cost) -> tuple[int, int]:
    """Bytes of activations of the blocks, and the number of blocks."""
    with torch.device("meta"):
        depth = len(getattr(create_model(found.model, **found.settings), "blocks", ()))
    return sum(part.activations for part in found.parts if part.name.startswith("blocks.")), max(1, depth)


def _cache_bytes(config: TrainConfig, videos: int) -> float:
    """The mapped part of the decode-once cache, for widescreen videos; 0 if frames are kept at their own size."""
    frames, side = config.clip.keep_frames, config.clip.keep_short_side
    if config.data.cache is None or frames is None or side is None:
        return 0.0
    return videos * frames * 3 * side * side * ASPECT
