"""X3D: depth-wise 3-D bottlenecks with squeeze-and-excitation; time is never down-sampled.

Shapes: B batch, C channels, T frames, H rows, W columns.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from fixformer.config.model import ModelSettings
from fixformer.models.registry import register
from fixformer.models.zoo.common.bottleneck import Bottleneck, zero_last_norms
from fixformer.models.zoo.common.checkpointing import run_block
from fixformer.models.zoo.common.convolution import ConvNormAct, no_norm
from fixformer.models.zoo.common.pooled_classifier import PooledClassifier, initialise_convolutions

# As published: a gate of a sixteenth of the channels, in multiples of 8.
SQUEEZE_RATIO = 1 / 16
SQUEEZE_DIVISOR = 8


class SqueezeExcitation(nn.Module):
    """Channels reweighted by a gate computed from their averages over the clip."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        inner_dim = squeeze_dim(dim)
        self.gate = nn.Sequential(nn.Conv3d(dim, inner_dim, 1), nn.ReLU(), nn.Conv3d(inner_dim, dim, 1), nn.Sigmoid())

    def forward(self, x_BCTHW: Tensor) -> Tensor:
        return x_BCTHW * self.gate(x_BCTHW.mean(dim=(2, 3, 4), keepdim=True))


def squeeze_dim(dim: int) -> int:
    """A sixteenth of `dim` rounded to a multiple of 8, but not down by more than a tenth."""
    wanted = dim * SQUEEZE_RATIO
    rounded = max(SQUEEZE_DIVISOR, int(wanted + SQUEEZE_DIVISOR / 2) // SQUEEZE_DIVISOR * SQUEEZE_DIVISOR)
    return rounded + SQUEEZE_DIVISOR if rounded < 0.9 * wanted else rounded


class X3D(PooledClassifier):
    """Runs at any T and size."""

    def __init__(
        self,
        settings: ModelSettings,
        *,
        stem_dim: int = 24,
        dims: Sequence[int] = (24, 48, 96, 192),
        depths: Sequence[int] = (3, 5, 11, 7),
        expansion: float = 2.25,
        head_dim: int = 2048,
    ) -> None:
        super().__init__(settings)
        self.stem_space = nn.Conv3d(3, stem_dim, (1, 3, 3), (1, 2, 2), (0, 1, 1), bias=False)
        self.stem_time = ConvNormAct(stem_dim, stem_dim, (5, 1, 1), groups=stem_dim, act=nn.ReLU())
        self.stages = nn.ModuleList()
        in_dim = stem_dim
        for out_dim, depth in zip(dims, depths, strict=True):
            in_block_dims = [in_dim, *[out_dim] * (depth - 1)]
            self.stages.append(nn.ModuleList(_block(dim, out_dim, expansion, i) for i, dim in enumerate(in_block_dims)))
            in_dim = out_dim
        last_dim = int(dims[-1] * expansion)
        self.expand = ConvNormAct(dims[-1], last_dim, (1, 1, 1), act=nn.ReLU())
        self.project = nn.Linear(last_dim, head_dim, bias=False)
        self.project_act = nn.ReLU()
        initialise_convolutions(self)
        zero_last_norms(self)
        nn.init.kaiming_normal_(self.project.weight, mode="fan_out", nonlinearity="relu")
        self.add_head(head_dim)

    def forward_features(self, video_BCTHW: Tensor) -> Tensor:
        """The last feature map, `[B, C, T, H/32, W/32]`."""
        x_BCTHW = self.stem_time(self.stem_space(video_BCTHW))
        for stage in self.stages:
            for block in stage.children():
                x_BCTHW = run_block(block, x_BCTHW, checkpointing=self.checkpointing)
        return self.expand(x_BCTHW)

    def pool(self, features: Tensor) -> Tensor:
        return self.project_act(self.project(features.mean(dim=(2, 3, 4))))[:, None]


def _block(in_dim: int, out_dim: int, expansion: float, index: int) -> Bottleneck:
    inner_dim = int(out_dim * expansion)
    return Bottleneck(
        in_dim,
        inner_dim,
        out_dim,
        ((1, 1, 1), (3, 3, 3)),
        stride=2 if index == 0 else 1,
        groups=inner_dim,
        gate=SqueezeExcitation(inner_dim) if index % 2 == 0 else None,
        inner_act=nn.SiLU(),
        shortcut_norm=no_norm if in_dim == out_dim else None,  # as published
    )


@register(ModelSettings(num_classes=400))
def x3d_m(settings: ModelSettings) -> X3D:
    """X3D-M."""
    return X3D(settings)
