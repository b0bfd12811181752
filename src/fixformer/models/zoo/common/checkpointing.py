"""Recompute a block in the backward pass instead of keeping its activations."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint


def run_block(block: nn.Module, *inputs: Any, checkpointing: bool) -> Any:
    """`block(*inputs)`, recomputed in the backward pass if `checkpointing`."""
    if checkpointing and torch.is_grad_enabled():
        contexts = nullcontext(), _frozen_statistics(block)  # of the first and of the second forward pass
        return checkpoint(block, *inputs, use_reentrant=False, context_fn=lambda: contexts)
    return block(*inputs)


@contextmanager
def _frozen_statistics(block: nn.Module) -> Iterator[None]:
    """The second pass sees the same batch, which would otherwise count twice in BatchNorm's running statistics."""
    before = [
        (norm, norm.momentum, norm.num_batches_tracked, norm.num_batches_tracked.clone())
        for norm in block.modules()
        if isinstance(norm, _BatchNorm) and norm.num_batches_tracked is not None
    ]
    for norm, *_ in before:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum, num_batches, num_batches_before in before:
            norm.momentum = momentum
            num_batches.copy_(num_batches_before)
