"""Convolution, normalisation, activation: the unit of all convolutional networks here.

Kernels are (rows, columns) for frames `[B·T, C, H, W]` or (frames, rows, columns) for clips `[B, C, T, H, W]`.
"""

from collections.abc import Callable, Sequence

from torch import Tensor, nn

NormFactory = Callable[[int], nn.Module]

LAYERS: dict[int, tuple[type[nn.Conv2d] | type[nn.Conv3d], NormFactory]] = {
    2: (nn.Conv2d, nn.BatchNorm2d),
    3: (nn.Conv3d, nn.BatchNorm3d),
}


def no_norm(channels: int) -> nn.Module:
    return nn.Identity()


class ConvNormAct(nn.Module):
    """A convolution without bias and padded to keep the size, normalisation, and an activation if given."""

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        kernel: Sequence[int],
        *,
        stride: int | Sequence[int] = 1,
        groups: int = 1,
        act: nn.Module | None = None,
        norm: NormFactory | None = None,
    ) -> None:
        super().__init__()
        conv, batch_norm = LAYERS[len(kernel)]
        padding = tuple(k // 2 for k in kernel)
        self.conv = conv(in_dim, out_dim, tuple(kernel), stride, padding, groups=groups, bias=False)  # type: ignore[arg-type]
        self.norm = (norm or batch_norm)(out_dim)
        self.act = act or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.norm(self.conv(x)))
