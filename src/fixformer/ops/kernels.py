"""Feature maps φ of linear attention: element-wise, and non-negative so that every weight is."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

Kernel = Callable[[Tensor], Tensor]


def relu(x: Tensor) -> Tensor:
    """ReLU plus head_dim^-½, the constant of the released code: without it a denominator can vanish."""
    return F.relu(x) + x.shape[-1] ** -0.5


def elu1(x: Tensor) -> Tensor:
    """elu(x) + 1, the map of the Linear Transformer."""
    return F.elu(x) + 1


def sigmoid(x: Tensor) -> Tensor:
    return x.sigmoid()


def identity(x: Tensor) -> Tensor:
    """For attention that has no feature map."""
    return x


KERNELS: dict[str, Kernel] = {"relu": relu, "elu1": elu1, "sigmoid": sigmoid}
