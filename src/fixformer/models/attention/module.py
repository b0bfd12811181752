"""One attention of a block: project, associate, kernel, fixate, attend along an axis, project.

Before the last projection there may be two more steps (`beside.py`): a convolution of the values and a gate.

Shapes: B batch, T frames, H rows, W columns, D width, h heads, E head width; G sequences of N tokens each.
q, k and v are `[B, T, H, W, h, E]`.
"""

import torch
from torch import Tensor, nn

from fixformer.config import FilledModelConfig
from fixformer.models.attention.association import READINGS, Associate
from fixformer.models.attention.axes import AXES, Grid
from fixformer.models.attention.beside import LocalValues, OutputGate
from fixformer.models.attention.fixation import (
    MERGES,
    NoFixation,
    SeparateFixation,
    SharedFixation,
    TwiceEvaluatedFixation,
    UnsharedFixation,
)
from fixformer.models.attention.kinds import ATTENTION_KINDS, AttentionKind
from fixformer.ops.kernels import KERNELS, Kernel, identity


class Attention(nn.Module):
    """Multi-head attention among the tokens that share a sequence along `axis`.

    `attend` is the kind of attention; without the other parts it is the plain attention of that kind.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        axis: str,
        attend: AttentionKind,
        associate: Associate | None = None,
        kernel: Kernel = identity,
        fixate: nn.Module | None = None,
        local: LocalValues | None = None,
        output_gate: OutputGate | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.axis = AXES[axis]
        self.qkv = nn.Linear(dim, 3 * dim)
        # Weight files know the gate as `steps.fixate`, from a time when association and kernel stood beside it.
        self.steps = nn.ModuleDict({"fixate": fixate or NoFixation()})
        self.attend = attend
        self.proj = nn.Linear(dim, dim)
        self.associate = associate or Associate(())
        self.kernel = kernel
        self.local = local
        self.output_gate = output_gate

    @property
    def fixate(self) -> nn.Module:
        return self.steps["fixate"]

    def forward(self, x_BTHWD: Tensor) -> Tensor:
        q, k, v = self.project(x_BTHWD)
        k, v = self.associate(k), self.associate(v)  # appendix A.3: channels from neighbouring tokens
        q, k = self.kernel(q), self.kernel(k)  # φ of Eq. 3
        q, k = self.fixate(q, k, v)  # Eq. 4 or 5: channels reweighted
        return self.output(x_BTHWD, self.attend_along_axis(q, k, v), v)  # Eq. 3

    def project(self, x_BTHWD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.qkv(x_BTHWD).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        return q, k, v

    def attend_along_axis(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q_GhNE, k_GhNE, v_GhNE = map(self.axis.sequences, (q, k, v))
        y_GhNE = self.attend(q_GhNE, k_GhNE, v_GhNE, self.axis.grid(q.shape[1:4]))
        return self.axis.tokens(y_GhNE, q.shape[:4])

    def output(self, x_BTHWD: Tensor, y_BTHWD: Tensor, v: Tensor) -> Tensor:
        """From what the tokens x attend to, y, to what the attention returns."""
        if self.local is not None:
            y_BTHWD = y_BTHWD + self.local(v)
        if self.output_gate is not None:
            y_BTHWD = y_BTHWD * self.output_gate(x_BTHWD)
        return self.proj(y_BTHWD)


class FixationFirstAttention(Attention):
    """The other order, which the paper's ablation compares: association after fixation."""

    def forward(self, x_BTHWD: Tensor) -> Tensor:
        q, k, v = self.project(x_BTHWD)
        q, k = self.kernel(q), self.kernel(k)
        q, k = self.fixate(q, k, v)
        k, v = self.associate(k), self.associate(v)
        return self.output(x_BTHWD, self.attend_along_axis(q, k, v), v)


ORDERS: dict[str, type[Attention]] = {
    "association_first": Attention,
    "fixation_first": FixationFirstAttention,
}


def build_attention(config: FilledModelConfig, axis: str, size_THW: Grid) -> Attention:
    """The attention a (filled) config describes, for clips of `size_THW` tokens."""
    c = config
    associate = None
    if c.association != "none":
        associate = Associate(READINGS[c.reading](c, axis), c.shift_segment)
    # Polar features are two for each channel, and their kernel is learned: the attention itself makes them.
    kernel = KERNELS.get(c.kernel or "identity", identity)
    # cosFormer attends with relu(q) and relu(k); a gate in front of it must see them too.
    if c.attention == "cosformer" and c.fixation != "none":
        kernel = torch.relu
    fixate = build_fixation(c)
    attend = ATTENTION_KINDS[c.attention](c, AXES[axis].grid(size_THW))
    local = LocalValues(c.embed_dim) if c.local else None
    output_gate = OutputGate(c.embed_dim) if c.output_gate else None
    return ORDERS[c.order](
        c.embed_dim, c.num_heads, axis, attend, associate, kernel, fixate, local=local, output_gate=output_gate
    )


def build_fixation(config: FilledModelConfig) -> nn.Module:
    """The gate a (filled) config describes."""
    if config.fixation == "none":
        return NoFixation()
    width = config.embed_dim // config.num_heads
    if config.fixation == "separate":
        return SeparateFixation(width)
    shared = TwiceEvaluatedFixation if config.reading == "released" else SharedFixation
    kind = shared if config.fixation_shared else UnsharedFixation
    return kind(width, len(config.fixation_sources), MERGES[config.fixation_merge])
