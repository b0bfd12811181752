"""The learning-rate schedule: linear warm-up into a cosine, as the released code computes it."""

import math

from fixformer.config import OptimConfig


def cosine(config: OptimConfig, epochs: float, epoch: float) -> float:
    return config.end_lr + (config.lr - config.end_lr) * 0.5 * (1 + math.cos(math.pi * epoch / epochs))


def phase_rate(config: OptimConfig, epochs: int, frozen: int, epoch: float) -> float:
    """`learning_rate` of a run whose first `frozen` epochs are a phase of their own: each phase is one schedule."""
    if epoch < frozen:
        return learning_rate(config, frozen, epoch)
    return learning_rate(config, epochs - frozen, epoch - frozen)


def learning_rate(config: OptimConfig, epochs: float, epoch: float) -> float:
    """The rate at a fractional epoch. Warm-up ends at the cosine's value there, not at the base rate."""
    warmup = config.warmup_epochs
    if epoch >= warmup:
        return cosine(config, epochs, epoch)
    return config.warmup_lr + (cosine(config, epochs, warmup) - config.warmup_lr) * epoch / warmup
