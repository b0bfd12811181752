"""One attention of a block, composed of parts: project, associate, kernel, fixate, attend along an axis, project.

Shapes: B batch, T frames, H rows, W columns, D width, h heads, E head width; G sequences of N tokens each.
"""

import torch
from torch import Tensor, nn

from fixformer.config import FilledModelConfig
from fixformer.models.attention import fixation
from fixformer.models.attention.association import READINGS, Associate
from fixformer.models.attention.axes import AXES, Grid
from fixformer.models.attention.fixation import Triple
from fixformer.models.attention.kinds import ATTENDS, Attend
from fixformer.ops import KERNELS
from fixformer.ops.kernels import Kernel


class ApplyKernel(nn.Module):
    """φ on query and key."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Triple:
        return self.kernel(q), self.kernel(k), v


class Attention(nn.Module):
    """Multi-head attention among the tokens that share a sequence along `axis`."""

    def __init__(
        self, dim: int, heads: int, axis: str, steps: dict[str, nn.Module], attend: Attend, qkv_bias: bool = True
    ) -> None:
        super().__init__()
        self.heads = heads
        self.axis = AXES[axis]
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
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
        y_GhNE = self.attend(*map(self.axis.sequences, (q, k, v)), self.axis.grid(x_BTHWD.shape[1:4]))
        return self.proj(self.axis.tokens(y_GhNE, x_BTHWD.shape[:-1]))


def build_attention(config: FilledModelConfig, axis: str, size_THW: Grid) -> Attention:
    """The attention a (filled) config describes, for clips of `size_THW` tokens."""
    c = config
    associate = {} if c.association == "none" else {"associate": _associate(c, axis)}
    kernel = _kernel(c)
    fixate = {} if c.fixation == "none" else {"fixate": build_fixation(c)}
    orders: dict[str | None, dict[str, nn.Module]] = {
        "association_first": {**associate, **kernel, **fixate},
        "fixation_first": {**kernel, **fixate, **associate},
    }
    attend = ATTENDS[c.attention](c, AXES[axis].grid(size_THW))
    return Attention(c.embed_dim, c.num_heads, axis, orders[c.order], attend)


def _associate(config: FilledModelConfig, axis: str) -> nn.Module:
    return Associate(READINGS[config.reading](config, axis), config.shift_segment)


def _kernel(config: FilledModelConfig) -> dict[str, nn.Module]:
    if config.kernel:
        return {"kernel": ApplyKernel(KERNELS[config.kernel])}
    # cosFormer attends with relu(q) and relu(k); a gate in front of it must see them too.
    if config.attention == "cosformer" and config.fixation != "none":
        return {"kernel": ApplyKernel(torch.relu)}
    return {}


def build_fixation(config: FilledModelConfig) -> nn.Module:
    """The gate a (filled) config describes."""
    width = config.embed_dim // config.num_heads
    if config.fixation == "separate":
        return fixation.SeparateFixation(width)
    shared = fixation.TwiceEvaluatedFixation if config.reading == "released" else fixation.SharedFixation
    kind = shared if config.fixation_shared else fixation.UnsharedFixation
    return kind(width, len(config.fixation_sources), fixation.MERGES[config.fixation_merge])
