"""SlowFast: a wide network on few frames and a thin one on all frames, with lateral connections before every stage.

Shapes: B batch, C channels, T frames, H rows, W columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from fixformer.config.clip import FrameCount
from fixformer.config.model import Classes, ModelSettings
from fixformer.config.schema import Expect
from fixformer.models.registry import register
from fixformer.models.zoo.common.bottleneck import RESNET_DEPTHS, Bottleneck, zero_last_norms
from fixformer.models.zoo.common.checkpointing import run_block
from fixformer.models.zoo.common.convolution import ConvNormAct
from fixformer.models.zoo.common.pooled_classifier import PooledClassifier, initialise_convolutions

EXPANSION = 4
LATERAL_RATIO = 2  # channels of a lateral connection, as a multiple of the fast path's

# Odd, so that it is centred on a frame.
OddInt = Annotated[int, Expect("an odd number from 1 to 99, such as 5 or 7", lambda size: 1 <= size <= 99 and size % 2)]


@dataclass(frozen=True)
class SlowFastSettings(ModelSettings):
    """`lateral_kernel`: frames that a lateral connection looks at."""

    num_classes: Classes = 400
    num_frames: FrameCount = 32
    lateral_kernel: OddInt = 7


class Pathway(nn.Module):
    """A 3-D ResNet.

    `temporal_blocks`: how many blocks of each stage have kernels over time. `lateral_dims`: channels that are joined to
    the output of the stem and of all stages but the last.
    """

    def __init__(
        self,
        width: int,
        depths: Sequence[int],
        *,
        stem_frames: int,
        temporal_blocks: Sequence[int],
        lateral_dims: Sequence[int],
    ) -> None:
        super().__init__()
        self.dims = [width * EXPANSION * 2**stage for stage in range(len(depths))]
        in_dims = [a + b for a, b in zip([width, *self.dims[:-1]], lateral_dims, strict=True)]
        self.stem = ConvNormAct(3, width, (stem_frames, 7, 7), stride=(1, 2, 2), act=nn.ReLU())
        self.stem_pool = nn.MaxPool3d((1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1))
        self.stages = nn.ModuleList(
            _stage(in_dims[s], self.dims[s], depth, stride=1 if s == 0 else 2, num_temporal=temporal_blocks[s])
            for s, depth in enumerate(depths)
        )

    def forward_stem(self, x_BCTHW: Tensor) -> Tensor:
        return self.stem_pool(self.stem(x_BCTHW))

    def forward_stage(self, stage: int, x_BCTHW: Tensor, *, checkpointing: bool) -> Tensor:
        for block in self.stages[stage].children():
            x_BCTHW = run_block(block, x_BCTHW, checkpointing=checkpointing)
        return x_BCTHW


def _stage(in_dim: int, out_dim: int, depth: int, *, stride: int, num_temporal: int) -> nn.ModuleList:
    return nn.ModuleList(
        Bottleneck(
            in_dim if i == 0 else out_dim,
            out_dim // EXPANSION,
            out_dim,
            ((3 if i < num_temporal else 1, 1, 1), (1, 3, 3)),
            stride=stride if i == 0 else 1,
        )
        for i in range(depth)
    )


class SlowFast(PooledClassifier):
    """The fast path sees every frame, the slow path every `alpha`-th with `beta` times the channels. Runs at any T and
    size.

    `temporal_blocks` limits the blocks with kernels over time in each stage of both paths; the slow path never has any
    in its first two stages.
    """

    def __init__(
        self,
        settings: SlowFastSettings,
        *,
        depths: Sequence[int] = RESNET_DEPTHS[50],
        width: int = 64,
        alpha: int = 4,
        beta: int = 8,
        temporal_blocks: Sequence[int] | None = None,
    ) -> None:
        super().__init__(settings)
        fast_width = width // beta
        fast_dims = [fast_width, *(fast_width * EXPANSION * 2**stage for stage in range(len(depths)))]
        self.alpha = alpha
        blocks = tuple(temporal_blocks or depths)
        self.slow = Pathway(
            width,
            depths,
            stem_frames=1,
            temporal_blocks=(0, 0, *blocks[2:]),
            lateral_dims=[LATERAL_RATIO * dim for dim in fast_dims[:-1]],
        )
        self.fast = Pathway(fast_width, depths, stem_frames=5, temporal_blocks=blocks, lateral_dims=[0] * len(depths))
        self.laterals = nn.ModuleList(
            ConvNormAct(dim, LATERAL_RATIO * dim, (settings.lateral_kernel, 1, 1), stride=(alpha, 1, 1), act=nn.ReLU())
            for dim in fast_dims[:-1]
        )
        initialise_convolutions(self)
        zero_last_norms(self)
        self.add_head(self.slow.dims[-1] + self.fast.dims[-1])

    def forward_features(self, video_BCTHW: Tensor) -> Tensor:
        """Both paths averaged over space and time, `[B, C]`: their frame rates differ, so no feature map holds both."""
        slow, fast = self.slow.forward_stem(video_BCTHW[:, :, :: self.alpha]), self.fast.forward_stem(video_BCTHW)
        for stage, lateral in enumerate(self.laterals):
            slow = torch.cat([slow, lateral(fast)], dim=1)
            slow = self.slow.forward_stage(stage, slow, checkpointing=self.checkpointing)
            fast = self.fast.forward_stage(stage, fast, checkpointing=self.checkpointing)
        return torch.cat([slow.mean(dim=(2, 3, 4)), fast.mean(dim=(2, 3, 4))], dim=1)

    def pool(self, features: Tensor) -> Tensor:
        return features[:, None]


@register(SlowFastSettings())
def slowfast_r50_8x8(settings: SlowFastSettings) -> SlowFast:
    """SlowFast on ResNet-50: 32 frames, of which the slow path sees 8."""
    return SlowFast(settings)


@register(SlowFastSettings(num_classes=174, lateral_kernel=5))
def slowfast_r101_8x8(settings: SlowFastSettings) -> SlowFast:
    """SlowFast on ResNet-101, with temporal kernels in the first 6 of the 23 blocks of its third stage."""
    return SlowFast(settings, depths=RESNET_DEPTHS[101], temporal_blocks=RESNET_DEPTHS[50])
