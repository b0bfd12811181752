"""The settings of the models: those that all of them have, and those of our own video Transformer."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fixformer.config.clip import FrameCount, Side
from fixformer.config.schema import PositiveInt, Rate, Settings, between, int_between
from fixformer.errors import SettingsConflict

AttentionName = Literal[
    "linear",
    "softmax",
    "performer",
    "cosformer",
    "linformer",
    "orthoformer",
    "lara",
    "nystrom",
    "mala",
    "inline",
    "rank",
]
FixationName = Literal["none", "separate", "cooperative"]
# Sizes far above those of any published network. They keep counting a model quick, however wrong its settings are;
# whether it fits this machine is decided by `models/registry.py::create_model`.
Classes = Annotated[int, int_between(1, 1_000_000)]
Width = Annotated[int, int_between(1, 65_536)]
Depth = Annotated[int, int_between(1, 256)]
Ratio = Annotated[float, between(1, 64)]


@dataclass(frozen=True)
class ModelSettings(Settings):
    """Settings that every model has."""

    num_classes: Classes = 174
    num_frames: FrameCount = 16
    image_size: Side = 224
    dropout: Rate = 0.5


@dataclass(frozen=True)
class TransformerSettings(ModelSettings):
    """Settings that every Transformer on square patches has."""

    embed_dim: Width = 512
    depth: Depth = 12
    num_heads: Width = 8
    mlp_ratio: Ratio = 4.0
    patch_size: Side = 16
    drop_path: Rate = 0.0

    def check_together(self) -> None:
        if self.embed_dim % self.num_heads:
            raise SettingsConflict(
                f"num_heads={self.num_heads} does not divide embed_dim={self.embed_dim}; change one of them."
            )
        if self.image_size < self.patch_size:
            raise SettingsConflict(f"image_size={self.image_size} is smaller than patch_size={self.patch_size}.")


@dataclass(frozen=True)
class ModelConfig(TransformerSettings):
    """Everything that defines our video Transformer. A setting left at None takes the paper's value in `filled()`.

    What came after the paper: `attention` mala, inline and rank; `kernel="polar"`; `output_gate`, a sigmoid gate from
    the token on what an attention returns; `local`, a depth-wise 3x3 convolution of the values on each frame.

    Two more settings are not the paper's. `stem`: "conv" makes the tokens by small convolutions, which helps on small
    data sets without pre-training; "lite0" by a pre-trained image network, EfficientNet-Lite0. Both ignore
    `patch_stride` and `patch_padding`. `pool="grid"`: the head sees when and where, not only the mean. `depth=0` leaves
    out the blocks: what a stem, a pool and a head do alone.

    `kernel="identity"` is Eq. 3 without a kernel: weights may be negative and a denominator near zero, so that training
    may diverge, which is what the paper reports of it.
    """

    depth: Annotated[int, int_between(0, 256)] = 12
    mlp_conv: bool = True
    head_hidden_dim: Annotated[int, int_between(0, 65_536)] = 768
    stem: Literal["patch", "conv", "lite0"] = "patch"
    patch_stride: Side = 14
    patch_padding: Annotated[int, int_between(0, 8192)] = 8
    patch_norm: bool = True
    position_embedding: Literal["none", "learned"] = "none"
    time_slots: FrameCount | None = None
    attention: AttentionName = "linear"
    kernel: Literal["relu", "elu1", "sigmoid", "identity", "polar"] | None = None
    random_features: Width | None = None
    redraw_every: PositiveInt | None = None
    slots: Width | None = None
    landmarks: Width | None = None
    local: bool = False
    output_gate: bool = False
    fixation: FixationName = "cooperative"
    fixation_sources: Literal["qk", "qkv"] | None = None
    fixation_shared: bool | None = None
    fixation_merge: Literal["concat", "add", "multiply"] | None = None
    association: Literal["none", "time", "space", "both"] = "both"
    shift_time: FrameCount | None = None
    shift_space: Side | None = None
    shift_shape: Literal["cross", "square"] | None = None
    shift_keep: Rate | None = None
    shift_segment: FrameCount | None = None
    order: Literal["association_first", "fixation_first"] | None = None
    pattern: Literal["factorised", "joint", "windowed"] = "factorised"
    attention_order: Literal["space_time", "time_space"] | None = None
    pool: Literal["mean", "grid"] = "mean"
    reading: Literal["paper", "released"] = "paper"

    def filled(self) -> "FilledModelConfig":
        """A copy in which every setting left at None has its value."""
        released = self.reading == "released"
        dependent = {
            "kernel": OWN_KERNELS.get(self.attention),
            "landmarks": LANDMARKS.get(self.attention, 0),
            "fixation_sources": "qk" if self.fixation == "separate" else "qkv",
            "fixation_shared": self.fixation == "cooperative",
            "attention_order": "time_space" if released else "space_time",
            "time_slots": 8 if released else self.num_frames,
        }
        chosen: dict[str, Any] = {name: value for name, value in vars(self).items() if value is not None}
        return FilledModelConfig(**{**dependent, **chosen})

    def check_together(self) -> None:
        super().check_together()
        for setting, other, allowed in NEEDS:
            value, context = getattr(self, setting), getattr(self, other)
            if value is not None and context not in allowed:
                raise SettingsConflict(
                    f"{setting}={value!r} has no effect with {other}={context!r}; "
                    f"leave {setting} out or set {other} to {' or '.join(allowed)}."
                )
        if self.kernel == "polar" and self.attention != "linear":
            raise SettingsConflict(
                f"kernel='polar' works with attention='linear' only, got attention={self.attention!r}; "
                "choose another kernel or attention."
            )
        if self.patch_size not in PATCHES.get(self.stem, (self.patch_size,)):
            sizes = " or ".join(map(str, PATCHES[self.stem]))
            raise SettingsConflict(f"patch_size={self.patch_size}: expected {sizes} with stem={self.stem!r}.")
        if self.fixation == "separate" and (self.fixation_sources == "qkv" or self.fixation_shared):
            other = "fixation_shared=True" if self.fixation_shared else "fixation_sources='qkv'"
            raise SettingsConflict(f"fixation='separate' reweights q by q and k by k, which contradicts {other}.")
        if self.pattern == "windowed" and self.association not in IN_TIME:
            raise SettingsConflict(
                f"pattern='windowed' connects frames only through association, which association={self.association!r} "
                "does not; set association to time or both."
            )
        if self.reading == "released" and self.pattern != "factorised":
            raise SettingsConflict(f"reading='released' needs pattern='factorised', got pattern={self.pattern!r}.")
        if self.shift_segment and self.num_frames % self.shift_segment:
            raise SettingsConflict(f"shift_segment={self.shift_segment} does not divide num_frames={self.num_frames}.")


@dataclass(frozen=True)
class FilledModelConfig(ModelConfig):
    """A config in which every setting has a value: what a model is built from. Made by `ModelConfig.filled`.

    The defaults are the paper's values that do not depend on other settings.
    """

    time_slots: int = 16
    random_features: int = 64
    redraw_every: int = 1000
    slots: int = 256
    landmarks: int = 0
    fixation_sources: Literal["qk", "qkv"] = "qkv"
    fixation_shared: bool = True
    fixation_merge: Literal["concat", "add", "multiply"] = "concat"
    shift_time: int = 1
    shift_space: int = 1
    shift_shape: Literal["cross", "square"] = "cross"
    shift_keep: float = 0.5
    order: Literal["association_first", "fixation_first"] = "association_first"
    attention_order: Literal["space_time", "time_space"] = "space_time"


# The convolutions halve the frame 2 to 5 times; of the image network the features of stride 8 and 16 are offered.
PATCHES: dict[str, tuple[int, ...]] = {"conv": (4, 8, 16, 32), "lite0": (8, 16)}
# How many landmarks each of these was published with.
LANDMARKS = {"orthoformer": 64, "lara": 49, "nystrom": 64}
# The kernel of each attention that has one: the paper's choice, and those these were published with.
OWN_KERNELS = {"linear": "relu", "mala": "elu1", "rank": "elu1"}

IN_TIME, IN_SPACE, ANYWHERE = ("time", "both"), ("space", "both"), ("time", "space", "both")
GATED = ("separate", "cooperative")
# The setting on the left has an effect only if the one in the middle has one of the values on the right.
NEEDS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("kernel", "attention", ("linear", "rank")),
    ("random_features", "attention", ("performer",)),
    ("redraw_every", "attention", ("performer",)),
    ("slots", "attention", ("linformer",)),
    ("landmarks", "attention", tuple(LANDMARKS)),
    ("fixation_sources", "fixation", GATED),
    ("fixation_shared", "fixation", GATED),
    ("fixation_merge", "fixation", ("cooperative",)),
    ("shift_time", "association", IN_TIME),
    ("shift_space", "association", IN_SPACE),
    ("shift_shape", "association", IN_SPACE),
    ("shift_keep", "association", ANYWHERE),
    ("shift_segment", "association", IN_TIME),
    ("order", "association", ANYWHERE),
    ("order", "fixation", GATED),
    ("attention_order", "pattern", ("factorised",)),
)
