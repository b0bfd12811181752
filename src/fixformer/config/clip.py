"""What a clip is and how it is augmented."""

from dataclasses import dataclass, field, replace
from math import inf
from typing import Literal

from fixformer.config.schema import require
from fixformer.errors import SettingsConflict

Sampling = Literal["uniform", "dense"]
Clock = Literal["frames", "seconds"]
ShortVideo = Literal["repeat_last", "loop", "error"]
Crop = Literal["jitter", "multiscale", "resized", "centre"]
Fit = Literal["crop", "squeeze"]
AugmentPolicy = Literal["none", "v0", "rand"]


@dataclass(frozen=True)
class Augment:
    """What training does to a clip; every draw is made once and holds for all frames.

    Args:
        crop: "jitter" scales the short side to a size drawn from `jitter` and crops; "multiscale" is TSN's crop;
            "resized" crops a random area (a share drawn from `area`) and aspect; "centre" is the test crop.
        jitter: smallest and largest short side, pixels.
        reach: share of the free room around the middle crop (`ClipSpec.focus`) in which a "jitter" or "resized" crop
            may lie: 1 is anywhere. Less where what matters is in one place of a wide picture and is often cut away.
        area: smallest and largest share of the picture, for "resized".
        warp: how far the entries of a drawn 2 x 2 map may lie from the identity's: turns, shears and stretches of the
            crop, which change where things lie relative to each other. 0.3 turns by up to 17 degrees.
        flip: probability of mirroring; leave 0 where left and right differ in meaning.
        policy: "v0" is AutoAugment's ImageNet policy; "rand" draws `rand_ops` operations of strength `rand_magnitude`
            (0-10), each with deviation `rand_std`.
        colour: strength of brightness, contrast and saturation jitter; `hue` in turns of the colour circle.
        erase: probability of erasing one box.
        mixup, cutmix: Beta parameters of batch mixing; 0 is off. With both on, each batch takes one of them.
        span: smallest share of the video that uniform training clips cover.
    """

    crop: Crop = "jitter"
    jitter: tuple[int, int] = (256, 320)
    reach: float = 1.0
    area: tuple[float, float] = (0.08, 1.0)
    warp: float = 0.0
    flip: float = 0.0
    policy: AugmentPolicy = "none"
    rand_ops: int = 2
    rand_magnitude: float = 9.0
    rand_std: float = 0.5
    colour: float = 0.0
    hue: float = 0.0
    erase: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    span: float = 1.0

    def validate(self) -> None:
        require(1 <= self.jitter[0] <= self.jitter[1], "jitter", self.jitter, "two sizes, the smaller first")
        require(0 < self.area[0] <= self.area[1] <= 1, "area", self.area, "two shares in (0, 1], the smaller first")
        require(0 <= self.reach <= 1, "reach", self.reach, "from 0 to 1")
        require(0 <= self.warp <= 0.5, "warp", self.warp, "from 0 to 0.5")
        for name in ("flip", "erase"):
            require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "a probability")
        for name in ("rand_std", "colour", "mixup", "cutmix"):
            require(0 <= getattr(self, name) < inf, name, getattr(self, name), "a finite number of at least 0")
        require(self.rand_ops >= 1, "rand_ops", self.rand_ops, "at least 1")
        require(0 <= self.rand_magnitude <= 10, "rand_magnitude", self.rand_magnitude, "from 0 to 10")
        require(0 <= self.hue <= 0.5, "hue", self.hue, "from 0 to 0.5")
        require(0 < self.span <= 1, "span", self.span, "in (0, 1]")


@dataclass(frozen=True)
class ClipSpec:
    """What a model is fed: the one preprocessing of train, eval and predict. Stored in checkpoints.

    Args:
        frames: per clip.
        sampling: "uniform" cuts the video into `frames` segments and takes one frame of each; "dense" takes frames
            `stride` apart.
        stride: for "dense".
        fps: for "dense", the rate at which `stride` is meant: the clip is scaled by the video's rate / `fps`. With
            clock "seconds", the rate at which the video is resampled first.
        clock: count "frames" as stored, or "seconds" by timestamp (for variable frame rates).
        short_video: what a clip longer than its video does: "repeat_last", "loop" or "error". Uniform clips of fewer
            frames than segments share frames under "repeat_last".
        size: height and width of the clip.
        short_side: to which test videos are scaled before cropping; `size` if None.
        fit: how a picture becomes square: "crop" cuts its long side, "squeeze" scales both sides alike to what is said
            of the short one, so that nothing at the edges of a wide picture is lost.
        focus: where on the long side the middle crop lies, from 0 (left or top) to 1.
        antialias: filter when scaling down; the released models were trained without.
        mean, std: of RGB in [0, 1].
        keep_frames, keep_short_side: see the video as at most so many evenly spaced frames, scaled to this short side.
            The decode-once cache stores exactly this, so cached and uncached clips are equal.
        augment: training only.
    """

    frames: int = 16
    sampling: Sampling = "uniform"
    stride: int = 1
    fps: float | None = None
    clock: Clock = "frames"
    short_video: ShortVideo = "repeat_last"
    size: int = 224
    short_side: int | None = None
    fit: Fit = "crop"
    focus: float = 0.5
    antialias: bool = True
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    keep_frames: int | None = None
    keep_short_side: int | None = None
    augment: Augment = field(default_factory=Augment)

    @property
    def test_short_side(self) -> int:
        return self.size if self.short_side is None else self.short_side

    def validate(self) -> None:
        self.augment.validate()
        require(0 <= self.focus <= 1, "focus", self.focus, "from 0 to 1")
        for name in ("frames", "stride", "size"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("fps", "keep_frames", "keep_short_side"):
            value = getattr(self, name)
            require(value is None or value > 0, name, value, "more than 0")
        require(all(value > 0 for value in self.std), "std", self.std, "more than 0")
        if self.test_short_side < self.size:
            raise SettingsConflict(f"short_side={self.short_side} is smaller than the crop size={self.size}.")
        if self.augment.crop == "jitter" and self.augment.jitter[0] < self.size:
            raise SettingsConflict(f"augment.jitter={self.augment.jitter} goes below the crop size={self.size}.")
        self._check_time()

    def _check_time(self) -> None:
        if self.clock == "seconds" and self.fps is None:
            raise SettingsConflict("clock='seconds' needs fps, the rate at which the video is resampled.")
        if self.sampling == "uniform" and self.stride != 1:
            raise SettingsConflict(f"stride={self.stride} has no meaning with sampling='uniform'.")
        if self.sampling == "uniform" and self.clock == "frames" and self.fps is not None:
            raise SettingsConflict(f"fps={self.fps} has no meaning with sampling='uniform' and clock='frames'.")
        if self.sampling == "dense" and self.augment.span != 1:
            raise SettingsConflict(f"augment.span={self.augment.span} has no meaning with sampling='dense'.")

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
