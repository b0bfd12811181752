"""What a run will take, before it is started: steps, memory and time."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from fixformer.bench.cost import cost
from fixformer.bench.machine import sgemm_gmacs
from fixformer.config import dump
from fixformer.data.index import Index
from fixformer.train_config import TrainConfig

# Of a training step: forward and two products backward, at the share of the matrix-multiply rate that `bench train`
# measures for these models.
PASSES, EFFICIENCY = 3, 0.45
BYTES = {"float32": 4, "bf16": 2, "fp16": 2}


@dataclass(frozen=True)
class Plan:
    """A prediction. `hours` is for one process of this machine; `gmacs` is its measured matrix-multiply rate."""

    config: dict[str, Any]
    classes: int
    train_videos: int
    test_videos: int
    steps: int
    params: int
    memory_mb: float
    hours: float
    gmacs: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{json.dumps(self.config, indent=1)}\n"
            f"{self.train_videos} training and {self.test_videos} test videos of {self.classes} classes\n"
            f"{self.config['model']}: {self.params / 1e6:.2f} M parameters\n"
            f"{self.steps} steps of {self.config['batch_size']} clips, {self.config['epochs']} epochs\n"
            f"memory about {self.memory_mb / 1024:.1f} GB a process, about {self.hours:.1f} hours on this machine\n"
            f"({self.gmacs:.0f} billion multiply-accumulates per second measured now, {EFFICIENCY:.0%} of it assumed)"
        )


def make_plan(config: TrainConfig, index: Index) -> Plan:
    """Counted on the meta device; only the machine's rate is measured."""
    videos, classes = len(index.split("train")), len(index.labels)
    gmacs = sgemm_gmacs(0.3)
    steps, macs = 0, 0.0
    for epoch in range(config.epochs):
        stage = config.stage_of(epoch)
        batch = stage.batch_size or config.batch_size
        steps += videos // batch
        macs += videos // batch * batch * _macs(config, classes, stage.frames, stage.size)
    whole = cost(config.model, config.clip.frames, config.clip.size, num_classes=classes, **config.model_settings)
    return Plan(
        config=dump(config),
        classes=classes,
        train_videos=videos,
        test_videos=len(index.split(index.eval_split)),
        steps=steps,
        params=whole.params,
        memory_mb=_memory(config, whole.params, whole.activations) / 2**20,
        hours=PASSES * macs / (gmacs * 1e9 * EFFICIENCY) / 3600,
        gmacs=gmacs,
    )


_COSTS: dict[tuple[Any, ...], int] = {}


def _macs(config: TrainConfig, classes: int, frames: int, size: int) -> int:
    key = (config.model, json.dumps(config.model_settings, sort_keys=True), classes, frames, size)
    if key not in _COSTS:
        found = cost(config.model, frames, size, num_classes=classes, **config.model_settings)
        _COSTS[key] = found.executed_macs
    return _COSTS[key]


def _memory(config: TrainConfig, params: int, activations: int) -> float:
    """Weights, gradients, what the optimiser and the average keep, and the activations of one forward pass."""
    moments = 2 if config.optim.optimiser == "adamw" else 1
    copies = 2 + moments + (config.ema is not None)
    clips = config.micro_batch or config.batch_size
    saved = activations * clips * BYTES[config.run.precision] / 4
    if config.run.checkpointing:
        depth = config.model_settings.get("depth", 12)
        saved *= 2 / (depth + 1)
    pixels = 3 * config.clip.frames * config.clip.size**2 * 4 * clips
    return copies * 4 * params + saved + pixels
