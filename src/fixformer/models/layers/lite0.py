"""EfficientNet-Lite0 (after Tan and Le, 2019): a small image network whose public weights start a video model.

MBConv blocks without squeeze-and-excitation, ReLU6 throughout. Batch normalisation with frozen statistics is an affine
map of each channel, so it is part of the convolutions here (`models/weights/image_network.py` folds it in): that is
exactly what the published network computes, with half as many passes over memory.

Shapes: N frames of any clips, B clips, T frames, C channels, H rows, W columns.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fixformer.models.layers.depthwise import depthwise, is_faster


class Stage(NamedTuple):
    """Equal blocks in a row; the first has the stride and changes the width."""

    blocks: int
    width: int
    kernel: int
    stride: int
    expansion: int


STAGES = (
    Stage(1, 16, 3, 1, 1),
    Stage(2, 24, 3, 2, 6),
    Stage(2, 40, 5, 2, 6),
    Stage(3, 80, 3, 2, 6),
    Stage(3, 112, 5, 1, 6),
    Stage(4, 192, 5, 2, 6),
    Stage(1, 320, 3, 1, 6),
)
FIRST_WIDTH, LAST_WIDTH = 32, 1280
# Stride of the features -> how many stages make them: all up to the next one that would halve the picture again.
STAGES_OF_STRIDE = {8: 3, 16: 5, 32: 7}
# Of RGB in [0, 1]; the network was trained with (bytes - 127) / 128.
MEAN, STD = 127 / 255, 128 / 255
# The largest tensor of a chunk of pictures: on two AMD and Intel machines 8 pictures of 128 pixels at a time, 13 MB,
# take 3.7 ms each, 32 at once 6.6 ms.
CHUNK_BYTES = 16 << 20


class SameConv(nn.Conv2d):
    """A convolution with a bias, padded as TensorFlow does: ceil(size / stride) outputs, the odd pixel at the end."""

    def forward(self, x_NCHW: Tensor) -> Tensor:
        size, stride = self.kernel_size[0], self.stride[0]
        if self.groups > 1 and self.bias is not None and is_faster(x_NCHW, size, stride):
            return depthwise(x_NCHW, self.weight, self.bias, stride)
        if stride == 1:  # the same on both sides, which the convolution does itself
            return F.conv2d(x_NCHW, self.weight, self.bias, 1, size // 2, 1, self.groups)
        rows, columns = (max((-(-n // stride) - 1) * stride + size - n, 0) for n in x_NCHW.shape[2:])
        padded = F.pad(x_NCHW, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
        return F.conv2d(padded, self.weight, self.bias, stride, 0, 1, self.groups)


class MBConv(nn.Module):
    """Widen, filter each channel by itself, narrow; the input is added where the shape stays."""

    def __init__(self, width_in: int, width: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = width_in * expansion
        self.expand = SameConv(width_in, inner, 1) if expansion > 1 else None
        self.depthwise = SameConv(inner, inner, kernel, stride, groups=inner)
        self.project = SameConv(inner, width, 1)
        self.is_residual = stride == 1 and width_in == width

    def forward(self, x_NCHW: Tensor) -> Tensor:
        # in place: what a convolution makes is needed by nobody else
        wide = x_NCHW if self.expand is None else F.relu6(self.expand(x_NCHW), inplace=True)
        narrow = self.project(F.relu6(self.depthwise(wide), inplace=True))
        return x_NCHW + narrow if self.is_residual else narrow


class Lite0Features(nn.Module):
    """Pictures `[N, 3, H, W]`, normalised with `MEAN` and `STD`, to features `[N, C, H / stride, W / stride]`."""

    def __init__(self, stride: int = 16) -> None:
        super().__init__()
        self.stride = stride
        self.first = SameConv(3, FIRST_WIDTH, 3, 2)
        self.blocks = nn.ModuleList()
        width = FIRST_WIDTH
        for stage in STAGES[: STAGES_OF_STRIDE[stride]]:
            for number in range(stage.blocks):
                step = stage.stride if number == 0 else 1
                self.blocks.append(MBConv(width, stage.width, stage.kernel, step, stage.expansion))
                width = stage.width
        self.width = width

        self.frozen = 0

    def freeze(self, blocks: int | None) -> None:
        """Keep the weights of the first convolution and of so many blocks as they are; None keeps all, 0 none.

        Nothing is stored for their backward pass. The first three blocks, down to stride 4, take four tenths of a
        training step at 128 pixels, and see edges and colours, which are the same in every data set.
        """
        self.frozen = len(self.blocks) if blocks is None else min(blocks, len(self.blocks))
        for number, layer in enumerate([self.first, *self.blocks]):
            layer.requires_grad_(number > self.frozen or self.frozen == 0)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return self._in_chunks(x_NCHW, len(self.blocks))
        if self.frozen == 0:
            return self._run(x_NCHW, 0, len(self.blocks))
        with torch.no_grad():
            x_NCHW = self._in_chunks(x_NCHW, self.frozen)
        return self._run(x_NCHW, self.frozen, len(self.blocks))

    def _in_chunks(self, x_NCHW: Tensor, stop: int) -> Tensor:
        """A few pictures at a time: tensors that fit the processor's cache are reused, larger ones are fresh memory."""
        if torch.compiler.is_compiling() or torch.jit.is_tracing() or x_NCHW.device.type != "cpu":
            return self._run(x_NCHW, 0, stop)
        widest = STAGES[0].width * STAGES[1].expansion * 4 * (x_NCHW.shape[2] * x_NCHW.shape[3] // 4)
        return torch.cat([self._run(part, 0, stop) for part in x_NCHW.split(max(1, CHUNK_BYTES // max(1, widest)))])

    def _run(self, x_NCHW: Tensor, start: int, stop: int) -> Tensor:
        """Blocks `start` to `stop`, after the first convolution if they begin with it."""
        if start == 0:
            x_NCHW = F.relu6(self.first(x_NCHW.contiguous(memory_format=torch.channels_last)), inplace=True)
        for block in self.blocks[start:stop]:
            x_NCHW = block(x_NCHW)
        return x_NCHW


class Lite0Stem(nn.Module):
    """Frames to tokens: the image network's features of each frame and of its change, mapped to the model's width.

    The change is the difference of a frame's features from their mean over the clip, as in `ConvStem`: what stays the
    same in all frames fills most of a video.
    """

    def __init__(self, dim: int, stride: int, norm: bool) -> None:
        super().__init__()
        self.features = Lite0Features(stride)
        self.feature_norm = nn.LayerNorm(self.features.width, eps=1e-5)
        self.proj = nn.Linear(2 * self.features.width, dim)
        self.norm = nn.LayerNorm(dim, eps=1e-5) if norm else nn.Identity()

    def grid(self, image_size: int) -> int:
        """Tokens along one side of a square frame."""
        return -(-image_size // self.features.stride)

    def extract(self, video_BCTHW: Tensor) -> Tensor:
        """The image network's features, `[B, T, H, W, C]`: what does not change while it is frozen."""
        batch, _, frames = video_BCTHW.shape[:3]
        x_NCHW = self.features(video_BCTHW.transpose(1, 2).flatten(0, 1))
        return x_NCHW.permute(0, 2, 3, 1).unflatten(0, (batch, frames))

    def embed(self, features_BTHWC: Tensor) -> Tensor:
        """Features to tokens."""
        x_BTHWC = self.feature_norm(features_BTHWC)
        change_BTHWC = x_BTHWC - x_BTHWC.mean(1, keepdim=True)
        return self.norm(self.proj(torch.cat([x_BTHWC, change_BTHWC], -1)))

    def forward(self, video_BCTHW: Tensor) -> Tensor:
        return self.embed(self.extract(video_BCTHW))


class Lite0Classifier(nn.Module):
    """The whole published network, pictures to the logits of ImageNet's 1,000 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.features = Lite0Features(32)
        self.last = SameConv(self.features.width, LAST_WIDTH, 1)
        self.fc = nn.Linear(LAST_WIDTH, 1000)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        return self.fc(F.relu6(self.last(self.features(x_NCHW)), inplace=True).mean((2, 3)))
