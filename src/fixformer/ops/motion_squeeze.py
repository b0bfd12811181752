"""Motion between neighbouring frames from the correlation of their features (MotionSqueeze).

Shapes: B clips, T frames, N pairs of frames, C channels, H rows, W columns, R the largest displacement,
P = 2R + 1 displacements along an axis, D = P² displacements in raster order of (dy, dx).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from fixformer.ops.precision import accumulate_in_float32

NORM_EPS = 1e-6  # as in the authors' code: a feature vector of zeros stays zero


@accumulate_in_float32
def squeeze_motion(features_BTCHW: Tensor, radius: int = 7, temperature: float = 100.0, sigma: float = 5.0) -> Tensor:
    """Displacement (dx, dy) to the next frame, in units of the radius, and its confidence: `[B, T, 3, H, W]`.

    The last frame has no next one and repeats the motion before it; a clip of one frame is compared with itself.
    """
    B, T = features_BTCHW.shape[:2]
    first, second = frame_pairs(normalise(features_BTCHW, dim=2))
    scores_NDHW = F.relu(correlation(first.flatten(0, 1), second.flatten(0, 1), radius))
    flow_N2HW = soft_argmax(scores_NDHW, temperature, sigma)
    confidence_N1HW = scores_NDHW.amax(dim=1, keepdim=True)
    motion_BT3HW = torch.cat([flow_N2HW, confidence_N1HW], dim=1).unflatten(0, (B, -1))
    return motion_BT3HW if T == 1 else torch.cat([motion_BT3HW, motion_BT3HW[:, -1:]], dim=1)


def frame_pairs(features_BTCHW: Tensor) -> tuple[Tensor, Tensor]:
    """Frames that have a next one, and the next ones."""
    if features_BTCHW.shape[1] == 1:
        return features_BTCHW, features_BTCHW
    return features_BTCHW[:, :-1], features_BTCHW[:, 1:]


def normalise(features: Tensor, dim: int) -> Tensor:
    return features / (features.square().sum(dim, keepdim=True) + NORM_EPS).sqrt()


def correlation(first_NCHW: Tensor, second_NCHW: Tensor, radius: int) -> Tensor:
    """Inner products of each position of `first` with the positions of `second` up to `radius` away; zero outside.

    Each row is multiplied with the P rows around it at once and the diagonal band of displacements is cut out. That is
    more products than the D that are needed, but large ones: ten times faster than D small ones, and nothing like
    the P² copies of `second` that an unfold makes.
    """
    N, C, H, W = first_NCHW.shape
    P = 2 * radius + 1
    rows_NCHWP = F.pad(second_NCHW, (0, 0, radius, radius)).unfold(2, P, 1)
    rows_NHCPW = rows_NCHWP.permute(0, 2, 1, 4, 3)
    products = first_NCHW.permute(0, 2, 3, 1) @ rows_NHCPW.reshape(N, H, C, P * W)
    products_NHPWW = products.view(N, H, W, P, W).transpose(2, 3)
    band_NHPWP = _diagonal_band(products_NHPWW, radius)
    return band_NHPWP.permute(0, 2, 4, 1, 3).reshape(N, P * P, H, W)


def _diagonal_band(products: Tensor, radius: int) -> Tensor:
    """`out[..., x, d] = products[..., x, x + d - radius]`: rows read with a stride longer by one slide along."""
    W = products.shape[-1]
    wide = F.pad(products, (radius, radius)).flatten(-2)
    slanted = F.pad(wide, (0, W)).unflatten(-1, (W, W + 2 * radius + 1))
    return slanted[..., : 2 * radius + 1]


def soft_argmax(scores_NDHW: Tensor, temperature: float, sigma: float) -> Tensor:
    """Expected (dx, dy) / R under a softmax of the scores, weighted by a Gaussian around the best displacement."""
    offsets_2D = displacements(scores_NDHW.shape[1], scores_NDHW)
    best_N2HW = offsets_2D[:, scores_NDHW.argmax(dim=1)].movedim(0, 1)
    distance_NDHW = (offsets_2D[None, :, :, None, None] - best_N2HW[:, :, None]).square().sum(dim=1)
    near_NDHW = torch.exp(-distance_NDHW / (2 * sigma**2))
    weights_NDHW = torch.softmax(temperature * near_NDHW * scores_NDHW, dim=1)
    radius = max((_side(scores_NDHW.shape[1]) - 1) // 2, 1)
    return torch.einsum("kd,ndhw->nkhw", offsets_2D, weights_NDHW) / radius


def displacements(count: int, like: Tensor) -> Tensor:
    """(dx, dy) of each channel of a correlation, `[2, D]`."""
    side = _side(count)
    steps = torch.arange(side, device=like.device, dtype=like.dtype) - (side - 1) // 2
    return torch.stack([steps.repeat(side), steps.repeat_interleave(side)])


def _side(count: int) -> int:
    side = round(count**0.5)
    assert side * side == count, f"{count} displacements do not fill a square"
    return side


def correlation_reference(first_NCHW: Tensor, second_NCHW: Tensor, radius: int) -> Tensor:
    """One displacement and one position at a time."""
    N, _, H, W = first_NCHW.shape
    P = 2 * radius + 1
    out = first_NCHW.new_zeros(N, P, P, H, W)
    for dy, dx, y, x in torch.cartesian_prod(*map(torch.arange, (P, P, H, W))).tolist():
        v, u = y + dy - radius, x + dx - radius
        if 0 <= v < H and 0 <= u < W:
            out[:, dy, dx, y, x] = (first_NCHW[:, :, y, x] * second_NCHW[:, :, v, u]).sum(dim=1)
    return out.flatten(1, 2)


def soft_argmax_reference(scores_NDHW: Tensor, temperature: float, sigma: float) -> Tensor:
    """One position at a time."""
    N, D, H, W = scores_NDHW.shape
    side = _side(D)
    radius = (side - 1) // 2
    offsets = [(d % side - radius, d // side - radius) for d in range(D)]
    flow = scores_NDHW.new_zeros(N, 2, H, W)
    for n, y, x in torch.cartesian_prod(*map(torch.arange, (N, H, W))).tolist():
        scores = scores_NDHW[n, :, y, x]
        bx, by = offsets[int(scores.argmax())]
        near = scores.new_tensor([-((dx - bx) ** 2 + (dy - by) ** 2) / (2 * sigma**2) for dx, dy in offsets]).exp()
        weights = (temperature * near * scores).softmax(dim=0)
        flow[n, :, y, x] = sum(w * w.new_tensor(offset) for w, offset in zip(weights, offsets, strict=True))
    return flow / max(radius, 1)
