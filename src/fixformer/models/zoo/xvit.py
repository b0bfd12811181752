"""XViT: an image ViT whose keys and values borrow channels from the frames before and after; a small temporal head.

Shapes: B batch, T frames, P = 1 + H·W tokens of a frame, the class token first, D width.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fixformer.config import ModelConfig
from fixformer.config.model import CHOICES
from fixformer.config.schema import check_whole
from fixformer.errors import UnknownName
from fixformer.models.attention.association import Associate
from fixformer.models.attention.kinds import SoftmaxAttention
from fixformer.models.attention.module import Attention, build_fixation
from fixformer.models.layers.embedding import TiledTimeEmbed
from fixformer.models.layers.residual import Branch, Mlp
from fixformer.models.zoo.common.checkpointing import run
from fixformer.models.zoo.common.class_token import (
    ClassTokenModel,
    SoftmaxTokens,
    TokenAttention,
    TokenBlock,
    VitSettings,
    preset,
)
from fixformer.ops.shift import released_time_groups


@dataclass(frozen=True)
class XvitSettings(VitSettings):
    """One channel in `shift_divisor` comes from the next frame, as many from the last: 4 for SSv2, 8 for Kinetics.

    `shift_segment` cuts clips into parts that exchange nothing. `fixation` puts our gate before the softmax, as in the
    paper's "application to existing models".
    """

    dropout: float = 0.5
    time_slots: int = 8
    shift_divisor: int = 4
    shift_segment: int | None = None
    fixation: str = "none"
    head_hidden_dim: int = 768

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(2, shift_divisor=self.shift_divisor)
        if self.fixation not in CHOICES["fixation"]:
            raise UnknownName("fixation", self.fixation, CHOICES["fixation"])


class XViT(ClassTokenModel):
    """The class tokens of the frames and one of their own go through a last block, which knows no order.

    Time is told apart by `time_slots` vectors, used again and again in longer clips, and by the borrowed channels.
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
        self.finish(s.head_hidden_dim, s.dropout)

    def forward_features(self, video_BCTHW: Tensor) -> Tensor:
        """All tokens of all frames after the last norm, `[B, T, P, D]`, the class token of each frame first."""
        x_BTPD = self.position_embed(self.patch_embed(video_BCTHW)).flatten(2, 3)
        B, T = x_BTPD.shape[:2]
        token_BT1D = self.class_tokens(B * T).unflatten(0, (B, T))
        # A frame and its class token as one column of tokens.
        x_BTP1D = self.time_embed(torch.cat([token_BT1D, x_BTPD], dim=2).unsqueeze(3))
        for block in self.blocks:
            x_BTP1D = run(block, x_BTP1D, checkpointing=self.checkpointing)
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


@preset(XvitSettings)
def xvit_base(**settings: Any) -> XViT:
    """XViT-B/16: softmax within frames, channels mixed across neighbouring ones."""
    return XViT(XvitSettings(**settings))
