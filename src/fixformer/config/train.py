"""Everything that defines a training run. No torch here: a run is checked before anything heavy is imported."""

import re
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Literal

from fixformer.config.clip import ClipSpec
from fixformer.config.data import DataConfig
from fixformer.config.eval import EvalConfig
from fixformer.config.schema import dump, require
from fixformer.errors import SettingsConflict

Precision = Literal["float32", "bf16", "fp16"]
NoDecay = Literal["norms_and_biases", "head_biases", "none"]

# What may differ between a run and its continuation: it changes where and how fast, not what.
FREE_TO_CHANGE = (
    *("output", "log_steps", "save", "eval.every", "eval.batch_size", "run.device", "run.compile", "run.shard"),
    *("run.threads", "run.checkpointing", "data.path", "data.videos", "data.workers", "data.prefetch", "data.cache"),
)


@dataclass(frozen=True)
class OptimConfig:
    """The optimiser and its learning rate over time.

    Args:
        optimiser: "sgd" (Nesterov momentum) or "adamw".
        lr: base learning rate, for the whole batch; never scaled behind your back.
        weight_decay: per step, as the optimiser defines it.
        momentum: of SGD.
        betas: of AdamW.
        no_decay: what weight decay leaves alone: "norms_and_biases" (and learned tables), "head_biases" (the released
            code's rule: everything else is decayed) or "none".
        layer_decay: learning rate of a layer relative to the layer after it; 1 treats all alike.
        clip_norm: largest norm of the gradient.
        warmup_epochs: linear from `warmup_lr` to the cosine's value at their end.
        end_lr: where the cosine ends.
    """

    optimiser: Literal["sgd", "adamw"] = "adamw"
    lr: float = 1e-3
    weight_decay: float = 0.05
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.98)
    no_decay: NoDecay = "norms_and_biases"
    layer_decay: float = 1.0
    clip_norm: float | None = None
    warmup_epochs: float = 0.0
    warmup_lr: float = 0.0
    end_lr: float = 0.0

    def validate(self) -> None:
        require(0 < self.lr < inf, "lr", self.lr, "a number more than 0")
        require(0 < self.layer_decay <= 1, "layer_decay", self.layer_decay, "in (0, 1]")
        require(0 <= self.momentum < 1, "momentum", self.momentum, "in [0, 1)")
        require(all(0 <= beta < 1 for beta in self.betas), "betas", self.betas, "two values in [0, 1)")
        require(self.clip_norm is None or self.clip_norm > 0, "clip_norm", self.clip_norm, "more than 0")
        for name in ("weight_decay", "warmup_epochs", "warmup_lr", "end_lr"):
            require(0 <= getattr(self, name) < inf, name, getattr(self, name), "a number of at least 0")


@dataclass(frozen=True)
class Stage:
    """A part of the run at its own clip size: few frames and pixels first learn more per minute."""

    epochs: int
    frames: int
    size: int
    batch_size: int | None = None

    def validate(self) -> None:
        for name in ("epochs", "frames", "size"):
            require(getattr(self, name) >= 1, f"stages.{name}", getattr(self, name), "at least 1")
        require(self.batch_size is None or self.batch_size >= 1, "stages.batch_size", self.batch_size, "at least 1")


@dataclass(frozen=True)
class RunConfig:
    """How the computation is done.

    Args:
        device: "auto", "cpu", "cuda" or "cuda:1"; under torchrun every process takes its own GPU.
        precision: "bf16" and "fp16" use autocast; fp16 scales the loss.
        checkpointing: trade a second forward pass for activation memory.
        compile: through torch.compile.
        shard: divide weights, gradients and optimiser state between processes (FSDP2).
        threads: of torch in each process; None leaves torch's choice.
    """

    device: str = "auto"
    precision: Precision = "float32"
    checkpointing: bool = False
    compile: bool = False
    shard: bool = False
    threads: int | None = None

    def validate(self) -> None:
        check_device(self.device)
        require(self.threads is None or self.threads >= 1, "threads", self.threads, "at least 1")


@dataclass(frozen=True)
class SaveConfig:
    """When checkpoints are written, besides the end of the run and of every evaluated epoch.

    Args:
        minutes: between checkpoints.
        steps: between checkpoints; None counts minutes only.
        keep: how many of the newest stay; the best one always does.
    """

    minutes: float = 10.0
    steps: int | None = None
    keep: int = 2

    def validate(self) -> None:
        require(self.minutes > 0, "minutes", self.minutes, "more than 0")
        require(self.steps is None or self.steps >= 1, "steps", self.steps, "at least 1")
        require(self.keep >= 1, "keep", self.keep, "at least 1")


