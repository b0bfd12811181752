"""One attention of a block, composed of parts: project, associate, kernel, fixate, attend along an axis, project.

Shapes: B batch, T frames, H rows, W columns, D width, h heads, E head width; G sequences of N tokens each.
"""

from collections.abc import Callable

from torch import Tensor, nn

from fixformer.model_config import ModelConfig
from fixformer.models import fixation
from fixformer.models.association import READINGS, Associate
from fixformer.models.fixation import Triple
from fixformer.models.patterns import AXES
from fixformer.ops import KERNELS, linear_attention, softmax_attention
from fixformer.ops.kernels import Kernel
from fixformer.ops.linear_attention import Association


class ApplyKernel(nn.Module):
    """φ on query and key."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Triple:
        return self.kernel(q), self.kernel(k), v


class LinearAttend(nn.Module):
    """Eq. 3. `association` is forced only where the released code, or the paper's way of counting, is meant."""

    def __init__(self, association: Association = "auto") -> None:
        super().__init__()
        self.association = association

    def forward(self, q_GhNE: Tensor, k_GhNE: Tensor, v_GhNE: Tensor) -> Tensor:
        return linear_attention(q_GhNE, k_GhNE, v_GhNE, association=self.association)


class SoftmaxAttend(nn.Module):
    """Eq. 1 with softmax."""

    def forward(self, q_GhNE: Tensor, k_GhNE: Tensor, v_GhNE: Tensor) -> Tensor:
        return softmax_attention(q_GhNE, k_GhNE, v_GhNE)


class Attention(nn.Module):
    """Multi-head attention among the tokens that share a sequence along `axis`."""

    def __init__(self, dim: int, heads: int, axis: str, steps: dict[str, nn.Module], attend: nn.Module) -> None:
        super().__init__()
        self.heads = heads
        self.axis = AXES[axis]
        self.qkv = nn.Linear(dim, 3 * dim)
        self.steps = nn.ModuleDict(steps)
        self.attend = attend
        self.proj = nn.Linear(dim, dim)

    def project(self, x_BTHWD: Tensor) -> Triple:
        q, k, v = self.qkv(x_BTHWD).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        return q, k, v

    def forward(self, x_BTHWD: Tensor) -> Tensor:
        q, k, v = self.project(x_BTHWD)
        for step in self.steps.values():
            q, k, v = step(q, k, v)
        y_GhNE = self.attend(*map(self.axis.sequences, (q, k, v)))
        return self.proj(self.axis.tokens(y_GhNE, x_BTHWD.shape[:-1]))


def build_attention(config: ModelConfig, axis: str) -> Attention:
    """The attention a (filled) config describes."""
    c = config
    associate = {} if c.association == "none" else {"associate": _associate(c, axis)}
    kernel = {"kernel": ApplyKernel(KERNELS[c.kernel])} if c.kernel else {}
    fixate = {} if c.fixation == "none" else {"fixate": _fixation(c)}
    orders: dict[str | None, dict[str, nn.Module]] = {
        "association_first": {**associate, **kernel, **fixate},
        "fixation_first": {**kernel, **fixate, **associate},
    }
    return Attention(c.embed_dim, c.num_heads, axis, orders[c.order], ATTENDS[c.attention](c))


def _linear(config: ModelConfig) -> nn.Module:
    return LinearAttend("keys_values" if config.reading == "released" else "auto")


ATTENDS: dict[str, Callable[[ModelConfig], nn.Module]] = {
    "linear": _linear,
    "softmax": lambda config: SoftmaxAttend(),
}


def _associate(config: ModelConfig, axis: str) -> nn.Module:
    return Associate(READINGS[config.reading](config, axis), config.shift_segment)


def _fixation(config: ModelConfig) -> nn.Module:
    width = config.embed_dim // config.num_heads
    if config.fixation == "separate":
        return fixation.SeparateFixation(width)
    shared = fixation.TwiceEvaluatedFixation if config.reading == "released" else fixation.SharedFixation
    kind = shared if config.fixation_shared else fixation.UnsharedFixation
    return kind(width, len(config.fixation_sources), fixation.MERGES[config.fixation_merge])
