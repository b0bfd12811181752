"""The MLP of a block a few frames at a time; for the backward pass only what the first Linear returns is kept.

Shapes: F frames of any clips, H rows, W columns, D width, C hidden channels; R = F·H·W rows.
"""

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from fixformer.models.fused_parts import Affine, AffineGradient, Layer, add_norm_gradients, chunks, normalise
from fixformer.models.layers.residual import Branch, ConvMlp, Mlp


class FusedMlp:
    """x + mlp(norm(x))."""

    def __init__(self, branch: Branch) -> None:
        body = branch.body
        assert isinstance(body, Mlp)
        self.eps, self.approximate, self.hidden = branch.norm.eps, body.approximate, body.fc1.out_features
        self.layers: list[Layer] = [branch.norm, body.fc1, body.fc2]
        self.layers += [body.dwconv] if isinstance(body, ConvMlp) else []

    def forward(self, weights: Sequence[Affine], x_BTHWD: Tensor, out_BTHWD: Tensor, kept: list[Tensor] | None) -> None:
        norm, fc1, fc2, *dwconv = weights
        for x_FHWD, out_FHWD in self._frames(x_BTHWD, out_BTHWD):
            hidden_FHWC = fc1.linear(normalise(x_FHWD, norm, self.eps).rows_RD)
            out_FHWD.add_(fc2.linear(self._activate(self._convolve(hidden_FHWC, dwconv))))
            if kept is not None:
                kept.append(hidden_FHWC)

    def backward(
        self,
        weights: Sequence[Affine],
        gradients: Sequence[AffineGradient],
        kept: Sequence[Tensor],
        x_BTHWD: Tensor,
        g_BTHWD: Tensor,
        g_x_BTHWD: Tensor,
    ) -> None:
        norm, fc1, fc2, *dwconv = weights
        g_norm, g_fc1, g_fc2, *g_dwconv = gradients
        frames = self._frames(x_BTHWD, g_BTHWD, g_x_BTHWD)
        for hidden_FHWC, (x_FHWD, g_FHWD, g_x_FHWD) in zip(kept, frames, strict=True):
            convolved_FHWC = self._convolve(hidden_FHWC, dwconv)
            g_fc2.add_linear(_rows(g_FHWD), _rows(self._activate(convolved_FHWC)))
            g_hidden_FHWC = torch.ops.aten.gelu_backward(
                g_FHWD @ fc2.weight, convolved_FHWC, approximate=self.approximate
            )
            if dwconv:
                g_hidden_FHWC = _convolution_gradients(g_hidden_FHWC, hidden_FHWC, dwconv[0], g_dwconv[0])
            x_RD, normalised = _rows(x_FHWD), normalise(_rows(x_FHWD), norm, self.eps)
            g_fc1.add_linear(_rows(g_hidden_FHWC), normalised.rows_RD)
            add_norm_gradients(_rows(g_hidden_FHWC) @ fc1.weight, x_RD, normalised, norm, g_norm, _rows(g_x_FHWD))

    def _frames(self, *clips_BTHWD: Tensor) -> Iterator[list[Tensor]]:
        frames = [clip.flatten(0, 1) for clip in clips_BTHWD]
        bytes_each = frames[0][0, ..., 0].numel() * self.hidden * frames[0].element_size()
        for part in chunks(len(frames[0]), bytes_each):
            yield [x_FHWD[part] for x_FHWD in frames]

    def _convolve(self, x_FHWC: Tensor, dwconv: Sequence[Affine]) -> Tensor:
        for conv in dwconv:
            x_FHWC = _depthwise(x_FHWC, conv.weight, conv.bias)
        return x_FHWC

    def _activate(self, x_FHWC: Tensor) -> Tensor:
        return F.gelu(x_FHWC, approximate=self.approximate)


def _rows(x_FHWD: Tensor) -> Tensor:
    return x_FHWD.flatten(0, 2)


def _depthwise(x_FHWC: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    # Tokens are channels-last already: permuting is a view, and the convolution keeps that layout.
    return F.conv2d(x_FHWC.permute(0, 3, 1, 2), weight, bias, padding=1, groups=len(weight)).permute(0, 2, 3, 1)


def _convolution_gradients(g_FHWC: Tensor, x_FHWC: Tensor, conv: Affine, g_conv: AffineGradient) -> Tensor:
    """Add those of the weights; return that of the input."""
    found = torch.ops.aten.convolution_backward(
        *(g_FHWC.permute(0, 3, 1, 2), x_FHWC.permute(0, 3, 1, 2), conv.weight, [x_FHWC.shape[-1]]),
        *([1, 1], [1, 1], [1, 1], False, [0, 0], x_FHWC.shape[-1]),
        [True, g_conv.weight is not None, g_conv.bias is not None],
    )
    g_conv.add(*found[1:])
    return found[0].permute(0, 2, 3, 1)
