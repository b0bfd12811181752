"""TSM: a ResNet on frames whose residual branches exchange channels with the frames before and after.

Shapes: B clips, T frames, N = B·T, C channels, H rows, W columns.
"""

from torch import Tensor, nn

from fixformer.config.model import ModelSettings
from fixformer.models.registry import register
from fixformer.models.zoo.common.bottleneck import RESNET_DEPTHS, Bottleneck
from fixformer.models.zoo.common.checkpointing import run_block
from fixformer.models.zoo.common.convolution import ConvNormAct
from fixformer.models.zoo.common.pooled_classifier import PooledClassifier, initialise_convolutions
from fixformer.ops.temporal_shift import temporal_shift

SHIFT_DIVISOR = 8  # an eighth of the channels moves forward in time, an eighth backward
EXPANSION = 4


class ShiftBottleneck(Bottleneck):
    """A bottleneck on frames. Only the residual branch is shifted, so that the shortcut keeps the frame's features."""

    def __init__(self, in_dim: int, inner_dim: int, out_dim: int, *, stride: int = 1, shifted: bool = True) -> None:
        super().__init__(in_dim, inner_dim, out_dim, ((1, 1), (3, 3)), stride=stride)
        self.fold = in_dim // SHIFT_DIVISOR if shifted else 0

    def forward(self, x_NCHW: Tensor, num_frames: int) -> Tensor:  # type: ignore[override]
        shifted_NCHW = temporal_shift(x_NCHW, num_frames, self.fold)
        return self.act(self.shortcut(x_NCHW) + self.residual(shifted_NCHW))


class TSM(PooledClassifier):
    """A ResNet with temporal shifts, whose scores are averaged over frames. Runs at any T and size."""

    def __init__(
        self,
        settings: ModelSettings,
        *,
        depths: tuple[int, ...] = RESNET_DEPTHS[50],
        width: int = 64,
        shift_every: int = 1,
    ) -> None:
        super().__init__(settings)
        dims = [width * EXPANSION * 2**stage for stage in range(len(depths))]
        self.stem = ConvNormAct(3, width, (7, 7), stride=2, act=nn.ReLU())
        self.stem_pool = nn.MaxPool2d(3, stride=2, padding=1)
        in_dims = [width, *dims[:-1]]
        self.stages = nn.ModuleList(
            _stage(in_dims[s], dims[s], depth, stride=1 if s == 0 else 2, shift_every=shift_every)
            for s, depth in enumerate(depths)
        )
        initialise_convolutions(self)
        self.add_head(dims[-1], std=0.001)

    def forward_features(self, video_BCTHW: Tensor) -> Tensor:
        """The last feature map of every frame, `[B, T, C, H/32, W/32]`."""
        T = video_BCTHW.shape[2]
        x_NCHW = self.stem_pool(self.stem(video_BCTHW.transpose(1, 2).flatten(0, 1)))
        for stage in range(len(self.stages)):
            x_NCHW = self.forward_stage(stage, x_NCHW, T)
        return x_NCHW.unflatten(0, (-1, T))

    def forward_stage(self, stage: int, x_NCHW: Tensor, num_frames: int) -> Tensor:
        for block in self.stages[stage].children():
            x_NCHW = run_block(block, x_NCHW, num_frames, checkpointing=self.checkpointing)
        return x_NCHW

    def pool(self, features: Tensor) -> Tensor:
        return features.mean(dim=(3, 4))


def _stage(in_dim: int, out_dim: int, depth: int, *, stride: int, shift_every: int) -> nn.ModuleList:
    return nn.ModuleList(
        ShiftBottleneck(
            in_dim if i == 0 else out_dim,
            out_dim // EXPANSION,
            out_dim,
            stride=stride if i == 0 else 1,
            shifted=i % shift_every == 0,
        )
        for i in range(depth)
    )


@register(ModelSettings())
def tsm_r50(settings: ModelSettings) -> TSM:
    """TSM on ResNet-50, every block shifted."""
    return TSM(settings)


@register(ModelSettings(num_frames=8))
def tsm_r101(settings: ModelSettings) -> TSM:
    """TSM on ResNet-101, every second block of each stage shifted."""
    return TSM(settings, depths=RESNET_DEPTHS[101], shift_every=2)
