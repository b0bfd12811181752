"""What a run is made of: the model, where it lives, its optimiser, its average, and their state as tensors."""

import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from fixformer.config import RunConfig, TrainConfig
from fixformer.errors import SettingsConflict, UserError, WeightsError
from fixformer.models.base import VideoModel
from fixformer.models.checkpoint import CONFIG, WEIGHTS, CheckpointError, find_checkpoint, read_info
from fixformer.models.registry import create_model
from fixformer.models.weights.loading import LoadReport, load_weights, read_weights
from fixformer.runtime.distributed import World
from fixformer.training.ema import Ema
from fixformer.training.optim import build_optimiser
from fixformer.training.state import collect, collect_optimiser, restore, restore_optimiser

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def build_model(config: TrainConfig, classes: int) -> VideoModel:
    """The model with the initial weights of the run's seed, sized for the run's clip."""
    torch.manual_seed(config.seed)
    return create_model(config.model, **model_settings(config, classes))


def model_settings(config: TrainConfig, classes: int) -> dict[str, Any]:
    sizes = {"num_classes": classes, "num_frames": config.clip.frames, "image_size": config.clip.size}
    return {**config.model_settings, **sizes}


def initialise(model: VideoModel, source: str, labels: list[str]) -> LoadReport:
    """Weights from a checkpoint, a run's directory or a weight file; a classifier of other labels stays behind."""
    file = weight_file(source)
    try:
        weights: Path | dict[str, Tensor] = file
        if _labels_beside(file) not in (None, labels):
            weights = {name: value for name, value in read_weights(file).items() if not name.startswith("head.fc.")}
        return load_weights(model, weights, quiet=True)
    except WeightsError as error:
        raise WeightsError(f"init={source!r}: {error}") from None


def _labels_beside(file: Path) -> list[str] | None:
    """What the classifier in a weight file means; None if no checkpoint of ours says so, as beside public weights."""
    try:
        return read_info(file.parent).labels if (file.parent / CONFIG).is_file() else None
    except CheckpointError:
        return None


def weight_file(source: str) -> Path:
    """The file that `init` means."""
    path = find_checkpoint(source) / WEIGHTS if Path(source).is_dir() else Path(source)
    if not path.is_file():
        raise UserError(f"init={source!r}: there is no such checkpoint, run or weight file.")
    return path


def check_sizes(config: TrainConfig, classes: int) -> None:
    """Every clip size of the run passes through the model, where it costs nothing, before anything costs."""
    if not config.stages:
        return  # then there is only the size that the model itself is made for
    with torch.device("meta"), torch.no_grad():
        model = create_model(config.model, **model_settings(config, classes)).eval()
        for stage in config.stages:
            model(torch.empty(1, 3, stage.frames, stage.size, stage.size))


def check_shares(config: TrainConfig, processes: int) -> None:
    """Every batch can be divided between the processes; mixed clips are pairs, which are not divided."""
    augment = config.clip.augment
    is_mixed = processes > 1 and (augment.mixup > 0 or augment.cutmix > 0)
    multiple = 2 * processes if is_mixed else processes
    for batch_size in config.batch_sizes:
        if batch_size % multiple:
            why = "mixup and cutmix pair the clips of a process" if is_mixed else "each takes the same number"
            raise SettingsConflict(
                f"batch_size={batch_size} cannot be divided between {processes} processes ({why}); make it a multiple "
                f"of {multiple}."
            )


class Learner:
    """Model, optimiser, loss scale and average of one run on one process."""

    def __init__(self, model: VideoModel, config: TrainConfig, world: World) -> None:
        self.config, self.world = config, world
        self.model = model.to(world.device)
        self.model.set_grad_checkpointing(config.run.checkpointing)
        self.forward = _placed(self.model, config.run, world)
        self.optimiser = build_optimiser(self.model, config.optim)
        self.ema = None if config.ema is None else Ema(self.model, config.ema)
        self.scaler = torch.amp.GradScaler(world.device.type, enabled=config.run.precision == "fp16")

    def autocast(self) -> AbstractContextManager[Any]:
        dtype = AUTOCAST.get(self.config.run.precision)
        return nullcontext() if dtype is None else torch.autocast(self.world.device.type, dtype)

    def accumulating(self, is_last: bool) -> AbstractContextManager[Any]:
        """Gradients travel between processes with the last part of a batch only."""
        if isinstance(self.forward, DistributedDataParallel) and not is_last:
            return self.forward.no_sync()
        if self.config.run.shard and self.world.size > 1:
            self.model.set_requires_gradient_sync(is_last)  # type: ignore[operator]
        return nullcontext()

    def apply_gradients(self, step: int) -> None:
        self.scaler.unscale_(self.optimiser)
        if self.config.optim.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.optim.clip_norm)
        self.scaler.step(self.optimiser)
        self.scaler.update()
        self.optimiser.zero_grad(set_to_none=True)
        if self.ema is not None:
            self.ema.update(self.model, step)

    def averaged(self) -> AbstractContextManager[None]:
        """The model as it is evaluated and saved."""
        return nullcontext() if self.ema is None else self.ema.in_place_of(self.model)

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Weights to save for use, and what training needs besides. Every process must ask."""
        rest = collect_optimiser(self.model, self.optimiser)
        trained = collect(self.model.state_dict())
        if self.ema is None:
            return trained, rest
        return collect(self.ema.average), {**rest, **{f"model.{name}": value for name, value in trained.items()}}

    def restore(self, tensors: dict[str, Tensor], scaler: dict[str, Any]) -> None:
        restore(self.model.state_dict(), tensors, "model.")
        if self.ema is not None:
            restore(self.ema.average, tensors, "saved.")
        restore_optimiser(self.model, self.optimiser, tensors)
        if self.scaler.is_enabled() and scaler:
            self.scaler.load_state_dict(scaler)


def _placed(model: VideoModel, run: RunConfig, world: World) -> nn.Module:
    """The model as the processes share it: alone, replicated or sharded; compiled if asked."""
    placed: nn.Module = model
    if world.size > 1 and run.shard:
        for block in getattr(model, "blocks", ()):
            fully_shard(block)
        fully_shard(model)
    elif world.size > 1:
        own = [world.device.index] if world.device.type == "cuda" else None
        # of depth-wise kernels, whose one input channel may have any stride
        warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
        placed = DistributedDataParallel(model, device_ids=own)
    if run.compile:
        placed.compile()
    return placed
