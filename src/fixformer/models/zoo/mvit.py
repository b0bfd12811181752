"""MViT: a Transformer whose grid of tokens shrinks as its channels grow.

Shapes: B batch, N tokens (the class token, then the grid in raster order), C channels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fixformer.config.model import Classes, ModelSettings
from fixformer.config.schema import Rate
from fixformer.models.layers.embedding import PositionEmbed, TimeEmbed, resize_tables
from fixformer.models.layers.noise import DropPath
from fixformer.models.registry import register
from fixformer.models.zoo.common.checkpointing import run_block
from fixformer.models.zoo.common.pooled_attention import NORM_EPS, Grid, NoPool, PooledAttention, pool_tokens
from fixformer.models.zoo.common.pooled_classifier import PooledClassifier

PATCH_KERNEL, PATCH_STRIDE, PATCH_PADDING = (3, 7, 7), (2, 4, 4), (1, 3, 3)
HALVE: Grid = (1, 2, 2)
KEEP: Grid = (1, 1, 1)


@dataclass(frozen=True)
class MvitSettings(ModelSettings):
    num_classes: Classes = 400
    drop_path: Rate = 0.2


class BlockPlan(NamedTuple):
    """Sizes of one block. The MLP changes the channels, attention the grid."""

    dim: int
    out_dim: int
    num_heads: int
    q_stride: Grid
    kv_stride: Grid


def plan_blocks(depth: int, dim: int, num_heads: int, stage_starts: Sequence[int], kv_stride: int) -> list[BlockPlan]:
    """A stage doubles channels and heads and halves rows and columns; the channels are widened one block earlier.

    Keys and values have the same grid in all stages, so their stride is halved with every stage.
    """
    plans = []
    for i in range(depth):
        halved = i in stage_starts
        num_heads, kv_stride = (2 * num_heads, max(kv_stride // 2, 1)) if halved else (num_heads, kv_stride)
        out_dim = 2 * dim if i + 1 in stage_starts else dim
        plans.append(BlockPlan(dim, out_dim, num_heads, HALVE if halved else KEEP, (1, kv_stride, kv_stride)))
        dim = out_dim
    return plans


class SkipPool(nn.Module):
    """The shortcut around an attention that halves the grid."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.MaxPool3d((1, 3, 3), HALVE, padding=(0, 1, 1))

    def forward(self, x_BHNE: Tensor, grid: Grid) -> tuple[Tensor, Grid]:
        return pool_tokens(x_BHNE, grid, self.pool)


class MViTBlock(nn.Module):
    """Pooled attention, then an MLP; where channels change, the shortcut around the MLP is linear."""

    def __init__(self, plan: BlockPlan, mlp_ratio: float, drop_path: float) -> None:
        super().__init__()
        dim, out_dim = plan.dim, plan.out_dim
        hidden_dim = int(dim * mlp_ratio)
        self.norm1 = nn.LayerNorm(dim, eps=NORM_EPS)
        self.attention = PooledAttention(dim, plan.num_heads, plan.q_stride, plan.kv_stride)
        self.skip: nn.Module = NoPool() if plan.q_stride == KEEP else SkipPool()
        self.norm2 = nn.LayerNorm(dim, eps=NORM_EPS)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden_dim), nn.GELU(), nn.Linear(hidden_dim, out_dim))
        self.widen = None if dim == out_dim else nn.Linear(dim, out_dim)
        self.drop_path = DropPath(drop_path)

    def forward(self, x_BNC: Tensor, grid: Grid) -> tuple[Tensor, Grid]:
        y_BNC, q_grid = self.attention(self.norm1(x_BNC), grid)
        skip_B1NC, _ = self.skip(x_BNC[:, None], grid)
        x_BNC = skip_B1NC[:, 0] + self.drop_path(y_BNC)
        normed_BNC = self.norm2(x_BNC)
        skip_BNC = x_BNC if self.widen is None else self.widen(normed_BNC)
        return skip_BNC + self.drop_path(self.mlp(normed_BNC)), q_grid


