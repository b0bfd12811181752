"""Two small modules beside an attention, with any kind and on any axis: a convolution of the values and an output gate.

Shapes: B batch, T frames, H rows, W columns, D width, h heads, E head width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Of a fresh output gate: σ(3) = 0.95 lets nearly everything pass, and the slope of σ there still lets it learn.
OPEN = 3.0


class LocalValues(nn.Module):
    """A depth-wise 3x3 convolution of the values over the rows and columns of each frame.

    It is over frames in attention along time, too: what a token gets is always from the eight tokens around it. The
    filters start at zero, so that a fresh network, or one with weights from elsewhere, is the one without them.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim, 1, 3, 3))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, v_BTHWhE: Tensor) -> Tensor:
        """`[B, T, H, W, D]`."""
        v_NDHW = v_BTHWhE.flatten(-2).flatten(0, 1).permute(0, 3, 1, 2)
        y_NDHW = F.conv2d(v_NDHW, self.weight, self.bias, padding=1, groups=len(self.weight))
        return y_NDHW.permute(0, 2, 3, 1).unflatten(0, v_BTHWhE.shape[:2])


class OutputGate(nn.Module):
    """σ(W x + b + 3) of the tokens that an attention is given, one ratio for each channel of its result."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x_BTHWD: Tensor) -> Tensor:
        return (self.fc(x_BTHWD) + OPEN).sigmoid()
