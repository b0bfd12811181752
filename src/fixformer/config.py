"""Settings as frozen dataclasses: what a clip is, how it is augmented, where the data lie.

No torch here: a config is checked before anything heavy is imported. `dump` gives plain JSON values, `load` rebuilds
the same object from them and refuses unknown names, wrong types and values out of range.
"""

import types
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from math import inf
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from fixformer.errors import SettingsConflict, UnknownName, UserError

T = TypeVar("T")

Sampling = Literal["uniform", "dense"]
Clock = Literal["frames", "seconds"]
ShortVideo = Literal["repeat_last", "loop", "error"]
Crop = Literal["jitter", "multiscale", "resized", "centre"]
Fit = Literal["crop", "squeeze"]
Backend = Literal["pyav", "torchcodec"]
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
        _require(1 <= self.jitter[0] <= self.jitter[1], "jitter", self.jitter, "two sizes, the smaller first")
        _require(0 < self.area[0] <= self.area[1] <= 1, "area", self.area, "two shares in (0, 1], the smaller first")
        _require(0 <= self.reach <= 1, "reach", self.reach, "from 0 to 1")
        _require(0 <= self.warp <= 0.5, "warp", self.warp, "from 0 to 0.5")
        for name in ("flip", "erase"):
            _require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "a probability")
        for name in ("rand_std", "colour", "mixup", "cutmix"):
            _require(0 <= getattr(self, name) < inf, name, getattr(self, name), "a finite number of at least 0")
        _require(self.rand_ops >= 1, "rand_ops", self.rand_ops, "at least 1")
        _require(0 <= self.rand_magnitude <= 10, "rand_magnitude", self.rand_magnitude, "from 0 to 10")
        _require(0 <= self.hue <= 0.5, "hue", self.hue, "from 0 to 0.5")
        _require(0 < self.span <= 1, "span", self.span, "in (0, 1]")


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
        _require(0 <= self.focus <= 1, "focus", self.focus, "from 0 to 1")
        for name in ("frames", "stride", "size"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("fps", "keep_frames", "keep_short_side"):
            value = getattr(self, name)
            _require(value is None or value > 0, name, value, "more than 0")
        _require(all(value > 0 for value in self.std), "std", self.std, "more than 0")
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


@dataclass(frozen=True)
class DataConfig:
    """Which videos, and how they are read.

    Args:
        path: directory or annotation file.
        kind: "auto", or folders, images, csv, ssv2, kinetics, list, lsa64.
        videos: where the files lie, if not beside the annotations.
        labels: a file of label names, one per line.
        split_seed, val_fraction: how a set without splits is divided.
        recording_set: LSA64 only.
        backend: of the decoder.
        damaged: "strict" counts a video that breaks in the middle as unreadable, "partial" uses its good frames.
        unreadable_train: "error" stops at an unreadable training video; "replace" takes another of the same class
            and records it. An unreadable test video is always a recorded failure.
        workers: decoding processes; 0 decodes in the training process.
        prefetch: batches each worker prepares ahead.
        cache: directory of the decode-once cache; None decodes every time, "auto" is the user's own cache
            (`$FIXFORMER_CACHE` or `~/.cache/fixformer`), which all runs share.
        location: read shards in order, from this directory or through a pattern such as
            "pipe:curl -s https://host/{shard}"; `path` then needs to hold the shards' index.json only. None reads
            local files in any order.
    """

    path: str = ""
    kind: str = "auto"
    videos: str | None = None
    labels: str | None = None
    split_seed: int = 0
    val_fraction: float = 0.2
    recording_set: int | None = None
    backend: Backend = "pyav"
    damaged: Literal["strict", "partial"] = "strict"
    unreadable_train: Literal["error", "replace"] = "error"
    workers: int = 2
    prefetch: int = 2
    cache: str | None = None
    location: str | None = None

    def validate(self) -> None:
        _require(self.path != "", "path", self.path, "a directory or an annotation file")
        _require(0 < self.val_fraction < 1, "val_fraction", self.val_fraction, "between 0 and 1")
        _require(self.workers >= 0, "workers", self.workers, "at least 0")
        _require(self.prefetch >= 1, "prefetch", self.prefetch, "at least 1")
        if self.location is not None:
            self._check_location(self.location)

    def _check_location(self, location: str) -> None:
        # what `str.format` would stumble over is found here, not in a worker
        plain = location.replace("{shard}", "")
        is_clean = plain != "" and "{" not in plain and "}" not in plain
        _require(is_clean, "location", location, "a directory, or a pattern with no braces but {shard},")
        is_pattern = location.startswith("pipe:") or "://" in location
        _require(not is_pattern or "{shard}" in location, "location", location, "the place of the name, {shard},")
        if self.cache is not None:
            raise SettingsConflict(
                f"location={location!r} reads in order, which cache={self.cache!r} cannot; set cache=none."
            )
        if self.unreadable_train == "replace":
            raise SettingsConflict(
                f"location={location!r} reads every video once and has none to spare for unreadable_train='replace'; "
                "set unreadable_train=error."
            )


def dump(config: Any) -> dict[str, Any]:
    """The settings as JSON values (tuples become lists)."""
    return _plain(asdict(config))


def load(kind: type[T], values: dict[str, Any], where: str = "") -> T:
    """Rebuild a config from `dump`'s values; what is absent takes its default. Validated."""
    config = _build(kind, values, where)
    validate = getattr(config, "validate", None)
    if validate is not None:
        validate()
    return config


def _build(kind: type[T], values: Any, where: str) -> T:
    if not isinstance(values, dict):
        raise UserError(f"{where or kind.__name__} must be a table of settings, not {values!r}.")
    assert is_dataclass(kind)
    hints = get_type_hints(kind)
    known = {f.name for f in fields(kind) if f.init}
    for name in values:
        if name not in known:
            raise UnknownName(f"setting of {where or kind.__name__}", name, known)
    prefix = f"{where}." if where else ""
    return kind(**{name: coerce(value, hints[name], prefix + name) for name, value in values.items()})


def coerce(value: Any, hint: Any, name: str) -> Any:
    """`value` as the type `hint` asks for, or a `UserError` that names the setting, the value and the type."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        inner = next(option for option in get_args(hint) if option is not types.NoneType)
        return None if value is None else coerce(value, inner, name)
    if origin is Literal and value not in get_args(hint):
        raise UnknownName(name, value, map(str, get_args(hint)))
    if origin is tuple:
        return _coerce_tuple(value, get_args(hint), name)
    if is_dataclass(hint):
        return _build(hint, value, name)  # type: ignore[arg-type]
    return value if origin is Literal or hint is Any else _coerce_plain(value, hint, name)


def _coerce_plain(value: Any, hint: type, name: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise UserError(f"{name}={value!r} is of type {type(value).__name__}; {hint.__name__} is needed.")
    return value


def _coerce_tuple(value: Any, hints: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise UserError(f"{name}={value!r} must be a list.")
    if len(hints) == 2 and hints[1] is Ellipsis:
        hints = (hints[0],) * len(value)
    if len(value) != len(hints):
        raise UserError(f"{name}={value!r} must have {len(hints)} values.")
    return tuple(coerce(item, hint, name) for item, hint in zip(value, hints, strict=True))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _require(condition: bool, name: str, value: object, allowed: str) -> None:
    if not condition:
        raise UserError(f"{name}={value!r}: {allowed} is needed.")
