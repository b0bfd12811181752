"""How a clip is cut from a video, and how training augments it."""

from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import Annotated, Literal

from fixformer.config.schema import (
    Expect,
    Fraction,
    NonNegative,
    PositiveFraction,
    Settings,
    between,
    int_between,
)
from fixformer.errors import SettingsConflict

Sampling = Literal["uniform", "dense"]
Clock = Literal["frames", "seconds"]
ShortVideo = Literal["repeat_last", "loop", "error"]
Crop = Literal["jitter", "multiscale", "resized", "centre"]
Fit = Literal["crop", "squeeze"]
AugmentPolicy = Literal["none", "v0", "rand"]

# The decoder refuses larger pictures (`data/video/decoder.py::Limits`), and no model takes 44 minutes at 25 frames a
# second.
MOST_PIXELS, MOST_FRAMES = 8_192, 65_536
Side = Annotated[int, int_between(1, MOST_PIXELS)]
FrameCount = Annotated[int, int_between(1, MOST_FRAMES)]
Jitter = Annotated[
    tuple[int, int],
    Expect(f"two sizes up to {MOST_PIXELS}, the smaller first", lambda sides: 1 <= sides[0] <= sides[1] <= MOST_PIXELS),
]
Area = Annotated[
    tuple[float, float],
    Expect("two shares in (0, 1], the smaller first", lambda shares: 0 < shares[0] <= shares[1] <= 1),
]
# From one frame in a quarter of an hour to the fastest cameras.
FrameRate = Annotated[float, between(0.001, 1000)]
Deviations = Annotated[
    tuple[float, float, float],
    Expect("three finite values more than 0", lambda values: all(0 < value < inf for value in values)),
]
Means = Annotated[tuple[float, float, float], Expect("three finite values", lambda values: all(map(isfinite, values)))]


@dataclass(frozen=True)
class Augment(Settings):
    """Augmentation of training clips. Each random choice is made once per clip and applied to all its frames.

    Args:
        crop: "jitter" scales the short side to a size drawn from `jitter` and crops; "multiscale" is TSN's crop;
            "resized" crops a random area (a share drawn from `area`) and aspect; "centre" is the test crop.
        jitter: smallest and largest short side, pixels.
        reach: how far a "jitter" or "resized" crop may move from the centre crop (`ClipSpec.focus`), as a share of the
            available range; 1 is anywhere. Lower it if the subject of a wide video is often cropped away.
        area: smallest and largest share of the frame, for "resized".
        warp: range of a random affine map of the crop (rotation, shear, stretch): each entry of its 2 x 2 matrix
            differs from the identity's by at most this much. 0.3 rotates by up to 17 degrees.
        elastic: displacement of a smooth random deformation, as a share of the crop's side. It moves things
            relative to each other, such as a hand and a face, and keeps their shapes.
        flip: probability of mirroring; keep 0 if left and right differ in meaning.
        policy: "v0" is AutoAugment's ImageNet policy; "rand" draws `rand_ops` operations of strength `rand_magnitude`
            (0-10), each with standard deviation `rand_std`.
        colour: strength of brightness, contrast and saturation jitter; `hue` in turns of the colour circle.
        erase: probability of erasing one box.
        mixup, cutmix: Beta parameters of batch mixing; 0 is off. With both on, each batch uses one of them.
        span: smallest share of the video that uniform training clips cover.
    """

    crop: Crop = "jitter"
    jitter: Jitter = (256, 320)
    reach: Fraction = 1.0
    area: Area = (0.08, 1.0)
    warp: Annotated[float, between(0, 0.5)] = 0.0
    elastic: Annotated[float, between(0, 0.1)] = 0.0  # of 300 random fields none folds at 0.1, 8 do at 0.12
    flip: Fraction = 0.0
    policy: AugmentPolicy = "none"
    rand_ops: Annotated[int, int_between(1, 100)] = 2
    rand_magnitude: Annotated[float, between(0, 10)] = 9.0
    rand_std: NonNegative = 0.5
    colour: NonNegative = 0.0
    hue: Annotated[float, between(0, 0.5)] = 0.0
    erase: Fraction = 0.0
    mixup: NonNegative = 0.0
    cutmix: NonNegative = 0.0
    span: PositiveFraction = 1.0


