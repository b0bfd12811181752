"""The common parts of the Transformers with a class token: settings, patches, tokens, attention, and their verbs.

Shapes: B batch, T frames, H rows, W columns of tokens, N = 1 + T·H·W tokens, the class token first, D width, h heads,
E head width.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fixformer.config.clip import FrameCount
from fixformer.config.model import TransformerSettings, Width
from fixformer.config.schema import Rate
from fixformer.errors import InputError, SettingsConflict
from fixformer.models.layers.embedding import PatchEmbed, PositionEmbed, TimeEmbed, resize_tables
from fixformer.models.layers.init import init_weights
from fixformer.models.layers.residual import Branch, Mlp
from fixformer.models.zoo.common.checkpointing import run_block
from fixformer.models.zoo.common.pooled_classifier import PooledClassifier
from fixformer.ops import softmax_attention

Grid = tuple[int, int, int]


@dataclass(frozen=True)
class VitSettings(TransformerSettings):
    """ViT-B/16 by default. `tubelet` is the number of frames in a patch."""

    dropout: Rate = 0.0
    embed_dim: Width = 768
    num_heads: Width = 12
    tubelet: FrameCount = 1

    def check_together(self) -> None:
        super().check_together()
        if self.num_frames % self.tubelet:
            raise SettingsConflict(f"tubelet={self.tubelet} does not divide num_frames={self.num_frames}.")

    def drop_path_rates(self, depth: int) -> list[float]:
        """From 0 in the first block to `drop_path` in the last."""
        return [self.drop_path * i / max(depth - 1, 1) for i in range(depth)]


class TubeletEmbed(nn.Module):
    """Clips to tokens, each of which covers a square of pixels in a few consecutive frames."""

    def __init__(self, dim: int, size: int, frames: int) -> None:
        super().__init__()
        self.proj = nn.Conv3d(3, dim, (frames, size, size), (frames, size, size))

    def grid(self, image_size: int) -> int:
        """Tokens along one side of a square frame."""
        return image_size // self.proj.kernel_size[1]

    def forward(self, video_BCTHW: Tensor) -> Tensor:
        T, frames = video_BCTHW.shape[2], self.proj.kernel_size[0]
        if T % frames:
            raise InputError(f"{T} frames: expected a multiple of {frames}, the frames of a tubelet.")
        return self.proj(video_BCTHW).movedim(1, -1)


class SoftmaxTokens(nn.Module):
    """All tokens, including the class token, attend to all."""

    def forward(self, q_BhNE: Tensor, k_BhNE: Tensor, v_BhNE: Tensor, grid: Grid) -> Tensor:
        return softmax_attention(q_BhNE, k_BhNE, v_BhNE).transpose(1, 2).flatten(2)


class TokenAttention(nn.Module):
    """Multi-head attention on `[B, N, D]`; `attend` maps q, k, v and the grid of the patches to `[B, N, D]`."""

    def __init__(self, dim: int, heads: int, attend: nn.Module, qkv_bias: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.attend = attend
        self.proj = nn.Linear(dim, dim)

    def forward(self, x_BND: Tensor, grid: Grid) -> Tensor:
        q, k, v = self.qkv(x_BND).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return self.proj(self.attend(q, k, v, grid))


class TokenBlock(nn.Module):
    """Attentions by name, then an MLP, each a residual branch."""

    def __init__(
        self, attentions: Mapping[str, nn.Module], dim: int, mlp: nn.Module, drop_path: float, eps: float = 1e-6
    ) -> None:
        super().__init__()
        for name, body in {**attentions, "mlp": mlp}.items():
            self.add_module(name, Branch(dim, body, drop_path, eps))

    def forward(self, x_BND: Tensor, grid: Grid) -> Tensor:
        *attentions, mlp = self.children()
        for attention in attentions:
            x_BND = attention(x_BND, grid)
        return mlp(x_BND)


def plain_blocks(settings: VitSettings, depth: int, approximate: str = "none") -> nn.ModuleList:
    """The blocks of a ViT: softmax attention among all tokens."""
    s = settings
    return nn.ModuleList(
        TokenBlock(
            {"attention": TokenAttention(s.embed_dim, s.num_heads, SoftmaxTokens())},
            s.embed_dim,
            Mlp(s.embed_dim, round(s.embed_dim * s.mlp_ratio), approximate),
            rate,
        )
        for rate in s.drop_path_rates(depth)
    )


class ClassTokenModel(PooledClassifier):
    """Patches with positions and a class token. Runs at any T and size: position tables are interpolated to the grid.

    Subclasses may replace `position_embed` and `time_embed`, add `blocks`, and call `finish`.
    """

    blocks: nn.ModuleList

    def __init__(self, settings: VitSettings) -> None:
        s = settings
        super().__init__(s)
        self.tubelet, self.min_size = s.tubelet, s.patch_size
        self.patch_embed: PatchEmbed | TubeletEmbed = PatchEmbed(s.embed_dim, s.patch_size, s.patch_size, 0, norm=False)
        if s.tubelet > 1:
            self.patch_embed = TubeletEmbed(s.embed_dim, s.patch_size, s.tubelet)
        T, H, W = self.token_grid()
        self.cls_token = nn.Parameter(torch.empty(1, 1, s.embed_dim))
        self.cls_position = nn.Parameter(torch.empty(1, 1, s.embed_dim))
        self.position_embed: nn.Module = PositionEmbed(H, W, s.embed_dim)
        self.time_embed: nn.Module = TimeEmbed(T, s.embed_dim)
        self.norm = nn.LayerNorm(s.embed_dim, eps=1e-6)

    def finish(self, num_features: int) -> None:
        """Initialise the weights and add the classifier; called after everything else is built."""
        self.apply(init_weights)
        for parameter in (self.patch_embed.proj.weight, self.cls_token, self.cls_position):
            nn.init.trunc_normal_(parameter, std=0.02)
        self.add_head(num_features, std=0.02)

    def token_grid(self) -> Grid:
        """The grid of patches of the clip size the model is made for."""
        side = self.patch_embed.grid(self.image_size)
        return self.num_frames // self.tubelet, side, side

    def embed(self, video_BCTHW: Tensor) -> Tensor:
        """Patches with their positions: `[B, T, H, W, D]`."""
        return self.time_embed(self.position_embed(self.patch_embed(video_BCTHW)))

    def class_tokens(self, batch: int) -> Tensor:
        return (self.cls_token + self.cls_position).expand(batch, -1, -1)

    def tokens(self, x_BTHWD: Tensor) -> tuple[Tensor, Grid]:
        """The class token and the patches in one sequence, and the grid of the patches."""
        B, T, H, W, _ = x_BTHWD.shape
        return torch.cat([self.class_tokens(B), x_BTHWD.flatten(1, 3)], dim=1), (T, H, W)

    def forward_features(self, video_BCTHW: Tensor) -> Tensor:
        """All tokens after the last norm, `[B, N, D]`, the class token first."""
        x_BND, grid = self.tokens(self.embed(video_BCTHW))
        for block in self.blocks:
            x_BND = run_block(block, x_BND, grid, checkpointing=self.checkpointing)
        return self.norm(x_BND)

    def pool(self, features: Tensor) -> Tensor:
        return features[:, :1]

    def set_input_size(self, num_frames: int | None = None, image_size: int | None = None) -> None:
        """Interpolate the position tables once; otherwise they are interpolated for every clip of another size."""
        super().set_input_size(num_frames, image_size)
        for embed in (self.position_embed, self.time_embed):
            if not isinstance(embed, nn.Identity):
                resize_tables(embed, *self.token_grid())

    def check_input_size(self, num_frames: int, image_size: int) -> None:
        super().check_input_size(num_frames, image_size)
        if num_frames % self.tubelet:
            raise InputError(f"num_frames={num_frames}: expected a multiple of tubelet={self.tubelet}.")

    def no_weight_decay(self) -> set[str]:
        tables = ("cls_", "temporal_cls_", "position_embed.", "time_embed.", "temporal_position.")
        return {name for name, _ in self.named_parameters() if name.startswith(tables)}

    def adapt_image_weights(self, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Attention keeps the weights of the image ViT; a tubelet looks at its middle frame only."""
        own = self.state_dict()
        adapted = {name if name in own else name.replace(".space.", ".attention."): x for name, x in named.items()}
        kernel = adapted.get("patch_embed.proj.weight")
        if kernel is not None and self.tubelet > 1:
            adapted["patch_embed.proj.weight"] = central_frame(kernel, self.tubelet)
        return adapted


def central_frame(kernel_DCHW: Tensor, frames: int) -> Tensor:
    """Inflate an image filter to clips: it looks at the middle frame only."""
    inflated = kernel_DCHW.new_zeros(*kernel_DCHW.shape[:2], frames, *kernel_DCHW.shape[2:])
    inflated[:, :, frames // 2] = kernel_DCHW
    return inflated
