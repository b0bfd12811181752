"""Geometry of the crops: equal to the released code; scaling and normalising against plain arithmetic."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from av.video.frame import VideoFrame

from fixformer.config import Augment, ClipSpec
from fixformer.data.clips import transforms
from fixformer.data.clips.augment import train_clip
from fixformer.data.video.orientation import RgbConverter
from fixformer.data.video.scaling import MOST_STRETCHED, scaled_size
from fixformer.errors import InputError, UserError
from fixformer.runtime.seeds import generator


def frames(t: int, h: int, w: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (t, h, w, 3), dtype=np.uint8)


def test_test_crops_equal_released(golden_sampling: dict[str, Any]) -> None:
    for case in golden_sampling["test_crops"]["cases"]:
        height, width = case["input_hw"]
        width, height = scaled_size(width, height, case["crop"])
        assert [height, width] == case["resized_hw"]
        offsets = transforms.view_crop_offsets(height, width, case["crop"])
        assert [list(offset) for offset in offsets] == case["offsets_yx"]


def test_train_resize_equals_released(golden_sampling: dict[str, Any]) -> None:
    for case in golden_sampling["train_resize"]["cases"]:
        assert round(case["drawn_size"]) == case["rounded_size"]
        height, width = case["input_hw"]
        assert list(scaled_size(width, height, case["rounded_size"])) == case["resized_hw"][::-1]


def test_decoders_and_clips_scale_to_the_same_size() -> None:
    """Exactly, where floating point would be a pixel off (196 x 427 at 224), and never below the short side."""
    assert scaled_size(196, 427, 224) == (224, 488)
    for width, height, side in product((1, 49, 128, 196, 341), (3, 96, 196, 228, 427), (1, 40, 112, 224)):
        clip = torch.zeros(3, 1, height, width, dtype=torch.uint8)
        if max(height, width) <= MOST_STRETCHED * min(height, width):
            assert transforms.resize_short_side(clip, side).shape[-2:] == scaled_size(width, height, side)[::-1]
        scaled = RgbConverter(VideoFrame(width, height, "rgb24"), side)
        assert scaled.size == scaled_size(width, height, side)
        assert min(scaled.size) == side


@pytest.mark.parametrize(("width", "height"), [(228, 128), (128, 96), (1920, 1080), (640, 360), (320, 240)])
def test_scaled_sizes_of_the_results_are_those_of_the_released_code(width: int, height: int) -> None:
    """LSA64, motions and common videos: the released code rounds down in floating point."""
    for side in range(8, height):
        assert scaled_size(width, height, side) == (math.floor(width / height * side), side)


def test_train_random_crop_equals_released(golden_sampling: dict[str, Any]) -> None:
    for case in golden_sampling["train_random_crop"]["cases"]:
        top, left = transforms.random_crop_bounds(*case["input_hw"], case["crop"])
        expected = case["inclusive_offset_range"]
        assert [0, top] == expected.get("y", [0, 0])
        assert [0, left] == expected.get("x", [0, 0])


def test_train_multiscale_crop_equals_released(golden_sampling: dict[str, Any]) -> None:
    for case in golden_sampling["train_multiscale_crop"]["cases"]:
        width, height = case["input_wh"]
        sizes = transforms.multiscale_sizes(height, width)
        assert [list(size) for size in sizes] == case["candidate_crops_wh"]
        for name, expected in case["offsets_xy_for_crop"].items():
            w, h = map(int, name.split("x"))
            assert [list(place) for place in transforms.multiscale_offsets(height, width, w, h)] == expected


def test_multiscale_crops_of_one_pixel_are_not_empty() -> None:
    assert set(transforms.multiscale_sizes(1, 64)) == {(1, 1)}


@pytest.mark.parametrize("size", [(40, 70), (20, 31), (25, 60)])
@pytest.mark.parametrize("antialias", [True, False])
def test_resize_is_bilinear_with_half_pixel_centres(size: tuple[int, int], antialias: bool) -> None:
    clip = transforms.from_frames(frames(3, 30, 50))
    got = transforms.resize(clip, *size, antialias)
    exact = F.interpolate(clip.float().transpose(0, 1), size, mode="bilinear", antialias=antialias).transpose(0, 1)
    assert got.dtype == torch.uint8
    assert (got.float() - exact).abs().max() <= 1.01  # rounding of bytes


def test_resize_gives_the_same_for_any_memory_layout() -> None:
    clip = transforms.from_frames(frames(3, 30, 50))
    assert torch.equal(transforms.resize(clip, 17, 41), transforms.resize(clip.contiguous(), 17, 41))
    assert transforms.resize(clip, 30, 50) is clip


@pytest.mark.parametrize(("h", "w"), [(48, 64), (64, 48), (40, 40)])
def test_view_crops_are_windows_of_the_scaled_clip(h: int, w: int) -> None:
    clip = transforms.from_frames(frames(2, h, w))
    scaled = transforms.resize_short_side(clip, 40)
    spec = ClipSpec(size=32, short_side=40)
    first, centre, last = transforms.view_crops(clip, spec, 3)
    assert torch.equal(transforms.view_crops(clip, spec, 1)[0], centre)
    ends = (slice(0, 32), slice(-32, None))
    if h > w:
        assert torch.equal(first, scaled[..., ends[0], 4:36])
        assert torch.equal(last, scaled[..., ends[1], 4:36])
    else:
        assert torch.equal(first, scaled[..., 4:36, ends[0]])
        assert torch.equal(last, scaled[..., 4:36, ends[1]])


@pytest.mark.parametrize(("h", "w"), [(2, 4096), (4096, 2)])
def test_a_strip_is_not_enlarged(h: int, w: int) -> None:
    clip = transforms.from_frames(frames(1, h, w))
    with pytest.raises(InputError, match=f"{w} x {h} pixels.*short side of 224"):
        transforms.view_crops(clip, ClipSpec(), 1)
    assert min(transforms.resize_short_side(clip, 1).shape[-2:]) == 1
    narrow = transforms.from_frames(frames(1, 1, 64))
    assert transforms.resize_short_side(narrow, 8).shape[-2:] == (8, 512)


def test_only_one_or_three_crops() -> None:
    with pytest.raises(UserError, match="crops=2"):
        transforms.chosen_crops(2)


def test_normalise_any_leading_shape() -> None:
    video = torch.arange(256, dtype=torch.uint8).view(1, 1, 1, 16, 16).expand(2, 3, 1, 16, 16)
    got = transforms.normalise(video, (0.5, 0.4, 0.3), (0.5, 0.25, 0.2))
    for c, (mean, std) in enumerate([(0.5, 0.5), (0.4, 0.25), (0.3, 0.2)]):
        torch.testing.assert_close(got[:, c], (video[:, c].float() / 255 - mean) / std)
    assert torch.equal(got[0], transforms.normalise(video[0], (0.5, 0.4, 0.3), (0.5, 0.25, 0.2)))


def test_erase_boxes_zeroes_only_the_box() -> None:
    video = torch.ones(2, 3, 4, 8, 8)
    boxes = torch.tensor([[1, 2, 3, 4], [0, 0, 0, 0]])
    transforms.erase_boxes(video, boxes)
    assert video[0].sum() == 3 * 4 * (64 - 12)
    assert video[0, :, :, 1:4, 2:6].sum() == 0
    assert video[1].min() == 1


@pytest.mark.parametrize(("height", "width"), [(30, 50), (50, 30), (24, 24)])
def test_a_squeezed_view_holds_the_whole_picture(height: int, width: int) -> None:
    clip = torch.randint(0, 256, (3, 2, height, width), dtype=torch.uint8)
    spec = ClipSpec(size=24, fit="squeeze", augment=Augment(jitter=(24, 24)))
    whole = transforms.resize(clip, 24, 24)
    assert torch.equal(transforms.view_crops(clip, spec, 1)[0], whole)
    drawn, _ = train_clip(clip.permute(1, 2, 3, 0).numpy(), spec, generator(0))
    assert torch.equal(drawn, whole)
