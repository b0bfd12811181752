"""The standards' conversion from YUV to RGB, in floating point."""

import av
import numpy as np

CORNER = np.s_[-241:, -321:]  # enough of a large picture, with the last line and column


def rgb_by_definition(
    frame: av.VideoFrame, kr: float, kb: float, bits: int, full: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The standard's formula in floating point, chroma repeated to the size of luma; and where chroma is flat."""
    dtype, scale = (np.uint8, 1) if bits == 8 else (np.dtype("<u2"), 1 << (bits - 8))
    y, u, v = (np.frombuffer(p, dtype).reshape(p.height, -1)[:, : p.width] / scale for p in frame.planes)
    if u.shape != y.shape:
        u, v = (c.repeat(2, 0).repeat(2, 1)[: y.shape[0], : y.shape[1]] for c in (u, v))
    y, u, v = (plane[CORNER] for plane in (y, u, v))
    black, luma, chroma = (0, 255, 255) if full else (16, 219, 224)
    light, cb, cr = (y - black) / luma, (u - 128) / chroma, (v - 128) / chroma
    r, b = light + 2 * (1 - kr) * cr, light + 2 * (1 - kb) * cb
    g = (light - kr * r - kb * b) / (1 - kr - kb)
    return np.clip(np.stack([r, g, b], -1) * 255, 0, 255), flat(u) & flat(v)


def flat(plane_HW: np.ndarray) -> np.ndarray:
    """Where a plane does not change, so that its interpolation cannot matter."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(plane_HW, 3, mode="edge"), (7, 7))
    return np.ptp(windows, axis=(2, 3)) <= 1
