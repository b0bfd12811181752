"""The state of a run as named tensors, complete on every process even when it is sharded.

Names: `saved.NAME` for the weights of the checkpoint itself, `model.NAME` for the trained weights where those of the
checkpoint are averaged, and `optim.NAME.KEY` for the optimiser's state of the parameter NAME.
"""

from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import SGD, AdamW, Optimizer

from fixformer.errors import WeightsError

# What each optimiser stores for a parameter it has updated.
OPTIMISER_STATE = {SGD: {"momentum_buffer"}, AdamW: {"step", "exp_avg", "exp_avg_sq"}}


def full_copy(value: Tensor) -> Tensor:
    """A copy of a tensor on the CPU. For a sharded one this is a collective call: on every process."""
    full = value.detach()
    if isinstance(full, DTensor):
        full = full.full_tensor()
    return full.to("cpu", copy=True).contiguous()


def like(value: Tensor, target: Tensor) -> Tensor:
    """The tensor on the device of `target`, sharded as `target` is."""
    value = value.to(target.device)
    if isinstance(target, DTensor):
        return distribute_tensor(value, target.device_mesh, target.placements)
    return value


def collect(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: full_copy(value) for name, value in state.items()}


def collect_optimiser(model: nn.Module, optimiser: Optimizer) -> dict[str, Tensor]:
    """The optimiser's state by parameter name; a parameter that was not updated yet has none."""
    found = {}
    for name, parameter in model.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            if value is not None:
                found[f"optim.{name}.{key}"] = full_copy(torch.as_tensor(value))
    return found


@torch.no_grad()
def restore(state: Mapping[str, Tensor], tensors: Mapping[str, Tensor], prefix: str) -> None:
    """Copy the stored tensors `prefix + NAME` into a live state, in place.

    A run without averaged weights stores no `model.NAME`: its weights are those of the checkpoint, `saved.NAME`.
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
                f"the run cannot be resumed with another {_setting(name, own.get(name), stored.get(name))}: {name} is "
                f"{stored.get(name, 'absent')} in the checkpoint, {own.get(name, 'absent')} in the model; restore the "
                "setting, or start another run from these weights with --init."
            )


def _setting(name: str, own: tuple[int, ...] | None, stored: tuple[int, ...] | None) -> str:
    """The setting a difference probably comes from, judged by the tensor's name and shapes."""
    if own is None or stored is None:
        return "depth" if name.startswith("blocks.") else "model"
    tables = {"time_embed.": "frames", "position_embed.": "size", "head.fc.": "num_classes"}
    by_table = [setting for table, setting in tables.items() if name.startswith(table) and own[-1] == stored[-1]]
    return by_table[0] if by_table else "embed_dim or other setting of the model"


def restore_optimiser(model: nn.Module, optimiser: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """The state of another kind of optimiser is of no use to this one, which then starts without any."""
    by_parameter: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for name, value in tensors.items():
        if name.startswith("optim."):
            parameter_name, _, key = name.removeprefix("optim.").rpartition(".")
            by_parameter[parameter_name][key] = value
    for name, parameter in model.named_parameters():
        stored = by_parameter[name]
        if stored.keys() == OPTIMISER_STATE[type(optimiser)]:
            optimiser.state[parameter] = {
                key: like(value, parameter) if value.shape == parameter.shape else value.clone()
                for key, value in stored.items()
            }
