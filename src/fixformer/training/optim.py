"""Optimisers and their parameter groups: parameters with the same weight decay and learning rate."""

import re
from collections import defaultdict
from typing import Any

from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from fixformer.config import OptimConfig
from fixformer.errors import SettingsConflict
from fixformer.models.base import VideoModel

BLOCK = re.compile(r"blocks\.(\d+)\.")
# Parameters before the first block: patch, position and time embeddings and learned tokens. Those that are neither here
# nor in a block come after the last block.
STEM = ("patch_embed.", "position_embed.", "time_embed.", "cls_", "temporal_cls_")

# Of `stem="lite0"`: the part that comes with public image weights.
IMAGE_NETWORK = "patch_embed.features."


def build_optimiser(model: VideoModel, config: OptimConfig) -> Optimizer:
    """The optimiser over the groups of `param_groups`; `set_rate` sets their learning rates."""
    groups = param_groups(model, config)
    if config.optimiser == "sgd":
        nesterov = config.momentum > 0
        return SGD(groups, lr=config.lr, momentum=config.momentum, nesterov=nesterov, dampening=0)
    return AdamW(groups, lr=config.lr, betas=config.betas)


def set_rate(optimiser: Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate * group["scale"]


def param_groups(model: VideoModel, config: OptimConfig) -> list[dict[str, Any]]:
    """Parameters grouped by weight decay and scale of the learning rate, in a fixed order."""
    scales = layer_scales(model, config.layer_decay)
    scales |= {name: scale * config.stem_scale for name, scale in scales.items() if name.startswith(IMAGE_NETWORK)}
    grouped: dict[tuple[float, float], list[Tensor]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            decay = config.weight_decay if is_decayed(model, name, parameter, config) else 0.0
            grouped[decay, scales[name]].append(parameter)
    keys = sorted(grouped, reverse=True)
    return [{"params": grouped[key], "weight_decay": key[0], "scale": key[1]} for key in keys]


def is_decayed(model: VideoModel, name: str, parameter: Tensor, config: OptimConfig) -> bool:
    """Whether weight decay applies to a parameter, by the rule `config.no_decay`."""
    if config.no_decay == "none":
        return True
    if config.no_decay == "head_biases":
        return not (name.startswith("head.") and name.endswith(".bias"))
    return parameter.ndim > 1 and name not in model.no_weight_decay()


def layer_scales(model: nn.Module, decay: float) -> dict[str, float]:
    """Factor of the learning rate by parameter: 1 after the last block, times `decay` for every block further down."""
    names = [name for name, _ in model.named_parameters()]
    if decay == 1:
        return dict.fromkeys(names, 1.0)
    depths = {name: int(match[1]) + 1 for name in names if (match := BLOCK.match(name))}
    if not depths:
        raise SettingsConflict(f"layer_decay={decay} needs a model made of blocks; {type(model).__name__} has none.")
    last = max(depths.values()) + 1
    return {name: decay ** (last - depths.get(name, 0 if name.startswith(STEM) else last)) for name in names}
