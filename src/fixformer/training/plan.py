"""What a run will take, before it is started: steps, memory and time."""

import json
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import torch

from fixformer.config import TrainConfig, parse_views
from fixformer.config.schema import dump
from fixformer.data.listing import Index
from fixformer.models.cost import Cost, cost
from fixformer.models.registry import create_model
from fixformer.runtime.machine import sgemm_gmacs

# Of a training step: forward and two products backward. Steps of fixformer_tiny (8x48, 12x64) and fixformer_small
# (8x112) on one thread ran at 0.47 to 0.59 of the matrix-multiply rate measured right before and after them, and held
# at most 1.34 to 1.57 times the activations that are kept: the gradients of some live beside them.
PASSES, EFFICIENCY, PEAK = 3, 0.5, 1.6
# Python, torch and the libraries, measured; the aspect of most videos.
PROCESS_MB, WIDE = 350, 16 / 9
BYTES = {"float32": 4, "bf16": 2, "fp16": 2}


@dataclass(frozen=True)
class Plan:
    """An estimate. `hours` is for one process of this machine; `gmacs` is its measured matrix-multiply rate.

    `memory_mb` is what the model takes on its device, `host_mb` what the process takes besides: itself, and the cache
    as far as it is mapped, which the system takes back when memory is short.
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

    def _time(self) -> str:
        if self.hours >= 1:
            return f"{self.hours:.1f} hours"
        return f"{60 * self.hours:.0f} minutes" if self.hours >= 2 / 60 else "a minute or two"

    def __str__(self) -> str:
        return (
            f"{json.dumps(self.config, indent=1)}\n"
            f"{self.train_videos} training and {self.test_videos} test videos of {self.classes} classes\n"
            f"{self.config['model']}: {self.params / 1e6:.2f} M parameters\n"
            f"{self.steps} steps of {self.config['batch_size']} clips, {self.config['epochs']} epochs\n"
            f"estimated for one process: {self.memory_mb / 1024:.1f} GB of memory for the model and its activations, "
            f"{self.host_mb / 1024:.1f} GB for the process and its cache, {self._time()} on this machine\n"
            f"({self.gmacs:.0f} billion multiply-accumulates per second measured now, {EFFICIENCY:.0%} of it assumed)"
        )


def make_plan(config: TrainConfig, index: Index) -> Plan:
    """Counted on the meta device; only the machine's rate is measured."""
    videos, tests, classes = len(index.split("train")), len(index.split(index.eval_split)), len(index.labels)
    stages = [config.stage_of(epoch) for epoch in range(config.epochs)]
    own = (config.clip.frames, config.clip.size)
    costs = {size: _cost(config, classes, *size) for size in {own, *((stage.frames, stage.size) for stage in stages)}}
    whole = costs[own]
    gmacs = sgemm_gmacs(0.3)
    steps, macs = 0, 0
    for epoch, stage in enumerate(stages, 1):
        batch, each = stage.batch_size or config.batch_size, costs[stage.frames, stage.size].executed_macs
        steps += videos // batch
        is_scored = epoch == config.epochs or (config.eval.every and epoch % config.eval.every == 0)
        macs += (PASSES * (videos // batch) * batch + tests * bool(is_scored)) * each
    macs += tests * prod(parse_views(config.eval.views)) * whole.executed_macs
    parts = [(stage.batch_size or config.batch_size, costs[stage.frames, stage.size]) for stage in set(stages)]
    return Plan(
        config=dump(config),
        classes=classes,
        train_videos=videos,
        test_videos=tests,
        steps=steps,
        params=whole.params,
        memory_mb=max(_evaluating(config, whole), *(_training(config, batch, found) for batch, found in parts)) / 2**20,
        host_mb=PROCESS_MB + _cached(config, videos + tests) / 2**20,
        hours=macs / (gmacs * 1e9 * EFFICIENCY) / 3600,
        gmacs=gmacs,
    )


def _cost(config: TrainConfig, classes: int, frames: int, size: int) -> Cost:
    return cost(config.model, frames, size, num_classes=classes, **config.model_settings)


def _training(config: TrainConfig, batch: int, found: Cost) -> float:
    """Weights, gradients, what the optimiser and the average keep, clips, and activations with their gradients."""
    clips = min(batch, config.micro_batch or batch)
    blocks, depth = _blocks(found)
    saved = found.activations - (blocks * (1 - 2 / (depth + 1)) if config.run.checkpointing else 0)
    half = BYTES[config.run.precision] / 4
    return _weights(config, found) + clips * (PEAK * saved * half + 3 * found.frames * found.size**2 * 4)


def _evaluating(config: TrainConfig, found: Cost) -> float:
    """The weights and the widest place of a forward pass: a third of what training keeps of a block, as measured."""
    clips = config.eval.batch_size * prod(parse_views(config.eval.views))
    blocks, depth = _blocks(found)
    widest = (blocks or found.activations) / (3 * depth)
    return _weights(config, found) + clips * (widest + 3 * found.frames * found.size**2 * 4)


def _weights(config: TrainConfig, found: Cost) -> int:
    moments = 2 if config.optim.optimiser == "adamw" else 1
    return (2 + moments + (config.ema is not None)) * 4 * found.params


def _blocks(found: Cost) -> tuple[int, int]:
    """Activations of the blocks, which recomputing leaves out, and how many there are."""
    with torch.device("meta"):
        depth = len(getattr(create_model(found.model, **found.settings), "blocks", ()))
    return sum(part.activations for part in found.parts if part.name.startswith("blocks.")), max(1, depth)


def _cached(config: TrainConfig, videos: int) -> float:
    """The mapped part of the decode-once cache, if its pictures are wide; of videos kept whole nothing is known."""
    frames, side = config.clip.keep_frames, config.clip.keep_short_side
    if config.data.cache is None or frames is None or side is None:
        return 0.0
    return videos * frames * 3 * side * side * WIDE
