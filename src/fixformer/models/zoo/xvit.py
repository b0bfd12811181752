"""XViT: an image ViT whose keys and values take channels from the previous and next frames; a small temporal head.

Shapes: B batch, T frames, P = 1 + H·W tokens of a frame, the class token first, D width.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fixformer.config import ModelConfig
from fixformer.config.clip import FrameCount
from fixformer.config.model import FixationName, Width
from fixformer.config.schema import Rate, int_between
from fixformer.models.attention.association import Associate
from fixformer.models.attention.kinds import SoftmaxAttention
from fixformer.models.attention.module import Attention, build_fixation
from fixformer.models.layers.embedding import TiledTimeEmbed
from fixformer.models.layers.residual import Branch, Mlp
from fixformer.models.registry import register
from fixformer.models.zoo.common.checkpointing import run_block
from fixformer.models.zoo.common.class_token import (
    ClassTokenModel,
    SoftmaxTokens,
    TokenAttention,
    TokenBlock,
    VitSettings,
)
from fixformer.ops.shift import released_time_groups


@dataclass(frozen=True)
class XvitSettings(VitSettings):
    """One channel in `shift_divisor` comes from the next frame, one from the previous: 4 for SSv2, 8 for Kinetics.

    `shift_segment`: frames of the segments across which nothing is shifted; None is the whole clip. `fixation` adds our
    gate before the softmax, as in the paper's "application to existing models".
    """

    dropout: Rate = 0.5
    time_slots: FrameCount = 8
    shift_divisor: Annotated[int, int_between(2, 65_536)] = 4
    shift_segment: FrameCount | None = None
    fixation: FixationName = "none"
    head_hidden_dim: Width = 768


class XViT(ClassTokenModel):
    """The class tokens of the frames and one more go through a temporal block that ignores their order.

    Time is encoded by `time_slots` vectors, repeated in longer clips, and by the shifted channels.
    """

    def __init__(self, settings: XvitSettings) -> None:
        super().__init__(settings)
        s, dim = settings, settings.embed_dim
        self.time_embed = TiledTimeEmbed(s.time_slots, dim)
        self.blocks = nn.ModuleList(_block(s, rate) for rate in s.drop_path_rates(s.depth))
        self.temporal_cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        attention = TokenAttention(dim, s.num_heads, SoftmaxTokens(), qkv_bias=False)
        mlp = Mlp(dim, round(dim * s.mlp_ratio))
        self.temporal_block = TokenBlock({"attention": attention}, dim, mlp, drop_path=0.0, eps=1e-5)
        self.head_norm = nn.LayerNorm(dim, eps=1e-5)
        self.head_fc = nn.Linear(dim, s.head_hidden_dim)
        self.finish(s.head_hidden_dim)

    def forward_features(self, video_BCTHW: Tensor) -> Tensor:
        """All tokens of all frames after the last norm, `[B, T, P, D]`, the class token of each frame first."""
        x_BTPD = self.position_embed(self.patch_embed(video_BCTHW)).flatten(2, 3)
        B, T = x_BTPD.shape[:2]
        token_BT1D = self.class_tokens(B * T).unflatten(0, (B, T))
        # A frame and its class token as one column of tokens.
        x_BTP1D = self.time_embed(torch.cat([token_BT1D, x_BTPD], dim=2).unsqueeze(3))
        for block in self.blocks:
            x_BTP1D = run_block(block, x_BTP1D, checkpointing=self.checkpointing)
        return self.norm(x_BTP1D).squeeze(3)

    def pool(self, features: Tensor) -> Tensor:
        frames_BTD = self.dropout(features[:, :, 0])
        B, T, _ = frames_BTD.shape
        x_BND = torch.cat([self.temporal_cls_token.expand(B, -1, -1), frames_BTD], dim=1)
        token_B1D = self.temporal_block(x_BND, (T, 1, 1))[:, :1]
        return F.gelu(self.head_fc(self.head_norm(token_B1D)))


def _block(settings: XvitSettings, drop_path: float) -> nn.Sequential:
    s, dim = settings, settings.embed_dim
    associate = Associate(released_time_groups(dim, s.shift_divisor), s.shift_segment)
    fixate = build_fixation(ModelConfig(embed_dim=dim, num_heads=s.num_heads, fixation=s.fixation).filled())
    block = nn.Sequential()
    attention = Attention(dim, s.num_heads, "space", SoftmaxAttention(), associate, fixate=fixate)
    for name, body in (("space", attention), ("mlp", Mlp(dim, round(dim * s.mlp_ratio)))):
        block.add_module(name, Branch(dim, body, drop_path))
    return block


@register(XvitSettings())
def xvit_base(settings: XvitSettings) -> XViT:
    """XViT-B/16: softmax within frames, channels mixed across neighbouring ones."""
    return XViT(settings)
