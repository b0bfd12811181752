"""Initial weights."""

import math

from torch import nn


def init_weights(module: nn.Module) -> None:
    """As released: Linear truncated normal 0.02, bias zero; convolution normal by the fan-out of its group."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Conv2d):
        fan_out = math.prod(module.kernel_size) * module.out_channels // module.groups
        nn.init.normal_(module.weight, std=math.sqrt(2 / fan_out))
        assert module.bias is not None
        nn.init.zeros_(module.bias)
