"""MSNet: TSM with motion between frames estimated after the second stage and added to its features.

Shapes: B clips, T frames, N = B·T, C channels, H rows, W columns.
"""

from torch import Tensor, nn

from fixformer.config.model import ModelSettings
from fixformer.models.registry import register
from fixformer.models.zoo.common.bottleneck import RESNET_DEPTHS
from fixformer.models.zoo.common.checkpointing import run_block
from fixformer.models.zoo.common.convolution import ConvNormAct
from fixformer.models.zoo.common.pooled_classifier import initialise_convolutions
from fixformer.models.zoo.tsm import EXPANSION, TSM
from fixformer.ops.motion_squeeze import squeeze_motion

# Sizes as published.
MATCH_DIM = 64
MOTION_DIM = 3  # dx, dy, confidence
REFINE_DIMS = (16, 32, 64)


class MotionSqueeze(nn.Module):
    """Features plus a refinement of the displacement field to the next frame."""

    def __init__(self, dim: int, *, radius: int = 7) -> None:
        super().__init__()
        self.radius = radius
        self.reduce = ConvNormAct(dim, MATCH_DIM, (1, 1), act=nn.ReLU())
        dims = (MOTION_DIM, *REFINE_DIMS, dim)
        kernels = (7, 3, 3, 3)
        self.refine = nn.Sequential(
            *(_separable(i, o, k) for i, o, k in zip(dims[:-1], dims[1:], kernels, strict=True))
        )

    def forward(self, x_NCHW: Tensor, num_frames: int) -> Tensor:
        matched_BTCHW = self.reduce(x_NCHW).unflatten(0, (-1, num_frames))
        motion_BT3HW = squeeze_motion(matched_BTCHW, self.radius)
        return x_NCHW + self.refine(motion_BT3HW.flatten(0, 1))


def _separable(in_dim: int, out_dim: int, kernel: int) -> nn.Sequential:
    return nn.Sequential(
        ConvNormAct(in_dim, in_dim, (kernel, kernel), groups=in_dim, act=nn.ReLU()),
        ConvNormAct(in_dim, out_dim, (1, 1), act=nn.ReLU()),
    )


class MSNet(TSM):
    """TSM with a `MotionSqueeze` after its second stage."""

    def __init__(
        self, settings: ModelSettings, *, depths: tuple[int, ...] = RESNET_DEPTHS[50], width: int = 64
    ) -> None:
        super().__init__(settings, depths=depths, width=width)
        self.motion = MotionSqueeze(2 * width * EXPANSION)
        initialise_convolutions(self.motion)

    def forward_stage(self, stage: int, x_NCHW: Tensor, num_frames: int) -> Tensor:
        x_NCHW = super().forward_stage(stage, x_NCHW, num_frames)
        return run_block(self.motion, x_NCHW, num_frames, checkpointing=self.checkpointing) if stage == 1 else x_NCHW


@register(ModelSettings())
def msnet_r50(settings: ModelSettings) -> MSNet:
    """MSNet on ResNet-50."""
    return MSNet(settings)