@dataclass(frozen=True)
class TrainConfig:
    """A complete run.

    Args:
        recipe: the name it came from.
        model, model_settings: as `create_model` takes them; classes, frames and size follow from data and clip.
        init: checkpoint or weight file to start from.
        data, clip, optim, eval, run, save: see there.
        epochs: of the whole run.
        stages: clip sizes over the run; their epochs must add up to `epochs`. As text: 8x48:20,16x64:10.
        batch_size: clips per step, all processes together.
        micro_batch: clips per forward pass; the rest of the batch follows and gradients add up. None: all at once.
        smoothing: of labels.
        ema: decay per step of the averaged weights that are evaluated and saved; None is off.
        seed: of weights, order, augmentation and dropout.
        output: directory of the run.
        log_steps: between rows of the log.
    """

    recipe: str = ""
    model: str = "fixformer_tiny"
    model_settings: dict = field(default_factory=dict)
    init: str | None = None
    data: DataConfig = field(default_factory=DataConfig)
    clip: ClipSpec = field(default_factory=ClipSpec)
    epochs: int = 30
    stages: tuple[Stage, ...] = ()
    batch_size: int = 16
    micro_batch: int | None = None
    smoothing: float = 0.0
    ema: float | None = None
    seed: int = 0
    optim: OptimConfig = field(default_factory=OptimConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    run: RunConfig = field(default_factory=RunConfig)
    save: SaveConfig = field(default_factory=SaveConfig)
    output: str = ""
    log_steps: int = 10

    def validate(self) -> None:
        parts: tuple[Any, ...] = (self.data, self.clip, self.optim, self.eval, self.run, self.save, *self.stages)
        for part in parts:
            part.validate()
        for name in ("epochs", "batch_size", "log_steps"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(abs(self.seed) < 2**63, "seed", self.seed, "a number of less than 64 bits")
        require(0 <= self.smoothing < 1, "smoothing", self.smoothing, "in [0, 1)")
        require(self.ema is None or 0 <= self.ema < 1, "ema", self.ema, "in [0, 1)")
        self._check_pairs()

    def _check_pairs(self) -> None:
        if self.micro_batch is not None and not 1 <= self.micro_batch <= self.batch_size:
            raise SettingsConflict(
                f"micro_batch={self.micro_batch} must lie between 1 and batch_size={self.batch_size}; lower it."
            )
        if self.optim.warmup_epochs >= self.epochs:
            raise SettingsConflict(
                f"warmup_epochs={self.optim.warmup_epochs:g} leaves nothing of epochs={self.epochs}; lower it."
            )
        if self.stages and sum(stage.epochs for stage in self.stages) != self.epochs:
            counts = " + ".join(str(stage.epochs) for stage in self.stages)
            raise SettingsConflict(f"the stages have {counts} epochs, but epochs={self.epochs}.")

    @property
    def batch_sizes(self) -> set[int]:
        """Of all stages."""
        return {stage.batch_size or self.batch_size for stage in self.stages} or {self.batch_size}

    def stage_of(self, epoch: int) -> Stage:
        """The clip size and batch of an epoch."""
        for stage in self.stages:
            if epoch < stage.epochs:
                return replace(stage, batch_size=stage.batch_size or self.batch_size)
            epoch -= stage.epochs
        return Stage(self.epochs, self.clip.frames, self.clip.size, self.batch_size)


def check_device(name: str) -> None:
    """Where models here can run; torch knows other devices, on which they fail somewhere in the middle."""
    require(bool(re.fullmatch(r"auto|cpu|cuda(:\d+)?", name)), "device", name, "auto, cpu, cuda or cuda:NUMBER")


def changes(old: TrainConfig, new: TrainConfig) -> list[str]:
    """What differs and matters between two runs, as `name: old -> new`."""
    before, after = _flat(dump(old)), _flat(dump(new))
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return [f"{name}: {before.get(name)} -> {after.get(name)}" for name in names if not _is_free(name)]


def _is_free(name: str) -> bool:
    return any(name == free or name.startswith(f"{free}.") for free in FREE_TO_CHANGE)


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        inner = _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
        flat.update(inner)
    return flat