class MViT(PooledClassifier):
    """Runs at any T and size: positions are interpolated to the grid of the clip."""

    def __init__(
        self,
        settings: MvitSettings,
        *,
        embed_dim: int = 96,
        num_heads: int = 1,
        depth: int = 16,
        stage_starts: Sequence[int] = (1, 3, 14),
        kv_stride: int = 8,
        mlp_ratio: float = 4.0,
    ) -> None:
        super().__init__(settings)
        plans = plan_blocks(depth, embed_dim, num_heads, stage_starts, kv_stride)
        self.patch_embed = nn.Conv3d(3, embed_dim, PATCH_KERNEL, PATCH_STRIDE, PATCH_PADDING)
        T, H, W = token_grid(self.num_frames, self.image_size)
        self.cls_token = nn.Parameter(torch.empty(1, 1, embed_dim))
        self.cls_position = nn.Parameter(torch.empty(1, 1, embed_dim))
        self.time_embed = TimeEmbed(T, embed_dim)
        self.position_embed = PositionEmbed(H, W, embed_dim)
        self.blocks = nn.ModuleList(
            MViTBlock(plan, mlp_ratio, settings.drop_path * i / max(depth - 1, 1)) for i, plan in enumerate(plans)
        )
        self.norm = nn.LayerNorm(plans[-1].out_dim, eps=NORM_EPS)
        self.apply(_initialise)
        for name in sorted(self.no_weight_decay()):
            nn.init.trunc_normal_(self.get_parameter(name), std=0.02)
        self.add_head(plans[-1].out_dim, std=0.02, bias=0.02)

    def forward_features(self, video_BCTHW: Tensor) -> Tensor:
        """All tokens after the last norm, `[B, 1 + T/2·H/32·W/32, C]`, the class token first."""
        patches_BTHWC = self.time_embed(self.position_embed(self.patch_embed(video_BCTHW).movedim(1, -1)))
        B, T, H, W, _ = patches_BTHWC.shape
        grid: Grid = (T, H, W)
        token_B1C = (self.cls_token + self.cls_position).expand(B, -1, -1)
        x_BNC = torch.cat([token_B1C, patches_BTHWC.flatten(1, 3)], dim=1)
        for block in self.blocks:
            x_BNC, grid = run_block(block, x_BNC, grid, checkpointing=self.checkpointing)
        return self.norm(x_BNC)

    def pool(self, features: Tensor) -> Tensor:
        return features[:, :1]

    def set_input_size(self, num_frames: int | None = None, image_size: int | None = None) -> None:
        """Interpolate the position tables once; otherwise they are interpolated for every clip of another size."""
        super().set_input_size(num_frames, image_size)
        for embed in (self.time_embed, self.position_embed):
            resize_tables(embed, *token_grid(self.num_frames, self.image_size))

    def no_weight_decay(self) -> set[str]:
        return {"cls_token", "cls_position", "time_embed.slots", "position_embed.table"}


def token_grid(num_frames: int, image_size: int) -> Grid:
    """The grid of patches of a clip: kernels are odd and centred, so a stride s gives ceil(size / s)."""
    T, H, W = (-(-size // s) for size, s in zip((num_frames, image_size, image_size), PATCH_STRIDE, strict=True))
    return T, H, W


def _initialise(module: nn.Module) -> None:
    """As released, where biases start at 0.02, not at zero."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear | nn.LayerNorm):
        nn.init.constant_(module.bias, 0.02)


@register(MvitSettings())
def mvit_base_16x4(settings: MvitSettings) -> MViT:
    """MViT-B for 16 frames, every fourth of the video."""
    return MViT(settings)


@register(MvitSettings(num_frames=32))
def mvit_base_32x3(settings: MvitSettings) -> MViT:
    """MViT-B for 32 frames, every third of the video."""
    return MViT(settings)
