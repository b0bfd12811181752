"""A perceptual fingerprint of a video's pictures, to find copies whose bytes differ.

It survives re-encoding, resizing and a change of brightness. It has two parts, because clips of one scene share their
background: the average picture, and how the pictures differ from it over time. Two videos are taken to be the same
when both parts agree.

Legend: T sampled frames, H height, W width, C the three colours, N videos, D values in a part of a fingerprint.
"""

import base64
from collections.abc import Iterator

import numpy as np

TIMES = 8  # sampled frames
SIDE = 16  # of the average picture; the differences over time are stored at half of it, for 768 bytes in all
# Measured on LSA64: clips re-encoded at x264's crf 28 to 35 reach 0.9998 and 0.91 to 1, at half the size 0.9987 and
# 0.89; two signers never exceed 0.991 in the first. One signer repeating a sign passes both in a tenth of the cases.
SAME_SCENE = 0.9985
SAME_MOTION = 0.9
_SCENE_D = SIDE * SIDE
_MOTION_D = TIMES * (SIDE // 2) ** 2
_CHUNK = 2048  # videos compared at once with as many: the matrices then take about 30 MB


def sampled_frames(frames: int) -> list[int]:
    """The numbers of the frames a fingerprint is made from: the middles of equal parts."""
    return [(2 * i + 1) * frames // (2 * TIMES) for i in range(TIMES)]


def fingerprint(frames_THWC: np.ndarray) -> str:
    """The fingerprint of the frames at `sampled_frames`, as base85 text of 960 characters."""
    assert len(frames_THWC) == TIMES
    small_THWC = np.stack([_shrink(picture, SIDE) for picture in frames_THWC])
    small_THW = small_THWC @ np.array([0.299, 0.587, 0.114], np.float32)  # luma of BT.601
    scene_HW = small_THW.mean(0)
    motion_THW = np.stack([_shrink(picture[..., None], SIDE // 2) for picture in small_THW - scene_HW])
    parts = [_quantise(scene_HW - scene_HW.mean()), _quantise(motion_THW)]
    return base64.b85encode(np.concatenate(parts).tobytes()).decode()


def similar_pairs(first: list[str], second: list[str]) -> Iterator[tuple[int, int, float]]:
    """(index in first, index in second, similarity of motion) of all pairs that look the same."""
    bytes_a, bytes_b = _unpack(first), _unpack(second)
    # block by block: 170,000 videos against a few thousand at once would take gigabytes
    for top in range(0, len(first), _CHUNK):
        scene_a, motion_a = _units(bytes_a[top : top + _CHUNK])
        for left in range(0, len(second), _CHUNK):
            scene_b, motion_b = _units(bytes_b[left : left + _CHUNK])
            motion_NN = motion_a @ motion_b.T
            for i, j in np.argwhere((scene_a @ scene_b.T > SAME_SCENE) & (motion_NN > SAME_MOTION)):
                yield top + int(i), left + int(j), float(motion_NN[i, j])


def _shrink(picture_HWC: np.ndarray, side: int) -> np.ndarray:
    """Means over a grid of `side` x `side` cells; a picture smaller than the grid is repeated first."""
    height, width = picture_HWC.shape[:2]
    picture_HWC = picture_HWC.repeat(-(-side // height), 0).repeat(-(-side // width), 1)
    rows, columns = (np.arange(side) * size // side for size in picture_HWC.shape[:2])
    sums = np.add.reduceat(np.add.reduceat(picture_HWC, rows, 0, dtype=np.float32), columns, 1)
    heights, widths = np.diff(rows, append=picture_HWC.shape[0]), np.diff(columns, append=picture_HWC.shape[1])
    return sums / np.outer(heights, widths)[..., None].astype(np.float32)


def _quantise(values: np.ndarray) -> np.ndarray:
    scale = np.abs(values).max()
    return np.round(values.reshape(-1) * (127 / scale if scale > 0 else 0)).astype(np.int8)


def _unpack(prints: list[str]) -> np.ndarray:
    """Both parts side by side, as the bytes they were stored as: `[N, D]`."""
    whole = [np.frombuffer(base64.b85decode(text), np.int8) for text in prints]
    return np.array(whole, np.int8).reshape(-1, _SCENE_D + _MOTION_D)


def _units(bytes_ND: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both parts as unit vectors `[N, D]`."""
    parts = np.split(bytes_ND.astype(np.float32), [_SCENE_D], axis=1)
    scene_ND, motion_ND = (part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-6) for part in parts)
    return scene_ND, motion_ND
