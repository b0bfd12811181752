"""TimeSformer: in every block attention along time at each position, then attention within each frame.

Shapes: B batch, T frames, H rows, W columns of tokens, N = 1 + T·H·W tokens, the class token first, D width.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fixformer.models.attention.kinds import SoftmaxAttention
from fixformer.models.attention.module import Attention
from fixformer.models.layers.embedding import PositionEmbed, TimeEmbed
from fixformer.models.layers.residual import Branch, Mlp
from fixformer.models.registry import register
from fixformer.models.zoo.common.class_token import ClassTokenModel, Grid, VitSettings


class DividedBlock(nn.Module):
    """Time, space, MLP. The class token skips time; in space each frame updates a copy, and these are averaged."""

    def __init__(self, settings: VitSettings, drop_path: float) -> None:
        super().__init__()
        s, dim = settings, settings.embed_dim
        self.time = Branch(dim, Attention(dim, s.num_heads, "time", SoftmaxAttention()), drop_path)
        self.time_fc = nn.Linear(dim, dim)
        self.space = Branch(dim, Attention(dim, s.num_heads, "space", SoftmaxAttention()), drop_path)
        self.mlp = Branch(dim, Mlp(dim, round(dim * s.mlp_ratio)), drop_path)

    def forward(self, x_BND: Tensor, grid: Grid) -> Tensor:
        token_B1D, x_BTHWD = x_BND[:, :1], x_BND[:, 1:].unflatten(1, grid)
        x_BTHWD = x_BTHWD + self.time_fc(self.time.residual(x_BTHWD))
        x_BTPD, copies_BT1D = x_BTHWD.flatten(2, 3), token_B1D.unsqueeze(1).expand(-1, grid[0], -1, -1)
        # A frame and its class token as one column of tokens.
        change_BTPD = self.space.residual(torch.cat([copies_BT1D, x_BTPD], dim=2).unsqueeze(3)).squeeze(3)
        token_B1D = token_B1D + change_BTPD[:, :, :1].mean(1)
        return self.mlp(torch.cat([token_B1D, (x_BTPD + change_BTPD[:, :, 1:]).flatten(1, 2)], dim=1))


def nearest(table: Tensor, sizes: Sequence[int]) -> Tensor:
    """Nearest-neighbour interpolation of a table over time or over a grid to `[*sizes, D]`."""
    if table.shape[:-1] == tuple(sizes):
        return table
    return F.interpolate(table.movedim(-1, 0)[None], tuple(sizes), mode="nearest")[0].movedim(0, -1)


class NearestTimeEmbed(TimeEmbed):
    def vectors(self, frames: int) -> Tensor:
        return nearest(self.slots, (frames,))


class NearestPositionEmbed(PositionEmbed):
    def resize(self, frames: int, height: int, width: int) -> None:
        resized = nearest(self.table.detach(), (height, width))
        self.table = nn.Parameter(resized.clone(memory_format=torch.contiguous_format))

    def forward(self, x_BTHWD: Tensor) -> Tensor:
        return x_BTHWD + nearest(self.table, x_BTHWD.shape[2:4])


class TimeSformer(ClassTokenModel):
    """Starts as an image ViT on every frame: the output of attention in time is zero at first.

    At another length or size the position tables are interpolated by nearest neighbour, as in the original.
    """

    def __init__(self, settings: VitSettings) -> None:
        super().__init__(settings)
        T, H, W = self.token_grid()
        self.position_embed = NearestPositionEmbed(H, W, settings.embed_dim)
        self.time_embed = NearestTimeEmbed(T, settings.embed_dim)
        self.blocks = nn.ModuleList(DividedBlock(settings, rate) for rate in settings.drop_path_rates(settings.depth))
        self.finish(settings.embed_dim)
        for name, parameter in self.named_parameters():
            if ".time_fc." in name:
                nn.init.zeros_(parameter)

    def adapt_image_weights(self, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Attention in time starts as a copy of attention in space; `time_fc`, which is zero, disables it at first."""
        copies = {name.replace(".space.", ".time."): tensor for name, tensor in named.items() if ".space." in name}
        return super().adapt_image_weights({**named, **copies})


@register(VitSettings(num_classes=400, num_frames=8, drop_path=0.1))
def timesformer_base(settings: VitSettings) -> TimeSformer:
    """TimeSformer, divided attention: 8 frames of 224 pixels."""
    return TimeSformer(settings)


@register(VitSettings(image_size=448, drop_path=0.1))
def timesformer_hr(settings: VitSettings) -> TimeSformer:
    """TimeSformer-HR: 16 frames of 448 pixels."""
    return TimeSformer(settings)
