"""An exponential moving average of the weights, which is then evaluated and saved in their place."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Ema:
    """The average of a model's parameters and batch statistics; other buffers are copied."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.averaged = averaged_names(model)
        self.average = {name: value.detach().clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """After step number `step` (from 0). The average is short at first, to forget the initial weights soon."""
        # the warm-up of TensorFlow's ExponentialMovingAverage (`num_updates`)
        keep = min(self.decay, (1 + step) / (10 + step))
        for name, value in model.state_dict().items():
            if name in self.averaged:
                self.average[name].lerp_(value, 1 - keep)
            else:
                self.average[name].copy_(value)

    @contextmanager
    def in_place_of(self, model: nn.Module) -> Iterator[None]:
        """Give the model the averaged weights inside the block; its own are restored afterwards, bit by bit."""
        self._exchange(model)
        try:
            yield
        finally:
            self._exchange(model)

    @torch.no_grad()
    def _exchange(self, model: nn.Module) -> None:
        for name, value in model.state_dict().items():
            own: Tensor = self.average[name].clone()
            self.average[name].copy_(value)
            value.copy_(own)


def averaged_names(model: nn.Module) -> set[str]:
    """Parameters, and the statistics of batch norms, which follow them.

    The average of other buffers may be meaningless: Performer's random features are orthogonal, their average is not.
    """
    statistics = {
        f"{name}.{kind}".removeprefix(".")
        for name, module in model.named_modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm)
        for kind in ("running_mean", "running_var")
    }
    return statistics | {name for name, _ in model.named_parameters(remove_duplicate=False)}
