"""The video Transformer: patches, blocks of factorised (or joint, or windowed) attention, mean, head.

Shapes: B batch, C colours, T frames, H rows, W columns, D width.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fixformer.config import FilledModelConfig, ModelConfig
from fixformer.config.model import Classes
from fixformer.config.schema import coerce
from fixformer.models.attention.axes import PATTERNS, Grid
from fixformer.models.attention.kinds import PerformerAttention
from fixformer.models.attention.module import Attention, build_attention
from fixformer.models.base import VideoModel
from fixformer.models.fused import may_run_in_place, run_block, run_in_place
from fixformer.models.layers.embedding import (
    ConvStem,
    PatchEmbed,
    PositionEmbed,
    TiledTimeEmbed,
    TimeEmbed,
    resize_tables,
)
from fixformer.models.layers.heads import GridPool, LinearHead, MeanPool, MlpHead
from fixformer.models.layers.init import init_weights
from fixformer.models.layers.lite0 import Lite0Stem
from fixformer.models.layers.residual import Branch, ConvMlp, Mlp


class VideoTransformer(VideoModel):
    """Linear Video Transformer with Feature Fixation, and every setting of it the paper compares."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        config.validate()
        self.config = config
        c = config.filled()
        self.num_classes, self.num_frames, self.image_size = c.num_classes, c.num_frames, c.image_size
        self.num_features, self.min_size = c.embed_dim, c.patch_size
        self.patch_embed = STEMS[c.stem](c)
        side = self.patch_embed.grid(c.image_size)
        size_THW = (c.num_frames, side, side)
        has_position = c.position_embedding == "learned"
        self.position_embed = PositionEmbed(side, side, c.embed_dim) if has_position else nn.Identity()
        time_embed = TiledTimeEmbed if c.reading == "released" else TimeEmbed
        self.time_embed = time_embed(c.time_slots, c.embed_dim)
        self.blocks = nn.ModuleList(_block(c, size_THW, c.drop_path * i / max(c.depth - 1, 1)) for i in range(c.depth))
        self.norm = nn.LayerNorm(c.embed_dim, eps=1e-6)
        self.pool = POOLS[c.pool](c.embed_dim, c.dropout)
        self.head: MlpHead | LinearHead
        if c.head_hidden_dim:
            self.head = MlpHead(self.pool.width, c.head_hidden_dim, c.num_classes, c.dropout)
        else:
            self.head = LinearHead(self.pool.width, c.num_classes)
        self.checkpointing = False
        self.chunked_inference = self.fused_training = True
        self.redraws = c.attention == "performer"
        self.apply(init_weights)

    def forward_features(self, video_BCTHW: Tensor) -> Tensor:
        """Tokens after the last norm: `[B, T, H, W, D]`."""
        return self.encode(self.patch_embed(video_BCTHW))

    def encode(self, x_BTHWD: Tensor) -> Tensor:
        """`forward_features` from the tokens of the stem on."""
        x_BTHWD = self.time_embed(self.position_embed(x_BTHWD))
        if self.training and self.redraws:
            for module in self.blocks.modules():
                if isinstance(module, PerformerAttention):
                    module.count_pass()
        if self.chunked_inference and may_run_in_place(self, self.blocks, x_BTHWD):
            return self.norm(run_in_place(self.blocks, x_BTHWD))
        run = run_block if self.fused_training and torch.is_grad_enabled() else _call
        for block in self.blocks:
            kept = not self.checkpointing
            x_BTHWD = run(block, x_BTHWD) if kept else checkpoint(run, block, x_BTHWD, use_reentrant=False)
        return self.norm(x_BTHWD)

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        """One vector per clip, and what the head makes of it."""
        x_BD = self.pool(features)
        return self.head.pre_logits(x_BD) if pre_logits else self.head(x_BD)

    def reset_classifier(self, num_classes: int) -> None:
        coerce(num_classes, Classes, "num_classes")
        old = self.head.fc
        self.head.fc = nn.Linear(old.in_features, num_classes, device=old.weight.device, dtype=old.weight.dtype)
        init_weights(self.head.fc)
        self.num_classes = num_classes
        self.remember(num_classes=num_classes)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.checkpointing = enable

    def set_chunked_inference(self, enable: bool = True) -> None:
        """Run large clips on a CPU a few frames at a time (`models/fused.py`), the default, or all at once."""
        self.chunked_inference = enable

    def set_fused_training(self, enable: bool = True) -> None:
        """Train on a CPU with the backward passes written by hand (`models/fused.py`), the default, or by autograd."""
        self.fused_training = enable

    def no_weight_decay(self) -> set[str]:
        """Tables, and learned powers, which decay would pull to the middle of their range."""
        tables = ("time_embed.slots", "position_embed.table")
        return {name for name, _ in self.named_parameters() if name in tables or name.endswith(".attend.power")}

    def adapt_image_weights(self, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Attention in time starts as a copy of attention in space that adds nothing; joint attention takes its place.

        There is no class token here; its position goes with it.
        """
        adapted = {name: x for name, x in named.items() if name != "cls_position"}
        for name in self.state_dict():
            source = name.replace(".time.", ".space.").replace(".joint.", ".space.")
            if ".time." in name and source in named:
                adapted[name] = torch.zeros_like(named[source]) if ".body.proj." in name else named[source]
            elif ".joint." in name and source in named:
                adapted[name] = adapted.pop(source)
        return adapted

    @torch.no_grad()
    def set_input_size(self, num_frames: int | None = None, image_size: int | None = None) -> None:
        """Resize the learned tables to a new clip size; otherwise they are interpolated anew for every clip."""
        super().set_input_size(num_frames, image_size)
        side = self.patch_embed.grid(self.image_size)
        for attention in attentions(self):
            resize_tables(attention.attend, attention.axis.grid((self.num_frames, side, side)))
        for embed in (self.position_embed, self.time_embed):
            if isinstance(embed, PositionEmbed | TimeEmbed):
                resize_tables(embed, self.num_frames, side, side)
        if self.config.time_slots is not None:
            self.remember(time_slots=len(self.time_embed.slots))

    def check_input_size(self, num_frames: int, image_size: int) -> None:
        super().check_input_size(num_frames, image_size)
        replace(self.config, num_frames=num_frames, image_size=image_size).validate()

    def remember(self, **sizes: Any) -> None:
        super().remember(**sizes)
        self.config = replace(self.config, **sizes)


STEMS: dict[str, Callable[[FilledModelConfig], PatchEmbed | ConvStem | Lite0Stem]] = {
    "patch": lambda c: PatchEmbed(c.embed_dim, c.patch_size, c.patch_stride, c.patch_padding, c.patch_norm),
    "conv": lambda c: ConvStem(c.embed_dim, c.patch_size, c.patch_norm),
    "lite0": lambda c: Lite0Stem(c.embed_dim, c.patch_size, c.patch_norm),
}

POOLS: dict[str, type[MeanPool | GridPool]] = {"mean": MeanPool, "grid": GridPool}


def _call(block: nn.Module, x_BTHWD: Tensor) -> Tensor:
    return block(x_BTHWD)


def _block(config: FilledModelConfig, size_THW: Grid, drop_path: float) -> nn.Sequential:
    c = config
    mlp = ConvMlp if c.mlp_conv else Mlp
    axes = PATTERNS[c.pattern, c.attention_order]
    bodies: dict[str, nn.Module] = {axis: build_attention(c, axis, size_THW) for axis in axes}
    bodies["mlp"] = mlp(c.embed_dim, round(c.embed_dim * c.mlp_ratio))
    block = nn.Sequential()
    for name, body in bodies.items():
        block.add_module(name, Branch(c.embed_dim, body, drop_path))
    return block


def attentions(model: nn.Module) -> list[Attention]:
    """All attentions of a model, in order of use."""
    return [module for module in model.modules() if isinstance(module, Attention)]
