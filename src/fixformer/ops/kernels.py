"""Feature maps φ of linear attention: element-wise, and non-negative so that every weight is."""

from collections.abc import Callable

import torch
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

# The same, written over what they are given.
IN_PLACE: dict[Kernel, Kernel] = {
    relu: lambda x: x.relu_().add_(x.shape[-1] ** -0.5),
    elu1: lambda x: F.elu_(x).add_(1),
    sigmoid: torch.sigmoid_,
    identity: identity,
    torch.relu: torch.relu_,
}


# From the gradient of the features and the features themselves to the gradient of what the kernel was given.
KernelGradient = Callable[[Tensor, Tensor], Tensor]


def relu_gradient(g: Tensor, features: Tensor) -> Tensor:
    return torch.ops.aten.threshold_backward(g, features, features.shape[-1] ** -0.5)


def elu1_gradient(g: Tensor, features: Tensor) -> Tensor:
    return g * features.clamp(max=1)  # the features of x <= 0 are exp(x), their own derivative


def sigmoid_gradient(g: Tensor, features: Tensor) -> Tensor:
    return torch.ops.aten.sigmoid_backward(g, features)


KERNEL_GRADIENTS: dict[Kernel, KernelGradient] = {
    relu: relu_gradient,
    elu1: elu1_gradient,
    sigmoid: sigmoid_gradient,
    identity: lambda g, features: g,
}