@dataclass(frozen=True)
class ClipSpec(Settings):
    """The preprocessing of a video, the same in train, eval and predict. Stored in checkpoints.

    Args:
        frames: per clip.
        sampling: "uniform" cuts the video into `frames` segments and takes one frame of each; "dense" takes frames
            `stride` apart.
        stride: for "dense".
        fps: for "dense", the frame rate `stride` refers to: the stride is multiplied by the video's rate / `fps`. With
            clock "seconds", the rate to which the video is resampled first.
        clock: count "frames" as stored, or "seconds" by timestamp (for variable frame rates).
        short_video: what to do if the clip is longer than the video: "repeat_last" frame, "loop" or "error". With
            uniform sampling, "repeat_last" lets segments share frames.
        size: height and width of the clip.
        short_side: to which test videos are scaled before cropping; `size` if None.
        fit: how a frame becomes square: "crop" crops its long side; "squeeze" scales both sides to the same length, so
            that nothing at the edges of a wide frame is lost.
        focus: position of the centre crop along the long side, from 0 (left or top) to 1.
        antialias: filter when scaling down; the released models were trained without.
        mean, std: of RGB in [0, 1].
        keep_frames, keep_short_side: first reduce the video to at most this many evenly spaced frames of this short
            side. The decode-once cache stores exactly this, so cached and uncached clips are equal.
        augment: training only.
    """

    frames: FrameCount = 16
    sampling: Sampling = "uniform"
    stride: FrameCount = 1
    fps: FrameRate | None = None
    clock: Clock = "frames"
    short_video: ShortVideo = "repeat_last"
    size: Side = 224
    short_side: Side | None = None
    fit: Fit = "crop"
    focus: Fraction = 0.5
    antialias: bool = True
    mean: Means = (0.5, 0.5, 0.5)
    std: Deviations = (0.5, 0.5, 0.5)
    keep_frames: FrameCount | None = None
    keep_short_side: Side | None = None
    augment: Augment = field(default_factory=Augment)

    @property
    def test_short_side(self) -> int:
        return self.size if self.short_side is None else self.short_side

    def check_together(self) -> None:
        if self.test_short_side < self.size:
            raise SettingsConflict(f"short_side={self.short_side} is smaller than the crop size={self.size}.")
        if self.augment.crop == "jitter" and self.augment.jitter[0] < self.size:
            raise SettingsConflict(f"augment.jitter={self.augment.jitter} goes below the crop size={self.size}.")
        if self.clock == "seconds" and self.fps is None:
            raise SettingsConflict("clock='seconds' needs fps, the rate at which the video is resampled.")
        if self.sampling == "uniform" and self.stride != 1:
            raise SettingsConflict(f"stride={self.stride} has no effect with sampling='uniform'; set sampling=dense.")
        if self.sampling == "uniform" and self.clock == "frames" and self.fps is not None:
            raise SettingsConflict(f"fps={self.fps} has no effect with sampling='uniform' and clock='frames'.")
        if self.sampling == "dense" and self.augment.span != 1:
            raise SettingsConflict(f"augment.span={self.augment.span} has no effect with sampling='dense'.")

    def at(self, *, frames: int | None = None, size: int | None = None) -> "ClipSpec":
        """The same clip at another length or size; short side and jitter grow or shrink with the size."""
        size = self.size if size is None else size
        scale = size / self.size
        low, high = (max(size, round(side * scale)) for side in self.augment.jitter)
        return replace(
            self,
            frames=self.frames if frames is None else frames,
            size=size,
            short_side=None if self.short_side is None else max(size, round(self.short_side * scale)),
            augment=replace(self.augment, jitter=(low, high)),
        )
