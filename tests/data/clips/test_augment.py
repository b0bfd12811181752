"""Augmentation: one draw for all frames, reproducible, and each operation does what its name says."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fixformer.config import Augment, ClipSpec
from fixformer.data.clips import autoaugment, pixels
from fixformer.data.clips.augment import NO_BOX, colour_jitter, erase_box, smooth_field, train_clip, warp
from fixformer.data.clips.mixing import Mixed, mix_batch, partners, soft_targets
from fixformer.data.clips.transforms import from_frames, view_crops
from fixformer.runtime.seeds import generator

SMALL = ClipSpec(frames=4, size=24, augment=Augment(jitter=(28, 36)))
STRONG = {
    "v0": Augment(jitter=(28, 36), policy="v0", flip=0.5, colour=0.4, hue=0.1),
    "rand": Augment(jitter=(28, 36), policy="rand", rand_ops=3),
    "warp": Augment(jitter=(24, 24), reach=0, warp=0.3),
    "elastic": Augment(jitter=(24, 24), reach=0, elastic=0.1),
    "multiscale": Augment(crop="multiscale", jitter=(28, 36), flip=0.5),
    "resized": Augment(crop="resized", jitter=(28, 36), area=(0.2, 1)),
    "centre": Augment(crop="centre", jitter=(28, 36)),
}


def frames(t: int = 4, h: int = 30, w: int = 40, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (t, h, w, 3), dtype=np.uint8)


@pytest.mark.parametrize("name", STRONG)
def test_every_frame_gets_the_same_treatment(name: str) -> None:
    still = np.repeat(frames(1), 4, axis=0)
    for seed in range(40):
        clip, _ = train_clip(still, replace(SMALL, augment=STRONG[name]), generator(seed))
        assert clip.shape == (3, 4, 24, 24)
        assert clip.dtype == torch.uint8
        assert clip.is_contiguous()
        assert all(torch.equal(clip[:, 0], clip[:, t]) for t in range(1, 4))


@pytest.mark.parametrize("name", STRONG)
def test_equal_keys_give_equal_clips_and_others_differ(name: str) -> None:
    spec = replace(SMALL, augment=STRONG[name])
    clips = [train_clip(frames(), spec, generator(7, 3, "video"))[0] for _ in range(2)]
    assert torch.equal(*clips)
    others = [train_clip(frames(), spec, generator(7, epoch, "video"))[0] for epoch in range(12)]
    if name != "centre":
        assert len({clip.numpy().tobytes() for clip in others}) > 3


def test_keys_do_not_run_together() -> None:
    draws = {generator(*key).integers(2**62) for key in [(1, 23, "a"), (12, 3, "a"), (1, 2, "3a"), (1, 23, "b")]}
    assert len(draws) == 4


def test_flip_happens_as_often_as_asked() -> None:
    ramp = np.broadcast_to(np.arange(30, dtype=np.uint8)[None, None, :, None], (2, 30, 30, 3)).copy()
    spec = replace(SMALL, size=30, augment=Augment(crop="centre", flip=0.3))
    flipped = [bool(train_clip(ramp, spec, generator(i))[0][0, 0, 0, 0] == 29) for i in range(500)]
    assert 0.22 < np.mean(flipped) < 0.38


@pytest.mark.parametrize(
    ("focus", "reach", "places"),
    [(0.5, 0.0, (9, 9)), (0.5, 0.3, (6, 12)), (0.5, 1.0, (0, 19)), (0.0, 0.3, (0, 6)), (1.0, 0.0, (19, 19))],
)
def test_crops_stay_as_near_to_the_focus_as_asked(focus: float, reach: float, places: tuple[int, int]) -> None:
    """A picture of 30 x 50 leaves 20 pixels beside a crop of 30; the last is never drawn."""
    ramp = np.broadcast_to(np.arange(50, dtype=np.uint8)[None, None, :, None], (1, 30, 50, 3)).copy()
    spec = replace(SMALL, size=30, focus=focus, augment=Augment(jitter=(30, 30), reach=reach))
    found = {int(train_clip(ramp, spec, generator(i))[0][0, 0, 0, 0]) for i in range(300)}
    assert (min(found), max(found)) == places


@pytest.mark.parametrize(
    ("focus", "reach", "edges"), [(0.0, 0.0, {0}), (1.0, 0.0, {1}), (0.5, 0.0, set()), (0.5, 1.0, {0, 1})]
)
def test_resized_crops_stay_near_the_focus_too(focus: float, reach: float, edges: set[int]) -> None:
    """Which ends of the long side are ever in a crop that is a tenth of the picture."""
    ramp = np.broadcast_to(np.arange(50, dtype=np.uint8)[None, None, :, None], (1, 30, 50, 3)).copy()
    augment = Augment(crop="resized", area=(0.1, 0.1), reach=reach)
    clips = [
        train_clip(ramp, replace(SMALL, size=30, focus=focus, augment=augment), generator(i))[0] for i in range(300)
    ]
    found = {0 for clip in clips if clip.min() <= 1} | {1 for clip in clips if clip.max() >= 48}
    assert found == edges


@pytest.mark.parametrize(("shape", "place"), [((30, 50), (0, 6)), ((50, 30), (6, 0)), ((30, 30), (0, 0))])
def test_the_middle_view_lies_at_the_focus(shape: tuple[int, int], place: tuple[int, int]) -> None:
    spec = replace(SMALL, size=30, focus=0.3)
    clip = from_frames(frames(1, *shape))
    (view,) = view_crops(clip, spec, 1)
    assert torch.equal(view, clip[..., place[0] : place[0] + 30, place[1] : place[1] + 30])


def test_a_warp_moves_what_is_beside_the_centre_in_every_direction_and_never_the_centre() -> None:
    """A dot 9 pixels to the right of the centre of a box: further or nearer, higher or lower."""
    still = torch.zeros(1, 1, 41, 61, dtype=torch.uint8)
    still[..., 20, 30] = 255
    still[..., 19:22, 38:41] = 255
    places = []
    for seed in range(200):
        warped = warp(still, (5, 15, 31, 31), 0.2, 0, generator(seed))[0, 0]
        assert warped.shape == (31, 31)
        assert warped[15, 15] == 255
        beside = warped[10:21, 19:30]
        places.append(np.unravel_index(int(beside.argmax()), beside.shape))
        assert beside.max() > 200
    offsets = np.array(places) - 5
    assert (offsets.min(0) < -1).all()
    assert (offsets.max(0) > 0).all()


def test_an_elastic_deformation_moves_two_things_relative_to_each_other() -> None:
    """Two dots 36 pixels apart in a box of 61; up to 0.1 of it, 6 pixels, each."""
    still = torch.zeros(1, 1, 61, 61, dtype=torch.uint8)
    still[..., 29:32, 11:14] = still[..., 29:32, 47:50] = 255
    distances = []
    for seed in range(100):
        deformed = warp(still, (0, 0, 61, 61), 0, 0.1, generator(seed))[0, 0]
        columns = [int(half.amax(0).argmax()) for half in (deformed[:, :30], deformed[:, 30:])]
        distances.append(columns[1] + 30 - columns[0])
    assert min(distances) < 34
    assert max(distances) > 38
    assert all(20 <= distance <= 52 for distance in distances)


@given(height=st.integers(4, 80), width=st.integers(4, 80), strength=st.floats(0.01, 0.15), seed=st.integers(0, 99))
def test_a_smooth_field_stays_near_its_control_points_and_does_not_jump(
    height: int, width: int, strength: float, seed: int
) -> None:
    field_2HW = smooth_field(height, width, strength, generator(seed))
    assert field_2HW.shape == (2, height, width)
    assert field_2HW[0].abs().max() <= 1.6 * strength * width  # bicubic interpolation overshoots
    assert field_2HW[1].abs().max() <= 1.6 * strength * height
    # between two pixels at most a small multiple of the steepest line between two control points
    assert field_2HW[0].diff(dim=1).abs().max() <= 3 * 2 * strength * width / ((width - 1) / 3)


def test_erase_box_stays_inside_and_in_its_area() -> None:
    for seed in range(200):
        top, left, height, width = erase_box(24, 32, generator(seed))
        assert (top, left, height, width) != NO_BOX
        assert top + height <= 24
        assert left + width <= 32
        assert 0.01 < height * width / (24 * 32) < 0.36
    boxes = [
        train_clip(frames(), replace(SMALL, augment=replace(SMALL.augment, erase=0.5)), generator(i))[1]
        for i in range(100)
    ]
    assert 30 < sum(box == NO_BOX for box in boxes) < 70


def test_colour_jitter_keeps_grey_grey_under_saturation_and_hue() -> None:
    grey = torch.full((3, 2, 8, 8), 90, dtype=torch.uint8)
    assert torch.equal(
        pixels.colour_matrix(grey, pixels.hue_matrix(0.2) @ pixels.saturation_matrix(1.7), np.zeros(3)), grey
    )
    assert colour_jitter(grey, 0, 0, generator(0)) is grey
    spread = {int(colour_jitter(grey, 0.4, 0.1, generator(i))[0, 0, 0, 0]) for i in range(50)}
    assert min(spread) < 75
    assert max(spread) > 105


def test_hue_turns_red_into_green_into_blue() -> None:
    red = torch.zeros(3, 1, 1, 1, dtype=torch.uint8)
    red[0] = 200
    turned = [
        pixels.colour_matrix(red, pixels.hue_matrix(turn), np.zeros(3)).flatten().tolist() for turn in (0, 1 / 3, 2 / 3)
    ]
    assert turned == [[200, 0, 0], [0, 200, 0], [0, 0, 200]]


def clip(seed: int = 0, low: int = 0, high: int = 256) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(low, high, (3, 2, 20, 30), dtype=np.uint8))


def test_tables() -> None:
    x = clip()
    wide = x.int()
    assert torch.equal(pixels.invert(x).int(), 255 - wide)
    assert torch.equal(pixels.solarise(x, 100).int(), torch.where(wide < 100, wide, 255 - wide))
    assert torch.equal(pixels.solarise(x, 256), x)
    assert torch.equal(pixels.solarise_add(x, 50).int(), torch.where(wide < 128, wide + 50, wide))
    assert torch.equal(pixels.posterise(x, 2).int(), wide // 64 * 64)
    assert torch.equal(pixels.brightness(x, 0.5).int(), wide // 2)
    assert pixels.contrast(x, 0.1).float().std() < 0.2 * x.float().std()


def test_contrast_operations_use_the_whole_clip() -> None:
    dark_then_light = torch.cat([clip(low=40, high=60)[:, :1], clip(low=100, high=121)[:, :1]], dim=1)
    stretched = pixels.auto_contrast(dark_then_light)
    assert stretched.amin() == 0
    assert stretched.amax() == 255
    assert stretched[:, 0].amax() < stretched[:, 1].amin()
    flat = pixels.equalise(clip(low=100, high=140))
    counts = np.bincount(flat[0].flatten().numpy() // 64, minlength=4)
    assert counts.min() > 0.8 * counts.max() - 20
    constant = torch.full((3, 2, 4, 4), 9, dtype=torch.uint8)
    assert torch.equal(pixels.equalise(constant), constant)
    assert torch.equal(pixels.auto_contrast(constant), constant)


def test_saturation_and_sharpness_of_one_change_nothing() -> None:
    x = clip()
    assert torch.equal(pixels.saturation(x, 1.0), x)
    assert torch.equal(pixels.sharpness(x, 1.0), x)
    grey = pixels.saturation(x, 0.0)
    assert (grey[0].int() - grey[1].int()).abs().max() <= 1
    assert pixels.sharpness(x, 0.1).float().std() < x.float().std()


def test_geometry() -> None:
    x = torch.zeros(3, 1, 21, 21, dtype=torch.uint8)
    x[:, :, 10, 15] = 200
    assert pixels.rotate(x, 90)[0, 0, 5, 10] == 200  # counter-clockwise: right goes up
    assert torch.equal(pixels.rotate(x, 0), x)
    assert pixels.shift(x, 2, -3)[0, 0, 7, 17] == 200
    assert pixels.shift(x, 2, -3)[0, 0, -1, 0] == pixels.FILL
    assert pixels.translate_x(x, 0.1)[0, 0, 10, 17] == 200
    assert pixels.translate_y(x, -0.1)[0, 0, 8, 15] == 200
    assert pixels.shear_x(x, 0.1)[0, 0, 10, 14] == 200
    assert pixels.shear_y(x, 0.2)[0, 0, 7, 15] == 200
    assert pixels.rotate(x, 45)[0, 0, 0, 0] == pixels.FILL


def test_operations_equal_the_usual_image_library() -> None:
    """AutoAugment was searched with Pillow's operations; on one frame ours must be those, up to rounding."""
    image = pytest.importorskip("PIL.Image")
    from PIL import ImageEnhance, ImageOps

    smooth = np.kron(np.random.default_rng(3).integers(20, 220, (12, 16, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    picture = image.fromarray(smooth).resize((80, 60), image.BILINEAR)
    x = torch.from_numpy(np.array(picture)).permute(2, 0, 1)[:, None]
    warp = {"resample": image.BILINEAR, "fillcolor": (pixels.FILL,) * 3}
    pairs = [
        (pixels.solarise(x, 100), ImageOps.solarize(picture, 100)),
        (pixels.posterise(x, 3), ImageOps.posterize(picture, 3)),
        (pixels.auto_contrast(x), ImageOps.autocontrast(picture)),
        (pixels.saturation(x, 1.7), ImageEnhance.Color(picture).enhance(1.7)),
        (pixels.contrast(x, 0.4), ImageEnhance.Contrast(picture).enhance(0.4)),
        (pixels.brightness(x, 1.4), ImageEnhance.Brightness(picture).enhance(1.4)),
        (pixels.sharpness(x, 1.8), ImageEnhance.Sharpness(picture).enhance(1.8)),
        (pixels.rotate(x, 20), picture.rotate(20, **warp)),
        (pixels.shear_x(x, 0.2), picture.transform(picture.size, image.AFFINE, (1, 0.2, 0, 0, 1, 0), **warp)),
        (pixels.shear_y(x, -0.2), picture.transform(picture.size, image.AFFINE, (1, 0, 0, -0.2, 1, 0), **warp)),
        (pixels.translate_x(x, 0.2), picture.transform(picture.size, image.AFFINE, (1, 0, -16, 0, 1, 0), **warp)),
    ]
    for ours, theirs in pairs:
        difference = np.abs(ours[:, 0].permute(1, 2, 0).numpy().astype(int) - np.asarray(theirs).astype(int))
        assert np.median(difference) <= 1
        assert difference.mean() < 2  # the edge of a turned picture is blended here and cut there


def test_policy_table_is_complete_and_every_operation_runs() -> None:
    assert len(autoaugment.POLICY_V0) == 25
    used = {name for pair in autoaugment.POLICY_V0 for name, _, _ in pair}
    assert used <= set(autoaugment.OPERATIONS)
    assert len(autoaugment.INCREASING) == 15
    for table in (autoaugment.OPERATIONS, autoaugment.INCREASING):
        for operation in table.values():
            for level in (0, 10):
                out = operation(clip(), level, generator(0))
                assert out.shape == (3, 2, 20, 30)
                assert out.dtype == torch.uint8


def test_rand_augment_grows_with_its_magnitude() -> None:
    def change(magnitude: float) -> float:
        x = from_frames(frames())
        out = [
            autoaugment.rand_augment(x, generator(i), operations=2, magnitude=magnitude, deviation=0) for i in range(60)
        ]
        return float(np.mean([(o.float() - x.float()).abs().mean() for o in out]))

    assert change(9) > 1.3 * change(1)


def test_partners_are_mutual_and_survive_even_division() -> None:
    whole = partners(8)
    assert torch.equal(whole[whole], torch.arange(8))
    assert torch.equal(torch.cat([partners(4), partners(4) + 4]), whole)
    assert partners(3).tolist() == [1, 0, 2]


def test_mixup_is_linear() -> None:
    video = torch.rand(4, 3, 2, 8, 8)
    mixed = mix_batch(video, torch.tensor([0, 1, 2, 3]), Augment(mixup=0.4), generator(0))
    assert 0 < mixed.share < 1
    torch.testing.assert_close(mixed.video_BCTHW[0], mixed.share * video[0] + (1 - mixed.share) * video[1])
    assert mixed.partner_labels_B.tolist() == [1, 0, 3, 2]


def test_cutmix_share_is_the_area_left() -> None:
    video = torch.stack([torch.full((3, 2, 16, 16), float(i)) for i in range(2)])
    for seed in range(30):
        mixed = mix_batch(video, torch.tensor([0, 1]), Augment(cutmix=1.0), generator(seed))
        assert mixed.video_BCTHW[0].mean().item() == pytest.approx(1 - mixed.share, abs=1e-6)
        assert torch.equal(mixed.video_BCTHW[0, :, 0], mixed.video_BCTHW[0, :, 1])


def test_no_mixing_unless_asked() -> None:
    video, labels = torch.rand(2, 3, 2, 8, 8), torch.tensor([0, 1])
    mixed = mix_batch(video, labels, Augment(), generator(0))
    assert mixed.video_BCTHW is video
    assert mixed.share == 1
    both = [mix_batch(video, labels, Augment(mixup=1.0, cutmix=1.0), generator(i)).video_BCTHW for i in range(20)]
    pasted = [bool((clips[0] == video[0]).any() | (clips[0] == video[1]).all()) for clips in both]
    assert 3 < sum(pasted) < 17


def test_soft_targets() -> None:
    mixed = Mixed(torch.zeros(1), torch.tensor([0]), torch.tensor([2]), 0.75)
    torch.testing.assert_close(soft_targets(mixed, 4, 0.2), torch.tensor([[0.65, 0.05, 0.25, 0.05]]))
