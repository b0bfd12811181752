"""Optimisers and which parameters they treat how. A group is a set of parameters with the same decay and rate."""

import re
from collections import defaultdict
from typing import Any

from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from fixformer.config import OptimConfig
from fixformer.errors import SettingsConflict
from fixformer.models.base import VideoModel

BLOCK = re.compile(r"blocks\.(\d+)\.")
# What makes tokens, and those that are learned; everything that is neither these nor a block comes after the last.
STEM = ("patch_embed.", "position_embed.", "time_embed.", "cls_", "temporal_cls_")


def build_optimiser(model: VideoModel, config: OptimConfig) -> Optimizer:
    """The optimiser over the groups of `param_groups`; set rates with `set_rate`."""
    groups = param_groups(model, config)
    if config.optimiser == "sgd":
        nesterov = config.momentum > 0
        return SGD(groups, lr=config.lr, momentum=config.momentum, nesterov=nesterov, dampening=0)
    return AdamW(groups, lr=config.lr, betas=config.betas)


def set_rate(optimiser: Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate * group["scale"]


def param_groups(model: VideoModel, config: OptimConfig) -> list[dict[str, Any]]:
    """Parameters by (decay, scale of the learning rate), in a fixed order."""
    scales = layer_scales(model, config.layer_decay)
    grouped: dict[tuple[float, float], list[Tensor]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            decay = config.weight_decay if is_decayed(model, name, parameter, config) else 0.0
            grouped[decay, scales[name]].append(parameter)
    keys = sorted(grouped, reverse=True)
    return [{"params": grouped[key], "weight_decay": key[0], "scale": key[1]} for key in keys]


def is_decayed(model: VideoModel, name: str, parameter: Tensor, config: OptimConfig) -> bool:
    if config.no_decay == "none":
        return True
    if config.no_decay == "head_biases":
        return not (name.startswith("head.") and name.endswith(".bias"))
    return parameter.ndim > 1 and name not in model.no_weight_decay()


def layer_scales(model: nn.Module, decay: float) -> dict[str, float]:
    """Of the learning rate by parameter: 1 after the last block, `decay` to the power of the distance before."""
    names = [name for name, _ in model.named_parameters()]
    if decay == 1:
        return dict.fromkeys(names, 1.0)
    depths = [int(match[1]) + 1 for name in names if (match := BLOCK.match(name))]
    if not depths:
        raise SettingsConflict(f"layer_decay={decay} needs a model made of blocks; {type(model).__name__} has none.")
    last = max(depths) + 1
    return {name: decay ** (last - _depth(name, last)) for name in names}


def _depth(name: str, last: int) -> int:
    match = BLOCK.match(name)
    if match:
        return int(match[1]) + 1
    return 0 if name.startswith(STEM) else last
