"""Everything that defines a training run."""

import re
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from fixformer.config.clip import ClipSpec, FrameCount, Side
from fixformer.config.data import DataConfig
from fixformer.config.eval import EvalConfig
from fixformer.config.schema import (
    Count,
    Expect,
    NonNegative,
    Positive,
    PositiveFraction,
    PositiveInt,
    Rate,
    Settings,
    Threads,
    between,
    coerce,
    dump,
    int_between,
)
from fixformer.errors import SettingsConflict, UserError, shown

Precision = Literal["float32", "bf16", "fp16"]
NoDecay = Literal["norms_and_biases", "head_biases", "none"]
Betas = Annotated[
    tuple[float, float], Expect("two values in [0, 1)", lambda betas: all(0 <= beta < 1 for beta in betas))
]
Epochs = Annotated[int, int_between(1, 100_000)]  # far beyond any schedule; steps are counted epoch by epoch
# torch knows other devices, on which these models fail in the middle of a run
Device = Annotated[str, Expect("auto, cpu, cuda or cuda:NUMBER", re.compile(r"auto|cpu|cuda(:\d+)?").fullmatch)]

# without --output it is part of the path of the run
RecipeName = Annotated[str, Expect("a name without a slash", re.compile(r"([^/\\.\0][^/\\\0]*)?").fullmatch)]
HIGHEST_RATE = 1e30  # optimisers compute in float32, which ends at 3e38
LearningRate = Annotated[
    float, Expect("a finite number more than 0, at most 1e30", lambda value: 0 < value <= HIGHEST_RATE)
]
Processes = Annotated[int, int_between(1, 64)]  # each has the weights and its own libraries in memory
LearningRateEnd = Annotated[float, between(0, HIGHEST_RATE)]
Seed = Annotated[int, Expect("an int of less than 64 bits", lambda seed: abs(seed) < 2**63)]


@dataclass(frozen=True)
class OptimConfig(Settings):
    """The optimiser and its learning rate schedule.

    Args:
        optimiser: "sgd" (Nesterov momentum) or "adamw".
        lr: base learning rate of the whole batch; not scaled by batch size or number of processes.
        weight_decay: per step, as the optimiser defines it.
        momentum: of SGD.
        betas: of AdamW.
        no_decay: which parameters weight decay skips: "norms_and_biases" (and learned position tables), "head_biases"
            (as in the released code) or "none".
        layer_decay: learning rate of a layer relative to the next one; 1 is the same for all.
        stem_scale: with stem="lite0", learning rate of the pre-trained image network relative to the rest.
        stem_frozen: with stem="lite0", how many of its first blocks are never trained; 3 reach down to stride 4.
        clip_norm: largest norm of the gradient; None does not clip.
        warmup_epochs: linear warm-up from `warmup_lr` to the cosine schedule.
        end_lr: final value of the cosine schedule.
    """

    optimiser: Literal["sgd", "adamw"] = "adamw"
    lr: LearningRate = 1e-3
    weight_decay: NonNegative = 0.05
    momentum: Rate = 0.9
    betas: Betas = (0.9, 0.98)
    no_decay: NoDecay = "norms_and_biases"
    layer_decay: PositiveFraction = 1.0
    stem_scale: PositiveFraction = 1.0
    stem_frozen: Annotated[int, int_between(0, 100)] = 0
    clip_norm: Positive | None = None
    warmup_epochs: NonNegative = 0.0
    warmup_lr: LearningRateEnd = 0.0
    end_lr: LearningRateEnd = 0.0


@dataclass(frozen=True)
class Stage(Settings):
    """A part of the run with its own clip size; small clips first make training faster."""

    epochs: Epochs
    frames: FrameCount
    size: Side
    batch_size: PositiveInt | None = None

    @classmethod
    def parse(cls, text: str) -> "Stage":
        """FRAMESxSIZE:EPOCHS[@BATCH], such as 8x48:20 or 16x64:10@8."""
        match = re.fullmatch(r"{0}x{0}:{0}(?:@{0})?".format(r"(\d{1,9})"), text)  # Python does not read endless numbers
        if match is None:
            raise UserError(f"stages={shown(text)}: expected FRAMESxSIZE:EPOCHS[@BATCH],..., such as 8x48:20,16x64:10.")
        frames, size, epochs, batch = match.groups()
        return cls(int(epochs), int(frames), int(size), int(batch) if batch else None)


Stages = Annotated[tuple[Stage, ...], Expect("a list of at most 100 stages", lambda stages: len(stages) <= 100)]


@dataclass(frozen=True)
class RunConfig(Settings):
    """How the computation is done.

    Args:
        device: "auto", "cpu", "cuda" or "cuda:1"; under torchrun every process takes its own GPU.
        precision: "bf16" and "fp16" use autocast; fp16 scales the loss.
        checkpointing: recompute activations in the backward pass to save memory.
        compile: use torch.compile.
        shard: shard weights, gradients and optimiser state across processes (FSDP2).
        threads: of torch in each process; None is torch's default.
        processes: that train together on a CPU; None starts as many as are faster than threads. For several GPUs or
            machines use torchrun.
    """

    device: Device = "auto"
    precision: Precision = "float32"
    checkpointing: bool = False
    compile: bool = False
    shard: bool = False
    threads: Threads | None = None
    processes: Processes | None = None


@dataclass(frozen=True)
class SaveConfig(Settings):
    """When checkpoints are written, besides after every evaluation and at the end of the run.

    Args:
        minutes: between checkpoints.
        steps: between checkpoints; None counts minutes only.
        keep: how many of the newest are kept; the best one always is.
    """

    minutes: Positive = 10.0
    steps: PositiveInt | None = None
    keep: PositiveInt = 2


