"""The temporal shift of TSM: a share of the channels comes from the next frame, another from the one before.

Shapes: N = B·T frames of B clips as one batch, C channels, H rows, W columns.
"""

import torch
from torch import Tensor


def temporal_shift(x_NCHW: Tensor, num_frames: int, fold: int) -> Tensor:
    """Channels [0, fold) come from frame t+1, [fold, 2 fold) from t-1, zero at the ends of each clip."""
    if fold == 0:
        return x_NCHW
    x_BTCHW = x_NCHW.unflatten(0, (-1, num_frames))
    ahead, behind, own = x_BTCHW.tensor_split((fold, 2 * fold), dim=2)
    none = torch.zeros_like(ahead[:, :1])
    ahead = torch.cat([ahead[:, 1:], none], dim=1)
    behind = torch.cat([none, behind[:, :-1]], dim=1)
    return torch.cat([ahead, behind, own], dim=2).flatten(0, 1)


def temporal_shift_reference(x_NCHW: Tensor, num_frames: int, fold: int) -> Tensor:
    """Frame by frame."""
    out_NCHW = x_NCHW.clone()
    for n in range(x_NCHW.shape[0]):
        t = n % num_frames
        out_NCHW[n, :fold] = x_NCHW[n + 1, :fold] if t + 1 < num_frames else 0
        out_NCHW[n, fold : 2 * fold] = x_NCHW[n - 1, fold : 2 * fold] if t > 0 else 0
    return out_NCHW
