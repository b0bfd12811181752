"""What a training step changes: model, optimiser, loss scale and averaged weights of one process."""

import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from fixformer.config import RunConfig, TrainConfig
from fixformer.models.base import VideoModel
from fixformer.models.layers.lite0 import Lite0Stem
from fixformer.models.video_transformer import VideoTransformer
from fixformer.runtime.distributed import World
from fixformer.training.ema import Ema
from fixformer.training.optim import build_optimiser
from fixformer.training.state import collect, collect_optimiser, restore, restore_optimiser

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Learner:
    """The model of a run on its device, with everything that updates it."""

    def __init__(self, model: VideoModel, config: TrainConfig, world: World) -> None:
        self.config, self.world = config, world
        self.model = model.to(world.device)
        if isinstance(stem := stem_of(model), Lite0Stem):
            stem.features.freeze(config.optim.stem_frozen)
        self.model.set_grad_checkpointing(config.run.checkpointing)
        self.is_frozen = False
        # before the optimiser, because sharding replaces the parameters
        self.forward = _distribute(self.model, self.model, config.run, world)
        self.optimiser = build_optimiser(self.model, config.optim)
        self.ema = None if config.ema is None else Ema(self.model, config.ema)
        self.scaler = torch.amp.GradScaler(world.device.type, enabled=config.run.precision == "fp16")

    def freeze_stem(self, is_frozen: bool) -> None:
        """Begin the phase in which `forward` takes features of the frozen image network, or the one of pixels."""
        if is_frozen == self.is_frozen:
            return
        self.is_frozen = is_frozen
        stem = stem_of(self.model)
        assert isinstance(stem, Lite0Stem)
        stem.features.freeze(None if is_frozen else self.config.optim.stem_frozen)
        called = FromFeatures(self.model) if is_frozen else self.model
        self.forward = _distribute(called, self.model, self.config.run, self.world)

    def autocast(self) -> AbstractContextManager[Any]:
        dtype = AUTOCAST.get(self.config.run.precision)
        return nullcontext() if dtype is None else torch.autocast(self.world.device.type, dtype)

    def accumulating(self, is_last: bool) -> AbstractContextManager[Any]:
        """Exchange gradients between processes only with the last part of a batch."""
        if isinstance(self.forward, DistributedDataParallel) and not is_last:
            return self.forward.no_sync()
        if self.config.run.shard and self.world.size > 1:
            self.model.set_requires_gradient_sync(is_last)  # type: ignore[operator]
        return nullcontext()

    def apply_gradients(self, step: int) -> None:
        """Update the weights after the backward passes of step number `step` (from 0)."""
        self.scaler.unscale_(self.optimiser)
        if self.config.optim.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.optim.clip_norm)
        self.scaler.step(self.optimiser)
        self.scaler.update()
        self.optimiser.zero_grad(set_to_none=True)
        if self.ema is not None:
            self.ema.update(self.model, step)

    def averaged(self) -> AbstractContextManager[None]:
        """A context in which the model has the averaged weights, with which it is evaluated."""
        return nullcontext() if self.ema is None else self.ema.in_place_of(self.model)

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Weights to evaluate, and the other tensors needed to resume. A collective call: on every process."""
        rest = collect_optimiser(self.model, self.optimiser)
        trained = collect(self.model.state_dict())
        if self.ema is None:
            return trained, rest
        return collect(self.ema.average), {**rest, **{f"model.{name}": value for name, value in trained.items()}}

    def restore(self, tensors: dict[str, Tensor], scaler: dict[str, Any]) -> None:
        """Continue from the tensors of a checkpoint (`checkpoint_store.read_tensors`) and its loss scale."""
        restore(self.model.state_dict(), tensors, "model.")
        if self.ema is not None:
            restore(self.ema.average, tensors, "saved.")
        restore_optimiser(self.model, self.optimiser, tensors)
        if self.scaler.is_enabled() and scaler:
            self.scaler.load_state_dict(scaler)


class FromFeatures(nn.Module):
    """A model with `stem="lite0"` from the features of its image network on."""

    def __init__(self, model: VideoModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, features_BTHWC: Tensor) -> Tensor:
        assert isinstance(self.model, VideoTransformer)
        assert isinstance(self.model.patch_embed, Lite0Stem)
        tokens_BTHWD = self.model.encode(self.model.patch_embed.embed(features_BTHWC))
        return self.model.forward_head(tokens_BTHWD)


def stem_of(model: VideoModel) -> nn.Module | None:
    """What makes the tokens of our own Transformer."""
    return model.patch_embed if isinstance(model, VideoTransformer) else None


def _distribute(module: nn.Module, model: VideoModel, run: RunConfig, world: World) -> nn.Module:
    """The module to call in training: the model itself, or one around it, replicated or sharded, perhaps compiled."""
    if world.size > 1 and run.shard:
        for block in getattr(model, "blocks", ()):
            fully_shard(block)
        fully_shard(model)
    elif world.size > 1:
        devices = [world.device.index] if world.device.type == "cuda" else None
        # the gradient of a depth-wise kernel may have any stride along its single input channel; it costs nothing
        warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
        module = DistributedDataParallel(module, device_ids=devices)
    if run.compile:
        module.compile()
    return module
