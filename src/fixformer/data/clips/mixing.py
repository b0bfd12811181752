"""Mixup and cutmix of a batch, and the targets they need.

Clip 2i is mixed with clip 2i+1. A training batch is in random order, so the partner is random; and a batch divided
between processes in even parts is mixed exactly as on one process.

Legend: B clips, K classes.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fixformer.config import Augment


@dataclass(frozen=True)
class Mixed:
    """A mixed batch: label i has the weight `share`, its partner's label the rest."""

    video_BCTHW: Tensor
    labels_B: Tensor
    partner_labels_B: Tensor
    share: float


def mix_batch(video_BCTHW: Tensor, labels_B: Tensor, augment: Augment, rng: np.random.Generator) -> Mixed:
    """Mixup or cutmix as configured; with both on, one of them is drawn per batch."""
    use_cutmix = augment.cutmix > 0 and (augment.mixup == 0 or rng.random() < 0.5)
    if not use_cutmix and augment.mixup == 0:
        return Mixed(video_BCTHW, labels_B, labels_B, 1.0)
    partner_B = partners(len(labels_B)).to(labels_B.device)
    if use_cutmix:
        video, share = cutmix(video_BCTHW, video_BCTHW[partner_B], float(rng.beta(augment.cutmix, augment.cutmix)), rng)
    else:
        share = float(rng.beta(augment.mixup, augment.mixup))
        video = torch.lerp(video_BCTHW[partner_B], video_BCTHW, share)
    return Mixed(video, labels_B, labels_B[partner_B], share)


def partners(batch: int) -> Tensor:
    """0 <-> 1, 2 <-> 3, ...; the last clip of an odd batch is its own partner."""
    partner = torch.arange(batch) ^ 1
    return torch.where(partner < batch, partner, torch.arange(batch))


def cutmix(video: Tensor, other: Tensor, share: float, rng: np.random.Generator) -> tuple[Tensor, float]:
    """Paste a box of the partner, the same in every frame; returns the share of the picture that is left."""
    height, width = video.shape[-2:]
    side = (1 - share) ** 0.5
    y, x = int(rng.integers(height)), int(rng.integers(width))
    half_h, half_w = round(height * side) // 2, round(width * side) // 2
    top, bottom = max(y - half_h, 0), min(y + half_h, height)
    left, right = max(x - half_w, 0), min(x + half_w, width)
    mixed = video.clone()
    mixed[..., top:bottom, left:right] = other[..., top:bottom, left:right]
    return mixed, 1 - (bottom - top) * (right - left) / (height * width)


def soft_targets(mixed: Mixed, classes: int, smoothing: float = 0.0) -> Tensor:
    """`[B, K]` targets: the two labels by share, then smoothed towards uniform."""
    one, two = (F.one_hot(labels, classes).float() for labels in (mixed.labels_B, mixed.partner_labels_B))
    return torch.lerp(two, one, mixed.share) * (1 - smoothing) + smoothing / classes
