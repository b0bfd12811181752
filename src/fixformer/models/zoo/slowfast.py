"""SlowFast: a wide network on few frames and a thin one on all frames, joined after every stage.

Shapes: B batch, C channels, T frames, H rows, W columns.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fixformer.config.schema import check_positive
from fixformer.errors import InputError
from fixformer.models.registry import register
from fixformer.models.zoo.common.bottleneck import RESNET_DEPTHS, Bottleneck, zero_last_norms
from fixformer.models.zoo.common.checkpointing import run
from fixformer.models.zoo.common.convolution import ConvNormAct
from fixformer.models.zoo.common.pooled_classifier import PooledClassifier, global_average, initialise_convolutions

EXPANSION = 4
LATERAL_RATIO = 2  # channels of a lateral connection, as a multiple of the fast path's

# How many blocks of each stage look at neighbouring frames.
TemporalBlocks = Sequence[int]


class Pathway(nn.Module):
    """A 3-D ResNet. `lateral_dims` are the channels that join the output of the stem and of all stages but the last."""

    def __init__(
        self,
        width: int,
        depths: Sequence[int],
        *,
        stem_frames: int,
        temporal_blocks: TemporalBlocks,
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
            x_BCTHW = run(block, x_BCTHW, checkpointing=checkpointing)
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
    """The fast path sees every frame, the slow path every `alpha`-th with `beta` times the channels. Any T and size.

    `temporal_blocks` limits the blocks with temporal kernels in each stage of both paths; the slow path has none in its
    first two stages whatever it says.
    """

    def __init__(
        self,
        *,
        num_classes: int,
        num_frames: int,
        image_size: int,
        dropout: float = 0.5,
        depths: Sequence[int] = RESNET_DEPTHS[50],
        width: int = 64,
        alpha: int = 4,
        beta: int = 8,
        lateral_kernel: int = 7,
        temporal_blocks: TemporalBlocks | None = None,
    ) -> None:
        check_positive(lateral_kernel=lateral_kernel)
        if lateral_kernel % 2 == 0:
            raise InputError(f"lateral_kernel={lateral_kernel} must be odd to be centred on a frame; try 5 or 7.")
        fast_width = width // beta
        fast_dims = [fast_width, *(fast_width * EXPANSION * 2**stage for stage in range(len(depths)))]
        super().__init__(num_classes=num_classes, num_frames=num_frames, image_size=image_size)
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
            ConvNormAct(dim, LATERAL_RATIO * dim, (lateral_kernel, 1, 1), stride=(alpha, 1, 1), act=nn.ReLU())
            for dim in fast_dims[:-1]
        )
        initialise_convolutions(self)
        zero_last_norms(self)
        self.add_head(self.slow.dims[-1] + self.fast.dims[-1], dropout)

    def forward_features(self, video_BCTHW: Tensor) -> Tensor:
        """Both paths averaged over space and time, `[B, C]`: their frame rates differ, so no map holds both."""
        slow, fast = self.slow.forward_stem(video_BCTHW[:, :, :: self.alpha]), self.fast.forward_stem(video_BCTHW)
        for stage, lateral in enumerate(self.laterals):
            slow = torch.cat([slow, lateral(fast)], dim=1)
            slow = self.slow.forward_stage(stage, slow, checkpointing=self.checkpointing)
            fast = self.fast.forward_stage(stage, fast, checkpointing=self.checkpointing)
        return torch.cat([global_average(slow), global_average(fast)], dim=1)

    def pool(self, features: Tensor) -> Tensor:
        return features[:, None]


@register
def slowfast_r50_8x8(
    *,
    num_classes: int = 400,
    num_frames: int = 32,
    image_size: int = 224,
    dropout: float = 0.5,
    lateral_kernel: int = 7,
) -> SlowFast:
    """SlowFast on ResNet-50: 32 frames, of which the slow path sees 8."""
    return SlowFast(
        num_classes=num_classes,
        num_frames=num_frames,
        image_size=image_size,
        dropout=dropout,
        lateral_kernel=lateral_kernel,
    )


@register
def slowfast_r101_8x8(
    *,
    num_classes: int = 174,
    num_frames: int = 32,
    image_size: int = 224,
    dropout: float = 0.5,
    lateral_kernel: int = 5,
) -> SlowFast:
    """SlowFast on ResNet-101, with temporal kernels in the first 6 of the 23 blocks of its third stage."""
    return SlowFast(
        num_classes=num_classes,
        num_frames=num_frames,
        image_size=image_size,
        dropout=dropout,
        depths=RESNET_DEPTHS[101],
        lateral_kernel=lateral_kernel,
        temporal_blocks=RESNET_DEPTHS[50],
    )
