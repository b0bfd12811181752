"""The state of a run as plain tensors and JSON values, whole on every process even when it is sharded.

Names of tensors: `model.NAME` for the trained weights, `ema.NAME`, and `optim.NAME.KEY` for what the optimiser keeps
for the parameter NAME.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import SGD, AdamW, Optimizer

from fixformer.errors import WeightsError

# By optimiser, for every parameter it has moved.
KEPT = {SGD: {"momentum_buffer"}, AdamW: {"step", "exp_avg", "exp_avg_sq"}}


def whole(value: Tensor) -> Tensor:
    """A copy of a tensor on the CPU; a sharded one is collected, so every process must ask."""
    full = value.detach()
    if isinstance(full, DTensor):
        full = full.full_tensor()
    return full.to("cpu", copy=True).contiguous()


def like(value: Tensor, target: Tensor) -> Tensor:
    """A tensor where and as `target` is: on its device, sharded as it is."""
    value = value.to(target.device)
    if isinstance(target, DTensor):
        return distribute_tensor(value, target.device_mesh, target.placements)
    return value


def collect(state: Mapping[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    return {prefix + name: whole(value) for name, value in state.items()}


def collect_optimiser(model: nn.Module, optimiser: Optimizer) -> dict[str, Tensor]:
    """Moments and counters by parameter name; a parameter without state yet has none."""
    found = {}
    for name, parameter in model.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            if value is not None:
                found[f"optim.{name}.{key}"] = whole(torch.as_tensor(value))
    return found


@torch.no_grad()
def restore(state: Mapping[str, Tensor], tensors: Mapping[str, Tensor], prefix: str = "") -> None:
    """Copy stored tensors into a live state, in place.

    A run that had no average stored no `model.NAME`: its weights are those of the checkpoint itself, `saved.NAME`.
    """
    if not any(name.startswith(prefix) for name in tensors):
        prefix = "saved."
    _check_shapes(state, tensors, prefix)
    for name, value in state.items():
        value.copy_(like(tensors[prefix + name], value))


def _check_shapes(state: Mapping[str, Tensor], tensors: Mapping[str, Tensor], prefix: str) -> None:
    own = {name: tuple(value.shape) for name, value in state.items()}
    stored = {name.removeprefix(prefix): tuple(tensors[name].shape) for name in tensors if name.startswith(prefix)}
    for name in [*own, *stored]:
        if own.get(name) != stored.get(name):
            raise WeightsError(
                f"the run cannot go on with another {_setting(name, own.get(name), stored.get(name))}: {name} is "
                f"{stored.get(name, 'absent')} in the checkpoint, {own.get(name, 'absent')} in the model; set it back, "
                "or begin another run from these weights with --init."
            )


def _setting(name: str, own: tuple[int, ...] | None, stored: tuple[int, ...] | None) -> str:
    """The setting that a difference comes from, as far as the shape tells."""
    if own is None or stored is None:
        return "depth" if name.startswith("blocks.") else "model"
    tables = {"time_embed.": "frames", "position_embed.": "size", "head.fc.": "num_classes"}
    by_table = [setting for table, setting in tables.items() if name.startswith(table) and own[-1] == stored[-1]]
    return by_table[0] if by_table else "embed_dim or other setting of the model"


def restore_optimiser(model: nn.Module, optimiser: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """What another kind of optimiser kept means nothing to this one, which then begins anew."""
    for name, parameter in model.named_parameters():
        prefix = f"optim.{name}."
        stored = {key.removeprefix(prefix): tensors[key] for key in tensors if _belongs(key, prefix)}
        if stored.keys() == KEPT[type(optimiser)]:
            optimiser.state[parameter] = {
                key: like(value, parameter) if value.shape == parameter.shape else value.clone()
                for key, value in stored.items()
            }


def _belongs(key: str, prefix: str) -> bool:
    return key.startswith(prefix) and "." not in key[len(prefix) :]
