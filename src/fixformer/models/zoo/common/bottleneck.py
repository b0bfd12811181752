"""The residual bottleneck of ResNet, for frames or clips, and how many of them a stage of ResNet-50 and -101 has."""

from collections.abc import Sequence

from torch import Tensor, nn

from fixformer.models.zoo.common.convolution import ConvNormAct, NormFactory

RESNET_DEPTHS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


class Bottleneck(nn.Module):
    """Reduce channels, convolve in space (with the stride), expand; added to the input, which is projected if its shape
    changes.

    `gate` and `inner_act` follow the normalisation of the middle convolution.
    """

    def __init__(
        self,
        in_dim: int,
        inner_dim: int,
        out_dim: int,
        kernels: tuple[Sequence[int], Sequence[int]],
        *,
        stride: int = 1,
        groups: int = 1,
        gate: nn.Module | None = None,
        inner_act: nn.Module | None = None,
        shortcut_norm: NormFactory | None = None,
    ) -> None:
        super().__init__()
        first, middle = kernels
        point = (1,) * len(middle)
        strides = (1,) * (len(middle) - 2) + (stride, stride)
        self.a = ConvNormAct(in_dim, inner_dim, first, act=nn.ReLU())
        self.b = ConvNormAct(inner_dim, inner_dim, middle, stride=strides, groups=groups)
        self.gate = gate or nn.Identity()
        self.inner_act = inner_act or nn.ReLU()
        self.c = ConvNormAct(inner_dim, out_dim, point)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_dim != out_dim:
            self.shortcut = ConvNormAct(in_dim, out_dim, point, stride=strides, norm=shortcut_norm)
        self.act = nn.ReLU()

    def residual(self, x: Tensor) -> Tensor:
        return self.c(self.inner_act(self.gate(self.b(self.a(x)))))

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.shortcut(x) + self.residual(x))


def zero_last_norms(model: nn.Module) -> None:
    """Every block starts as its shortcut, which makes deep networks easier to train from scratch."""
    for module in model.modules():
        if isinstance(module, Bottleneck):
            nn.init.zeros_(module.c.norm.weight)  # type: ignore[arg-type]
