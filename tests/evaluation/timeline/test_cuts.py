"""Cuts are found; flashes, movement and noise are none."""

import numpy as np
import torch

from fixformer.evaluation.timeline.cuts import ChangeMeter, find_cuts
from fixformer.evaluation.timeline.segments import WindowScores, find_pieces, log_softmax

RNG = np.random.default_rng(0)


def clip(*shots: tuple[int, int]) -> torch.Tensor:
    """Shots as (scene, frames): a smooth background per scene with slight noise."""
    frames = []
    for scene, count in shots:
        base = np.random.default_rng(scene).uniform(40, 200, (3, 1, 4, 4)).repeat(16, 2).repeat(16, 3)
        frames.append(base + RNG.normal(0, 4, (3, count, 64, 64)))
    return torch.from_numpy(np.concatenate(frames, 1).clip(0, 255).astype(np.uint8))


def cuts_of(clip_CTHW: torch.Tensor, parts: int = 1) -> list[float]:
    meter, seconds = ChangeMeter(), torch.arange(clip_CTHW.shape[1]) / 10
    for part, times in zip(clip_CTHW.chunk(parts, 1), seconds.chunk(parts), strict=True):
        meter.add(part, times.tolist())
    return [round(cut, 3) for cut in meter.cuts()]


def test_cuts_and_what_is_none() -> None:
    assert cuts_of(clip((0, 20), (1, 15), (2, 20))) == [1.95, 3.45]
    assert cuts_of(clip((0, 20), (1, 15), (2, 20)), parts=7) == [1.95, 3.45]
    assert cuts_of(clip((0, 60))) == []
    assert cuts_of(clip((0, 20), (1, 1), (0, 20))) == []  # a flash
    assert cuts_of(torch.zeros(3, 30, 64, 64, dtype=torch.uint8)) == []
    ramp = torch.arange(40).view(1, 40, 1, 1).expand(3, 40, 64, 64) * 5
    assert cuts_of(ramp.to(torch.uint8)) == []  # light that fades in
    assert find_cuts([], []) == []
    assert find_cuts([0.0], [0.0]) == []


def test_no_piece_goes_over_a_cut() -> None:
    """Also if a shot is shorter than the shortest piece, and the scores would have it otherwise."""
    times = np.arange(1, 11, 0.25)
    labels = (times > 5.6).astype(int)
    scores = WindowScores(2.0, times, log_softmax(6 * np.eye(3)[labels]))
    free = find_pieces([scores], 2.0, 12.0)
    assert [piece.label for piece in free] == [0, 1]
    assert abs(free[0].end - 5.6) < 0.5
    held = find_pieces([scores], 2.0, 12.0, [5.0, 8.0, 8.5])
    assert [piece.label for piece in held] == [0, 1]
    assert 5.0 <= held[0].end <= 6.5
    exact = find_pieces([scores], 2.0, 12.0, [5.3, 5.9])
    assert exact[0].end in (5.3, 5.9)
    assert exact[-1].end == 12.0
