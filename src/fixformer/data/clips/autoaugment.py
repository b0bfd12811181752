"""AutoAugment's ImageNet policy v0 and RandAugment, for clips: one draw for all frames.

Levels run from 0 to 10. Two deviations from the usual image implementations: histogram operations see the whole clip,
and posterising keeps at least one bit (at level 2 the published rule keeps none, which turns the clip black).
"""

from collections.abc import Callable

import numpy as np
from torch import Tensor

from fixformer.data.clips import pixels

MAX_LEVEL = 10.0
RAND_PROBABILITY = 0.5

Operation = Callable[[Tensor, float, np.random.Generator], Tensor]
Step = tuple[str, float, float]


def _signed(level: float, largest: float, rng: np.random.Generator) -> float:
    """The level's share of `largest`, in either direction."""
    size = level / MAX_LEVEL * largest
    return size if rng.random() < 0.5 else -size


def _enhanced(level: float) -> float:
    """The factor of PIL's enhancement operations, from 0.1 to 1.9; 1 changes nothing."""
    return level / MAX_LEVEL * 1.8 + 0.1


OPERATIONS: dict[str, Operation] = {
    "AutoContrast": lambda clip, level, rng: pixels.auto_contrast(clip),
    "Equalize": lambda clip, level, rng: pixels.equalise(clip),
    "Invert": lambda clip, level, rng: pixels.invert(clip),
    "Rotate": lambda clip, level, rng: pixels.rotate(clip, _signed(level, 30, rng)),
    "ShearX": lambda clip, level, rng: pixels.shear_x(clip, _signed(level, 0.3, rng)),
    "ShearY": lambda clip, level, rng: pixels.shear_y(clip, _signed(level, 0.3, rng)),
    "TranslateX": lambda clip, level, rng: pixels.translate_x(clip, _signed(level, 0.45, rng)),
    "TranslateY": lambda clip, level, rng: pixels.translate_y(clip, _signed(level, 0.45, rng)),
    "Posterize": lambda clip, level, rng: pixels.posterise(clip, max(1, int(level / MAX_LEVEL * 4))),
    "Solarize": lambda clip, level, rng: pixels.solarise(clip, int(level / MAX_LEVEL * 256)),
    "SolarizeAdd": lambda clip, level, rng: pixels.solarise_add(clip, int(level / MAX_LEVEL * 110)),
    "Color": lambda clip, level, rng: pixels.saturation(clip, _enhanced(level)),
    "Contrast": lambda clip, level, rng: pixels.contrast(clip, _enhanced(level)),
    "Brightness": lambda clip, level, rng: pixels.brightness(clip, _enhanced(level)),
    "Sharpness": lambda clip, level, rng: pixels.sharpness(clip, _enhanced(level)),
}

# RandAugment: a higher level is a stronger change; enhancement goes in either direction
INCREASING: dict[str, Operation] = {
    **{name: OPERATIONS[name] for name in ("AutoContrast", "Equalize", "Invert", "Rotate", "SolarizeAdd")},
    **{name: OPERATIONS[name] for name in ("ShearX", "ShearY", "TranslateX", "TranslateY")},
    "Posterize": lambda clip, level, rng: pixels.posterise(clip, max(1, 4 - int(level / MAX_LEVEL * 4))),
    "Solarize": lambda clip, level, rng: pixels.solarise(clip, 256 - int(level / MAX_LEVEL * 256)),
    "Color": lambda clip, level, rng: pixels.saturation(clip, max(0.1, 1 + _signed(level, 0.9, rng))),
    "Contrast": lambda clip, level, rng: pixels.contrast(clip, max(0.1, 1 + _signed(level, 0.9, rng))),
    "Brightness": lambda clip, level, rng: pixels.brightness(clip, max(0.1, 1 + _signed(level, 0.9, rng))),
    "Sharpness": lambda clip, level, rng: pixels.sharpness(clip, max(0.1, 1 + _signed(level, 0.9, rng))),
}

# operation, probability, level; 25 sub-policies of two
POLICY_V0: tuple[tuple[Step, Step], ...] = (
    (("Equalize", 0.8, 1), ("ShearY", 0.8, 4)),
    (("Color", 0.4, 9), ("Equalize", 0.6, 3)),
    (("Color", 0.4, 1), ("Rotate", 0.6, 8)),
    (("Solarize", 0.8, 3), ("Equalize", 0.4, 7)),
    (("Solarize", 0.4, 2), ("Solarize", 0.6, 2)),
    (("Color", 0.2, 0), ("Equalize", 0.8, 8)),
    (("Equalize", 0.4, 8), ("SolarizeAdd", 0.8, 3)),
    (("ShearX", 0.2, 9), ("Rotate", 0.6, 8)),
    (("Color", 0.6, 1), ("Equalize", 1.0, 2)),
    (("Invert", 0.4, 9), ("Rotate", 0.6, 0)),
    (("Equalize", 1.0, 9), ("ShearY", 0.6, 3)),
    (("Color", 0.4, 7), ("Equalize", 0.6, 0)),
    (("Posterize", 0.4, 6), ("AutoContrast", 0.4, 7)),
    (("Solarize", 0.6, 8), ("Color", 0.6, 9)),
    (("Solarize", 0.2, 4), ("Rotate", 0.8, 9)),
    (("Rotate", 1.0, 7), ("TranslateY", 0.8, 9)),
    (("ShearX", 0.0, 0), ("Solarize", 0.8, 4)),
    (("ShearY", 0.8, 0), ("Color", 0.6, 4)),
    (("Color", 1.0, 0), ("Rotate", 0.6, 2)),
    (("Equalize", 0.8, 4), ("Equalize", 0.0, 8)),
    (("Equalize", 1.0, 4), ("AutoContrast", 0.6, 2)),
    (("ShearY", 0.4, 7), ("SolarizeAdd", 0.6, 7)),
    (("Posterize", 0.8, 2), ("Solarize", 0.6, 10)),
    (("Solarize", 0.6, 8), ("Equalize", 0.6, 1)),
    (("Color", 0.8, 6), ("Rotate", 0.4, 5)),
)


def auto_augment(clip_CTHW: Tensor, rng: np.random.Generator) -> Tensor:
    """One of the 25 sub-policies; each of its two operations happens with its own probability."""
    for name, probability, level in POLICY_V0[rng.integers(len(POLICY_V0))]:
        if rng.random() < probability:
            clip_CTHW = OPERATIONS[name](clip_CTHW, level, rng)
    return clip_CTHW


def rand_augment(
    clip_CTHW: Tensor, rng: np.random.Generator, *, operations: int, magnitude: float, deviation: float
) -> Tensor:
    """`operations` draws from the list, each applied half of the time at a level drawn around `magnitude`."""
    names = sorted(INCREASING)
    for pick in rng.integers(len(names), size=operations):
        if rng.random() < RAND_PROBABILITY:
            level = float(np.clip(rng.normal(magnitude, deviation), 0, MAX_LEVEL))
            clip_CTHW = INCREASING[names[pick]](clip_CTHW, level, rng)
    return clip_CTHW
