"""Sums over thousands of tokens and exponentials need float32, whatever the precision around them."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, ParamSpec

import torch
from torch import Tensor

P = ParamSpec("P")


def upcast(x: Any) -> Any:
    """Half-precision tensors as float32; everything else as it is."""
    return x.float() if isinstance(x, Tensor) and x.dtype in (torch.float16, torch.bfloat16) else x


def no_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Autocast would send float32 matrix products back to half precision."""
    # The context is entered only where it changes something: it leaves a mark in exported graphs.
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def accumulate_in_float32(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Compute `function` in float32 or better; a floating-point result has the dtype of the first argument."""

    @wraps(function)
    def accumulate(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        first = args[0]
        assert isinstance(first, Tensor)
        with no_autocast(first.device):
            out = function(*map(upcast, args), **{name: upcast(x) for name, x in kwargs.items()})
        return out.to(first.dtype) if out.is_floating_point() else out

    return accumulate
