"""The settings of the video Transformer. No torch here: a config is checked before anything heavy is imported."""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from fixformer.config.schema import check_rates, check_ratios, check_switches, check_whole
from fixformer.errors import SettingsConflict, UnknownName

CHOICES = {
    "attention": (
        *("linear", "softmax", "performer", "cosformer", "linformer"),
        *("orthoformer", "lara", "nystrom"),
    ),
    "kernel": ("relu", "elu1", "sigmoid"),
    "fixation": ("none", "separate", "cooperative"),
    "fixation_sources": ("qk", "qkv"),
    "fixation_merge": ("concat", "add", "multiply"),
    "association": ("none", "time", "space", "both"),
    "shift_shape": ("cross", "square"),
    "order": ("association_first", "fixation_first"),
    "pattern": ("factorised", "joint", "windowed"),
    "attention_order": ("space_time", "time_space"),
    "stem": ("patch", "conv"),
    "pool": ("mean", "grid"),
    "position_embedding": ("none", "learned"),
    "reading": ("paper", "released"),
}
AT_LEAST_ONE = (
    *("num_classes", "num_frames", "image_size", "embed_dim", "depth", "num_heads"),
    *("patch_size", "patch_stride", "shift_time", "shift_space", "shift_segment", "time_slots"),
    *("random_features", "redraw_every", "slots", "landmarks"),
)
AT_LEAST_ZERO = ("head_hidden_dim", "patch_padding")
SWITCHES = ("mlp_conv", "patch_norm", "fixation_shared")
CONV_PATCHES = (4, 8, 16, 32)
FRACTIONS = ("shift_keep", "drop_path", "dropout")
KERNEL_ATTENTIONS = ("linear",)
# How many landmarks each of these was published with.
LANDMARKS = {"orthoformer": 64, "lara": 49, "nystrom": 64}
# "Not set" in a field whose type is that of its filled value.
UNSET: Any = None
TIME, SPACE, ANY = ("time", "both"), ("space", "both"), ("time", "space", "both")
# A setting on the left means something only when the one in the middle has one of the values on the right.
NEEDS = (
    ("kernel", "attention", KERNEL_ATTENTIONS),
    ("random_features", "attention", ("performer",)),
    ("redraw_every", "attention", ("performer",)),
    ("slots", "attention", ("linformer",)),
    ("landmarks", "attention", tuple(LANDMARKS)),
    ("fixation_sources", "fixation", ("separate", "cooperative")),
    ("fixation_shared", "fixation", ("separate", "cooperative")),
    ("fixation_merge", "fixation", ("cooperative",)),
    ("shift_time", "association", TIME),
    ("shift_space", "association", SPACE),
    ("shift_shape", "association", SPACE),
    ("shift_keep", "association", ANY),
    ("shift_segment", "association", TIME),
    ("order", "association", ANY),
    ("order", "fixation", ("separate", "cooperative")),
    ("attention_order", "pattern", ("factorised",)),
)