@dataclass(frozen=True)
class TrainConfig(Settings):
    """A complete run.

    Args:
        recipe: the recipe it is based on.
        model, model_settings: as for `create_model`; classes, frames and size follow from data and clip.
        init: checkpoint or weight file to start from.
        pretrained: with stem="lite0" and no `init`, start from public image weights (extra "pretrained").
        data, clip, optim, eval, run, save: see their classes.
        epochs: of the whole run.
        frozen_epochs: with stem="lite0", the first of them, in which only the rest of the model is trained, on features
            of the image network that are computed once; each of the two phases has its own learning rate schedule.
        frozen_draws: how many augmented clips of each video these features are of.
        stages: clip sizes over the run; their epochs must add up to `epochs`. As text: 8x48:20,16x64:10.
        batch_size: clips per step, over all processes.
        micro_batch: clips per forward pass; gradients of a batch are accumulated. None: the whole batch at once.
        smoothing: label smoothing.
        ema: decay per step of the averaged weights, which are evaluated and saved; None is off.
        seed: of weights, order, augmentation and dropout.
        output: directory of the run.
        log_steps: steps between rows of the log.
    """

    recipe: RecipeName = ""
    model: str = "fixformer_tiny"
    model_settings: dict[str, Any] = field(default_factory=dict)
    init: str | None = None
    pretrained: bool = True
    data: DataConfig = field(default_factory=DataConfig)
    clip: ClipSpec = field(default_factory=ClipSpec)
    epochs: Epochs = 30
    frozen_epochs: Count = 0
    frozen_draws: Annotated[int, int_between(1, 1000)] = 4
    stages: Stages = ()
    batch_size: PositiveInt = 16
    micro_batch: PositiveInt | None = None
    smoothing: Rate = 0.0
    ema: Rate | None = None
    seed: Seed = 0
    optim: OptimConfig = field(default_factory=OptimConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    run: RunConfig = field(default_factory=RunConfig)
    save: SaveConfig = field(default_factory=SaveConfig)
    output: str = ""
    log_steps: PositiveInt = 10

    def check_together(self) -> None:
        if self.micro_batch is not None and self.micro_batch > self.batch_size:
            raise SettingsConflict(
                f"micro_batch={self.micro_batch} is larger than batch_size={self.batch_size}; lower it."
            )
        if self.optim.warmup_epochs >= self.epochs:
            raise SettingsConflict(
                f"warmup_epochs={self.optim.warmup_epochs:g} must be less than epochs={self.epochs}; lower it."
            )
        if self.frozen_epochs:
            self._check_frozen()
        if self.stages and sum(stage.epochs for stage in self.stages) != self.epochs:
            counts = " + ".join(str(stage.epochs) for stage in self.stages)
            raise SettingsConflict(f"the stages have {counts} epochs, but epochs={self.epochs}.")

    def _check_frozen(self) -> None:
        if self.frozen_epochs > self.epochs:
            raise SettingsConflict(f"frozen_epochs={self.frozen_epochs} is more than epochs={self.epochs}; lower it.")
        if self.stages or self.run.shard:
            other = "stages" if self.stages else "run.shard=true"
            raise SettingsConflict(f"frozen_epochs={self.frozen_epochs} cannot be combined with {other}; drop one.")
        for name, value in (("mixup", self.clip.augment.mixup), ("cutmix", self.clip.augment.cutmix)):
            if value and self.frozen_epochs == self.epochs:
                raise SettingsConflict(
                    f"{name}={value:g} mixes pixels, but with frozen_epochs={self.frozen_epochs} every epoch trains on "
                    f"features; set {name}=0 or lower frozen_epochs."
                )

    @property
    def batch_sizes(self) -> set[int]:
        """The batch sizes of all stages."""
        return {stage.batch_size or self.batch_size for stage in self.stages} or {self.batch_size}

    def stage_of(self, epoch: int) -> Stage:
        """The clip size and batch size of an epoch."""
        for stage in self.stages:
            if epoch < stage.epochs:
                return replace(stage, batch_size=stage.batch_size or self.batch_size)
            epoch -= stage.epochs
        return Stage(self.epochs, self.clip.frames, self.clip.size, self.batch_size)

    def with_epochs(self, epochs: int) -> "TrainConfig":
        """The same run over another number of epochs; stages scale along, and those left without epochs are dropped."""
        total = sum(stage.epochs for stage in self.stages)
        stages: list[Stage] = []
        start = done = 0
        for stage in self.stages:
            done += stage.epochs
            end = round(epochs * done / total)
            if end > start:
                stages.append(replace(stage, epochs=end - start))
            start = end
        return replace(self, epochs=epochs, stages=tuple(stages))


def check_device(name: str) -> None:
    """Raise a `UserError` unless `name` is a device that models here can run on."""
    coerce(name, Device, "device")


# Settings that a resumed run may change: where and how fast it runs, not what it computes.
FREE_TO_CHANGE = (
    *("output", "log_steps", "save", "eval.every", "eval.batch_size", "eval.baselines"),
    *("run.device", "run.compile", "run.shard", "run.threads", "run.processes", "run.checkpointing"),
    *("data.path", "data.videos", "data.workers", "data.prefetch", "data.cache"),
)


def changes(old: TrainConfig, new: TrainConfig) -> list[str]:
    """The settings in which two runs differ, as `name: old -> new`, except those that are free to change."""
    before, after = _flatten(dump(old)), _flatten(dump(new))
    found = []
    for name in {**before, **after}:
        is_free = any(name == free or name.startswith(f"{free}.") for free in FREE_TO_CHANGE)
        if before.get(name) != after.get(name) and not is_free:
            found.append(f"{name}: {before.get(name)} -> {after.get(name)}")
    return found


def _flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat
