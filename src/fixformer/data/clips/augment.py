"""Augmentation of training clips: one draw for all frames, always from the generator that is passed in.

Clips stay uint8; normalisation and the erasing that follows it are done per batch (`TrainBatch.inputs`).

Legend: C colours, T frames, H height, W width.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fixformer.config import ClipSpec
from fixformer.data.clips import pixels, transforms
from fixformer.data.clips.autoaugment import auto_augment, rand_augment
from fixformer.data.clips.pixels import Box

NO_BOX = (0, 0, 0, 0)
# Random erasing (Zhong et al. 2017) with the defaults of timm: share of the area, smallest aspect.
ERASE_AREA = (0.02, 1 / 3)
ERASE_ASPECT = 0.3
# Random resized crop as torchvision does it: aspects from 3/4 to 4/3, ten attempts to fit a shape into the picture.
RESIZED_ASPECT = 3 / 4
ATTEMPTS = 10
# Control points along a side of an elastic deformation: parts of a body move apart, a hand is bent little.
CONTROL_POINTS = 4

Cut = tuple[Tensor, Box]
"""A clip, possibly scaled, and the box of it to keep."""


def train_clip(frames_THWC: np.ndarray, spec: ClipSpec, rng: np.random.Generator) -> tuple[Tensor, Box]:
    """An augmented `clip_CTHW` of bytes, and the box (top, left, height, width) to erase once it is normalised."""
    augment = spec.augment
    clip = transforms.from_frames(frames_THWC)
    if augment.policy == "v0":
        clip = auto_augment(clip, rng)
    elif augment.policy == "rand":
        settings = {"magnitude": augment.rand_magnitude, "deviation": augment.rand_std}
        clip = rand_augment(clip, rng, operations=augment.rand_ops, **settings)
    clip = warp(*CROPS[augment.crop](clip, spec, rng), augment.warp, augment.elastic, rng)
    clip = transforms.resize(clip, spec.size, spec.size, spec.antialias)
    if rng.random() < augment.flip:
        clip = clip.flip(-1)
    clip = colour_jitter(clip.contiguous(), augment.colour, augment.hue, rng)
    return clip, erase_box(spec.size, spec.size, rng) if rng.random() < augment.erase else NO_BOX


def warp(clip_CTHW: Tensor, box: Box, strength: float, elastic: float, rng: np.random.Generator) -> Tensor:
    """The box, transformed about its centre by a random matrix, the identity plus up to `strength` in every entry, and
    deformed smoothly by up to `elastic` of its sides."""
    if strength == elastic == 0:
        return transforms.crop(clip_CTHW, *box)
    linear = np.eye(2) + rng.uniform(-strength, strength, size=(2, 2))
    return pixels.about_centre(clip_CTHW, linear, box, smooth_field(*box[2:], elastic, rng) if elastic else None)


def smooth_field(height: int, width: int, strength: float, rng: np.random.Generator) -> Tensor:
    """Displacements (x, y) in pixels, `[2, H, W]`: bicubic between control points drawn up to `strength` of a side,
    which it may exceed a little between them."""
    sides = np.array([width, height])[:, None, None]
    points = torch.from_numpy(rng.uniform(-strength, strength, size=(2, CONTROL_POINTS, CONTROL_POINTS)) * sides)
    return F.interpolate(points[None].float(), (height, width), mode="bicubic", align_corners=True)[0]


def jitter_crop(clip_CTHW: Tensor, spec: ClipSpec, rng: np.random.Generator) -> Cut:
    """Short side to a drawn size (rounded half to even), then a random square of it."""
    side = round(rng.uniform(*spec.augment.jitter))
    scaled = transforms.scaled_to(clip_CTHW, side, spec.fit, spec.antialias)
    height, width = scaled.shape[-2:]
    top, left = _random_place(height, width, transforms.random_crop_bounds(height, width, spec.size), spec, rng)
    return scaled, (top, left, spec.size, spec.size)


def _random_place(
    height: int, width: int, room: tuple[int, int], spec: ClipSpec, rng: np.random.Generator
) -> tuple[int, int]:
    """(top, left) of a crop with this much free room: drawn from a share `reach` of it, as central as possible."""
    reach = spec.augment.reach
    place = []
    for free, middle in zip(room, transforms.middle(height, width, spec.focus), strict=True):
        first = int(free * min(max(middle - reach / 2, 0), 1 - reach))
        place.append(first + int(rng.integers(round(free * reach), endpoint=True)))
    return place[0], place[1]


def multiscale_crop(clip_CTHW: Tensor, spec: ClipSpec, rng: np.random.Generator) -> Cut:
    """TSN: one of ten crop shapes at one of thirteen places."""
    height, width = clip_CTHW.shape[-2:]
    sizes = transforms.multiscale_sizes(height, width)
    crop_width, crop_height = sizes[rng.integers(len(sizes))]
    places = transforms.multiscale_offsets(height, width, crop_width, crop_height)
    left, top = places[rng.integers(len(places))]
    return clip_CTHW, (top, left, crop_height, crop_width)


def resized_crop(clip_CTHW: Tensor, spec: ClipSpec, rng: np.random.Generator) -> Cut:
    """A random share of the picture in a random aspect; the whole picture if no attempt fits."""
    height, width = clip_CTHW.shape[-2:]
    h, w = _random_shape(height, width, spec.augment.area, RESIZED_ASPECT, rng) or (height, width)
    top, left = _random_place(height, width, (height - h, width - w), spec, rng)
    return clip_CTHW, (top, left, h, w)


def centre_crop(clip_CTHW: Tensor, spec: ClipSpec, rng: np.random.Generator) -> Cut:
    """The middle view of a test clip."""
    (view,) = transforms.view_crops(clip_CTHW, spec, 1)
    return view, (0, 0, spec.size, spec.size)


CROPS: dict[str, Callable[[Tensor, ClipSpec, np.random.Generator], Cut]] = {
    "jitter": jitter_crop,
    "multiscale": multiscale_crop,
    "resized": resized_crop,
    "centre": centre_crop,
}


def colour_jitter(clip_CTHW: Tensor, colour: float, hue: float, rng: np.random.Generator) -> Tensor:
    """Brightness, contrast, saturation and hue as one colour matrix: one pass over the pixels."""
    if colour == 0 and hue == 0:
        return clip_CTHW
    bright, contrast, saturation = rng.uniform(max(0, 1 - colour), 1 + colour, size=3)
    matrix = pixels.hue_matrix(rng.uniform(-hue, hue)) @ pixels.saturation_matrix(saturation) * bright * contrast
    # contrast is relative to the clip's mean grey, which hue and saturation do not change
    offset = (1 - contrast) * bright * pixels.grey_mean(clip_CTHW)
    return pixels.colour_matrix(clip_CTHW, matrix, np.full(3, offset))


def erase_box(height: int, width: int, rng: np.random.Generator) -> Box:
    """A box of 2 to 33 % of the area; no box if no attempt fits."""
    shape = _random_shape(height, width, ERASE_AREA, ERASE_ASPECT, rng)
    if shape is None:
        return NO_BOX
    h, w = shape
    top, left = rng.integers(height - h, endpoint=True), rng.integers(width - w, endpoint=True)
    return int(top), int(left), h, w


def _random_shape(
    height: int, width: int, area: tuple[float, float], aspect: float, rng: np.random.Generator
) -> tuple[int, int] | None:
    """Height and width of a uniformly drawn share of the area, their ratio log-uniform in [aspect, 1 / aspect]."""
    for _ in range(ATTEMPTS):
        target = rng.uniform(*area) * height * width
        ratio = math.exp(rng.uniform(math.log(aspect), -math.log(aspect)))
        h, w = round(math.sqrt(target * ratio)), round(math.sqrt(target / ratio))
        if 0 < h <= height and 0 < w <= width:
            return h, w
    return None