@dataclass(frozen=True)
class ModelConfig:
    """Everything that defines a video Transformer. What is not set takes the paper's value in `filled()`.

    Two settings are not the paper's; both are for small sets, learnt from scratch. `stem="conv"`: small convolutions
    make the tokens, without `patch_stride` and `patch_padding`. `pool="grid"`: the head sees when and where.
    """

    num_classes: int = 174
    num_frames: int = 16
    image_size: int = 224
    embed_dim: int = 512
    depth: int = 12
    num_heads: int = 8
    mlp_ratio: float = 4.0
    mlp_conv: bool = True
    head_hidden_dim: int = 768
    stem: str = "patch"
    patch_size: int = 16
    patch_stride: int = 14
    patch_padding: int = 8
    patch_norm: bool = True
    position_embedding: str = "none"
    time_slots: int = UNSET
    attention: str = "linear"
    kernel: str | None = None
    random_features: int = UNSET
    redraw_every: int = UNSET
    slots: int = UNSET
    landmarks: int = UNSET
    fixation: str = "cooperative"
    fixation_sources: str = UNSET
    fixation_shared: bool = UNSET
    fixation_merge: str = UNSET
    association: str = "both"
    shift_time: int = UNSET
    shift_space: int = UNSET
    shift_shape: str = UNSET
    shift_keep: float = UNSET
    shift_segment: int | None = None
    order: str = UNSET
    pattern: str = "factorised"
    attention_order: str = UNSET
    pool: str = "mean"
    drop_path: float = 0.0
    dropout: float = 0.5
    reading: str = "paper"

    def validate(self) -> None:
        """Raise a `UserError` for values out of range and for settings that mean nothing together."""
        self._check_values()
        self._check_needs()
        self._check_pairs()

    def filled(self) -> "ModelConfig":
        """A copy in which every setting left open has its value."""
        released = self.reading == "released"
        defaults: dict[str, Any] = {
            "kernel": "relu" if self.attention in KERNEL_ATTENTIONS else None,
            "random_features": 64,
            "redraw_every": 1000,
            "slots": 256,
            "landmarks": LANDMARKS.get(self.attention),
            "fixation_sources": "qk" if self.fixation == "separate" else "qkv",
            "fixation_shared": self.fixation == "cooperative",
            "fixation_merge": "concat",
            "shift_time": 1,
            "shift_space": 1,
            "shift_shape": "cross",
            "shift_keep": 0.5,
            "order": "association_first",
            "attention_order": "time_space" if released else "space_time",
            "time_slots": 8 if released else self.num_frames,
        }
        unset = {name: value for name, value in defaults.items() if getattr(self, name) is None}
        return replace(self, **unset)

    def dump(self) -> dict[str, Any]:
        """The settings that are set, as plain JSON values."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def _check_values(self) -> None:
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in choices:
                raise UnknownName(name, value, choices)
        check_whole(1, **self._set_among(AT_LEAST_ONE))
        check_whole(0, **self._set_among(AT_LEAST_ZERO))
        check_ratios(mlp_ratio=self.mlp_ratio)
        check_rates(**self._set_among(FRACTIONS))
        check_switches(**self._set_among(SWITCHES))

    def _set_among(self, names: tuple[str, ...]) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def _check_needs(self) -> None:
        for setting, other, allowed in NEEDS:
            value, context = getattr(self, setting), getattr(self, other)
            if value is not None and context not in allowed:
                raise SettingsConflict(
                    f"{setting}={value!r} has no meaning with {other}={context!r}; "
                    f"leave {setting} out or set {other} to {' or '.join(allowed)}."
                )

    def _check_pairs(self) -> None:
        if self.embed_dim % self.num_heads:
            raise SettingsConflict(
                f"num_heads={self.num_heads} does not divide embed_dim={self.embed_dim}; change one of them."
            )
        if self.image_size < self.patch_size:
            raise SettingsConflict(f"image_size={self.image_size} is smaller than patch_size={self.patch_size}.")
        if self.stem == "conv" and self.patch_size not in CONV_PATCHES:
            sizes = " or ".join(map(str, CONV_PATCHES))
            raise SettingsConflict(f"stem='conv' halves the picture, so patch_size={self.patch_size} must be {sizes}.")
        if self.fixation == "separate" and (self.fixation_sources == "qkv" or self.fixation_shared):
            other = "fixation_shared=True" if self.fixation_shared else "fixation_sources='qkv'"
            raise SettingsConflict(f"fixation='separate' reweights q by q and k by k, {other} contradicts it.")
        if self.pattern == "windowed" and self.association not in TIME:
            raise SettingsConflict(
                f"pattern='windowed' sees other frames only through association, so association={self.association!r} "
                "would leave every frame alone; set association to time or both."
            )
        if self.reading == "released" and self.pattern != "factorised":
            raise SettingsConflict(f"reading='released' only runs pattern='factorised', got pattern={self.pattern!r}.")
        if self.shift_segment and self.num_frames % self.shift_segment:
            raise SettingsConflict(f"shift_segment={self.shift_segment} does not divide num_frames={self.num_frames}.")


MODEL_SETTINGS = tuple(field.name for field in fields(ModelConfig))
