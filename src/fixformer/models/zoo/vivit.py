"""ViViT: tubelets as tokens, attention among all of them (model 1) or in space, then in time (factorised encoder).

Shapes: B batch, T frames, H rows, W columns of tokens, N = 1 + T·H·W tokens, the class token first, D width.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fixformer.config.clip import FrameCount
from fixformer.config.model import Classes, Depth
from fixformer.config.schema import Rate
from fixformer.models.layers.embedding import TimeEmbed, interpolate_space, interpolate_time
from fixformer.models.registry import register
from fixformer.models.zoo.common.checkpointing import run_block
from fixformer.models.zoo.common.class_token import ClassTokenModel, VitSettings, plain_blocks


@dataclass(frozen=True)
class VivitSettings(VitSettings):
    num_classes: Classes = 400
    num_frames: FrameCount = 32
    tubelet: FrameCount = 2
    drop_path: Rate = 0.3


@dataclass(frozen=True)
class FactorisedVivitSettings(VivitSettings):
    """`temporal_depth`: blocks of the temporal encoder, which sees one vector per tubelet frame."""

    num_classes: Classes = 174
    temporal_depth: Depth = 4


class VolumeEmbed(nn.Module):
    """One learned vector per token of a clip, interpolated to any grid: linearly in time, bicubically in space."""

    def __init__(self, frames: int, height: int, width: int, dim: int) -> None:
        super().__init__()
        self.volume = nn.Parameter(nn.init.trunc_normal_(torch.empty(frames, height, width, dim), std=0.02))

    def resize(self, frames: int, height: int, width: int) -> None:
        resized = interpolate_volume(self.volume.detach(), frames, height, width)
        self.volume = nn.Parameter(resized.clone(memory_format=torch.contiguous_format))

    def forward(self, x_BTHWD: Tensor) -> Tensor:
        return x_BTHWD + interpolate_volume(self.volume, *x_BTHWD.shape[1:4])


def interpolate_volume(volume_THWD: Tensor, frames: int, height: int, width: int) -> Tensor:
    """A table over time and space at another size; unchanged at its own."""
    H, W, D = volume_THWD.shape[1:]
    in_time_THWD = interpolate_time(volume_THWD.flatten(1), frames).unflatten(1, (H, W, D))
    if (H, W) == (height, width):
        return in_time_THWD
    # Frames as further channels: one call for all.
    table_HWC = in_time_THWD.permute(1, 2, 0, 3).flatten(2)
    return interpolate_space(table_HWC, height, width).unflatten(2, (frames, D)).permute(2, 0, 1, 3)


class VivitBase(ClassTokenModel):
    """The initial weights of the JAX code, which both models share; the classifier starts at zero."""

    def finish(self, num_features: int) -> None:
        super().finish(num_features)
        nn.init.zeros_(self.cls_token)
        for name, module in self.named_modules():
            if name.endswith(".body.qkv"):
                for part_DD in module.weight.data.chunk(3):  # three layers in theirs, each with its own fan-out
                    nn.init.xavier_uniform_(part_DD)
            elif name.endswith((".body.proj", ".body.fc1", ".body.fc2")):
                nn.init.xavier_uniform_(module.weight)
            if name.endswith((".body.fc1", ".body.fc2")):
                nn.init.normal_(module.bias, std=1e-6)

    def reset_classifier(self, num_classes: int) -> None:
        super().reset_classifier(num_classes)
        nn.init.zeros_(self.head.fc.weight)


class ViViT(VivitBase):
    """Model 1: every token attends to every other of the clip."""

    def __init__(self, settings: VivitSettings) -> None:
        super().__init__(settings)
        self.position_embed = VolumeEmbed(*self.token_grid(), settings.embed_dim)
        self.time_embed = nn.Identity()
        self.blocks = plain_blocks(settings, settings.depth, approximate="tanh")
        self.finish(settings.embed_dim)

    def adapt_image_weights(self, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Every frame starts with the position table of the image."""
        adapted = super().adapt_image_weights(named)
        table_HWD = adapted.pop("position_embed.table", None)
        if table_HWD is not None:
            frames = self.token_grid()[0]
            adapted["position_embed.volume"] = table_HWD.expand(frames, -1, -1, -1)
        return adapted


class FactorisedViViT(VivitBase):
    """Model 2: a ViT on the patches of each tubelet frame, then a small one on their class tokens."""

    time_embed: TimeEmbed

    def __init__(self, settings: FactorisedVivitSettings) -> None:
        super().__init__(settings)
        s = settings
        self.blocks = plain_blocks(s, s.depth, approximate="tanh")
        self.temporal_cls_token = nn.Parameter(torch.zeros(1, 1, s.embed_dim))
        self.temporal_cls_position = nn.Parameter(torch.empty(1, 1, s.embed_dim))
        self.temporal_blocks = plain_blocks(s, s.temporal_depth, approximate="tanh")
        self.temporal_norm = nn.LayerNorm(s.embed_dim, eps=1e-6)
        self.finish(s.embed_dim)
        for table in (self.temporal_cls_position, self.time_embed.slots):
            nn.init.trunc_normal_(table, std=0.02)

    def forward_features(self, video_BCTHW: Tensor) -> Tensor:
        """One vector per tubelet frame after the last norm, `[B, 1 + T, D]`, the class token first."""
        x_BTD = self.encode_frames(self.position_embed(self.patch_embed(video_BCTHW)))
        B, T, _ = x_BTD.shape
        token_B1D = (self.temporal_cls_token + self.temporal_cls_position).expand(B, -1, -1)
        x_BND = torch.cat([token_B1D, x_BTD + self.time_embed.vectors(T)], dim=1)
        for block in self.temporal_blocks:
            x_BND = run_block(block, x_BND, (T, 1, 1), checkpointing=self.checkpointing)
        return self.temporal_norm(x_BND)

    def encode_frames(self, x_BTHWD: Tensor) -> Tensor:
        """The class token of each frame after its own ViT: `[B, T, D]`."""
        x_GND, grid = self.tokens(x_BTHWD.flatten(0, 1).unsqueeze(1))
        for block in self.blocks:
            x_GND = run_block(block, x_GND, grid, checkpointing=self.checkpointing)
        return self.norm(x_GND[:, 0]).unflatten(0, x_BTHWD.shape[:2])


@register(VivitSettings())
def vivit_base(settings: VivitSettings) -> ViViT:
    """ViViT-B/16x2, model 1: all tokens of 32 frames attend to each other."""
    return ViViT(settings)


@register(VivitSettings(embed_dim=1024, depth=24, num_heads=16))
def vivit_large(settings: VivitSettings) -> ViViT:
    """ViViT-L/16x2, model 1: all tokens of 32 frames attend to each other."""
    return ViViT(settings)


@register(FactorisedVivitSettings(embed_dim=1024, depth=24, num_heads=16))
def vivit_large_fe(settings: FactorisedVivitSettings) -> FactorisedViViT:
    """ViViT-L/16x2, model 2: a ViT on each frame, a small one on the frames."""
    return FactorisedViViT(settings)
