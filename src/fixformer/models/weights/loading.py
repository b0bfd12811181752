"""Weights from elsewhere: names translated, tables resized, and a report of what happened to every tensor.

A converter is a function from a foreign state dict to one in our names. `load_weights` then fits it to a model whose
frames, size or classes may differ. Files are safetensors; nothing is ever unpickled.
"""

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import isqrt
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fixformer.errors import WeightsError
from fixformer.models.attention.kinds import resize_slots
from fixformer.models.base import VideoModel
from fixformer.models.layers.embedding import interpolate_space, interpolate_time
from fixformer.models.weights.pytorchvideo_mvit import from_pytorchvideo_mvit
from fixformer.models.weights.pytorchvideo_slowfast import from_pytorchvideo_slowfast
from fixformer.models.weights.pytorchvideo_x3d import from_pytorchvideo_x3d
from fixformer.models.weights.resnet import from_motionsqueeze, from_tsm
from fixformer.models.weights.video_vit import (
    from_motionformer,
    from_transformers_timesformer,
    from_transformers_vivit,
    from_xvit,
    joined,
)
from fixformer.models.weights.vivit_grid import VOLUME, Grid, grid_beside, with_grid
from fixformer.models.zoo.timesformer import NearestPositionEmbed, NearestTimeEmbed, nearest
from fixformer.models.zoo.vivit import interpolate_volume

StateDict = Mapping[str, Tensor]
Rules = tuple[tuple[str, str], ...]

RELEASED_RULES: Rules = (
    (r"base_model\.blocks\.(\d+)\.temporal_attn\.", r"blocks.\1.time.body."),
    (r"base_model\.blocks\.(\d+)\.temporal_norm1\.", r"blocks.\1.time.norm."),
    (r"base_model\.blocks\.(\d+)\.attn\.", r"blocks.\1.space.body."),
    (r"base_model\.blocks\.(\d+)\.norm1\.", r"blocks.\1.space.norm."),
    (r"base_model\.blocks\.(\d+)\.norm2\.", r"blocks.\1.mlp.norm."),
    (r"base_model\.blocks\.(\d+)\.mlp\.dwconv\.", r"blocks.\1.mlp.body."),
    (r"base_model\.blocks\.(\d+)\.mlp\.", r"blocks.\1.mlp.body."),
    (r"body\.pgate\.", r"body.steps.fixate.gate.fc."),
    (r"body\.([qk])_gate\.", r"body.steps.fixate.gate_\1.fc."),
    (r"base_model\.temp_embed$", "time_embed.slots"),
    (r"base_model\.(patch_embed|norm)\.", r"\1."),
    (r"consensus\.mlp_head\.0\.", "head.norm."),
    (r"consensus\.mlp_head\.1\.", "head.fc1."),
    (r"consensus\.mlp_head\.4\.", "head.fc."),
)
TIMM_RULES: Rules = (
    (r"^blocks\.(\d+)\.attn\.", r"blocks.\1.space.body."),
    (r"^blocks\.(\d+)\.norm1\.", r"blocks.\1.space.norm."),
    (r"^blocks\.(\d+)\.norm2\.", r"blocks.\1.mlp.norm."),
    (r"^blocks\.(\d+)\.mlp\.fc", r"blocks.\1.mlp.body.fc"),
    (r"^pos_embed$", "position_embed.table"),
    (r"^(fc_norm)\.", "norm."),
    (r"^head\.(weight|bias)$", r"head.fc.\1"),
)
TRANSFORMERS_RULES: Rules = (
    (r"^(vit|deit)\.", ""),
    (r"^(?:encoder\.layer|layers)\.(\d+)\.", r"blocks.\1."),
    (r"attention\.attention\.(query|key|value)\.", r"space.body.\1."),
    (r"attention\.q_proj\.", "space.body.query."),
    (r"attention\.k_proj\.", "space.body.key."),
    (r"attention\.v_proj\.", "space.body.value."),
    (r"attention\.(?:output\.dense|o_proj)\.", "space.body.proj."),
    (r"layernorm_before\.", "space.norm."),
    (r"layernorm_after\.", "mlp.norm."),
    (r"(?:intermediate\.dense|mlp\.fc1)\.", "mlp.body.fc1."),
    (r"(?<!attention\.)(?:output\.dense|mlp\.fc2)\.", "mlp.body.fc2."),
    (r"^embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"^embeddings\.position_embeddings$", "position_embed.table"),
    (r"^embeddings\.cls_token$", "cls_token"),
    (r"^layernorm\.", "norm."),
    (r"^(?:cls_)?classifier\.", "head.fc."),
)


def from_released(state_dict: StateDict) -> dict[str, Tensor]:
    """Our names for a state dict of the released code. Its `new_fc`, never used in its forward pass, is left out."""
    ours = {_renamed(name, RELEASED_RULES): value for name, value in state_dict.items() if "new_fc." not in name}
    if "time_embed.slots" in ours:
        ours["time_embed.slots"] = ours["time_embed.slots"].flatten(0, 2)
    return ours


def from_timm_vit(state_dict: StateDict) -> dict[str, Tensor]:
    """Our names for a ViT or DeiT of timm. The class token has no place here and stays in the report as unused."""
    return _vit({_renamed(name, TIMM_RULES): value for name, value in state_dict.items()})


def from_transformers_vit(state_dict: StateDict) -> dict[str, Tensor]:
    """Our names for a ViT or DeiT of transformers, as it lies on disk or in memory."""
    named = {_renamed(name, TRANSFORMERS_RULES): value for name, value in state_dict.items()}
    return _vit(joined(named))


def _renamed(name: str, rules: Rules) -> str:
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name


def _vit(named: dict[str, Tensor]) -> dict[str, Tensor]:
    """Give positions their grid, and the class token its own."""
    if "position_embed.table" in named:
        table_1ND = named["position_embed.table"]
        grid_HWD = named["position_embed.table"] = _grid_table(table_1ND)
        if table_1ND.shape[1] > grid_HWD.shape[0] * grid_HWD.shape[1]:
            named["cls_position"] = table_1ND[:, :1]
    return named


def _grid_table(table: Tensor) -> Tensor:
    """`[1, tokens, D]` with one or two leading class tokens to `[H, W, D]`."""
    side = isqrt(table.shape[1])
    while side and table.shape[1] - side * side not in (0, 1, 2):
        side -= 1
    return table[0, table.shape[1] - side * side :].unflatten(0, (side, side))


OURS = "fixformer"
RELEASED = "the released code"
IMAGE_MODELS = ("a ViT of transformers", "a ViT of timm")
RESNET = "a ResNet of torchvision"
# Tried in this order: a mark is the beginning of "name axes", which no earlier system and none of our models has.
CONVERTERS: dict[str, tuple[str, Callable[[StateDict], dict[str, Tensor]]]] = {
    "TimeSformer (transformers)": (
        r"timesformer\.|encoder\.layer\.\d+\.(temporal_attention|attention\.attention\.qkv)\.",
        from_transformers_timesformer,
    ),
    "ViViT (transformers)": (
        r"vivit\.|embeddings\.patch_embeddings\.projection\.weight 5$",
        from_transformers_vivit,
    ),
    "Motionformer": (r"(module\.)?patch_embed_3d\.", from_motionformer),
    "XViT": (r"(module\.)?base_model\.cls_token ", from_xvit),
    "MViT (pytorchvideo)": (r"cls_positional_encoding\.", from_pytorchvideo_mvit),
    "SlowFast (pytorchvideo)": (r"blocks\.\d+\.multipathway_", from_pytorchvideo_slowfast),
    "X3D (pytorchvideo)": (r"blocks\.0\.conv\.conv_t\.", from_pytorchvideo_x3d),
    "MotionSqueeze": (r"(module\.)?(base_model\.)?chnl_reduction\.", from_motionsqueeze),
    "TSM": (r"(module\.)?base_model\.(conv1|layer\d)\.", from_tsm),
    RESNET: (r"layer1\.0\.conv1\.", from_tsm),
    RELEASED: (r"base_model\.|consensus\.", from_released),
    "a ViT of transformers": (
        r"(vit|deit)\.embeddings\.|embeddings\.patch_embeddings\.projection\.weight 4$",
        from_transformers_vit,
    ),
    "a ViT of timm": (r"blocks\.\d+\.attn\.qkv\.", from_timm_vit),
}


@dataclass
class LoadReport:
    """What became of every tensor."""

    source: str
    taken: list[str] = field(default_factory=list)
    interpolated: list[str] = field(default_factory=list)
    initial: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rows = [("taken", self.taken), ("interpolated", self.interpolated)]
        rows += [("left at initial values", self.initial), ("unused", self.unused)]
        lines = [f"  {title:<23}{len(names):>5}{_examples(names)}" for title, names in rows]
        return "\n".join([f"weights of {self.source}:", *lines])


def _examples(names: list[str], most: int = 4) -> str:
    """The distinct shapes of names, block numbers folded: what a reader needs to see that all is well."""
    folded = list(dict.fromkeys(re.sub(r"blocks\.\d+\.", "blocks.*.", name) for name in names))
    shown = ", ".join(folded[:most]) + (f", and {len(folded) - most} more" if len(folded) > most else "")
    return f"  {shown}" if folded else ""


Resize = Callable[[Tensor, Sequence[int]], Tensor]

# Tables with an entry for each place or frame: what brings them to another grid.
TABLES: tuple[tuple[str, Resize], ...] = (
    ("time_embed.slots", lambda table, grid: interpolate_time(table, *grid)),
    ("position_embed.table", lambda table, grid: interpolate_space(table, *grid)),
    ("position_embed.volume", lambda table, grid: interpolate_volume(table, *grid)),
    ("*.attend.keys", resize_slots),
    ("*.attend.values", resize_slots),
)
# Parts that may be missing from the files of others: what is added to their networks, the classifier, counters.
ADDED = ("*.steps.fixate.*", "*.attend.*", "motion.*", "head.*", "head_*", "*.num_batches_tracked")
# And from our own files: what follows the last block, when they pool in another way.
END = ("pool.*", "head.*")
# And from files of images, or of code that has no such part: all that knows of time and place.
UNKNOWN_TO_IMAGES = (
    *("*.time.*", "*.time_fc.*", "*.dwconv.*", "time_embed.*", "position_embed.*", "pre_logits.*", "temporal_*"),
)


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    path = Path(path)
    if not path.is_file():
        raise WeightsError(f"no weight file at {path}.")
    try:
        return load_file(path)
    except SafetensorError as error:
        if path.suffix == ".safetensors":
            raise WeightsError(f"{path} is damaged or cut short ({error}); fetch it again or use another.") from None
        raise WeightsError(
            f"{path} is not a safetensors file ({error}); pickled weights are never loaded, convert it first."
        ) from None


def load_weights(
    model: nn.Module, weights: StateDict | str | Path, *, grid: Grid | None = None, quiet: bool = False
) -> LoadReport:
    """Load a file or a state dict, ours or foreign, into `model`, and print the report to stderr.

    Tables of time and position are interpolated to the model's clip; a head of other classes or width stays as it is.
    Anything else that does not fit is an error that names the first differing tensor. `grid` is needed for a ViViT of
    transformers whose number of positions leaves open how many frames, rows and columns of tokens they are.
    """
    foreign = weights if isinstance(weights, Mapping) else read_weights(weights)
    source, named = _in_our_names(foreign)
    own = model.state_dict()
    _check_known(named, own, source)
    if source in IMAGE_MODELS and isinstance(model, VideoModel):
        named = model.adapt_image_weights(named)
    if VOLUME in own and VOLUME in named and named[VOLUME].ndim == 2:
        named = with_grid(named, grid or (None if isinstance(weights, Mapping) else grid_beside(Path(weights))))
    elif grid is not None:
        raise WeightsError(
            f"grid={grid} is for positions without a grid, and the weights of {source} have none; omit it."
        )
    report = LoadReport(source)
    fresh = _fresh_head(named, own)
    fitted = {
        name: _fit(name, named[name], own[name], _resize(model, name), report)
        for name in own
        if name in named and name not in fresh
    }
    report.initial += [name for name in own if name not in fitted]
    report.unused += [name for name in named if name not in own]
    report.unused += [name for name in foreign if source == RELEASED and name.startswith("new_fc.")]
    _check_missing((name for name in report.initial if name not in fresh), source)
    _check_depth(report.unused, own, source)
    model.load_state_dict(fitted, strict=False)
    if not quiet:
        print(report, file=sys.stderr)
    return report


def _in_our_names(foreign: StateDict) -> tuple[str, dict[str, Tensor]]:
    for source, (mark, convert) in CONVERTERS.items():
        if any(re.match(mark, f"{name} {tensor.ndim}") for name, tensor in foreign.items()):
            return source, convert(foreign)
    return OURS, dict(foreign)


def _check_known(named: StateDict, own: StateDict, source: str) -> None:
    if source == OURS and own.keys().isdisjoint(named):
        raise WeightsError(
            f"none of the {len(named)} names in the weights ({', '.join([*named][:2])}, ...) is one of the model or of "
            f"a system known here; known are {', '.join(CONVERTERS)}."
        )


def _fresh_head(named: StateDict, own: StateDict) -> set[str]:
    """The layers of the head that stay initial, whole: a weight or a bias alone belongs to another classifier."""
    layers: dict[str, list[str]] = {}
    for name in own:
        if name.startswith("head."):
            layers.setdefault(name.rpartition(".")[0], []).append(name)
    unfit = [names for names in layers.values() if any(_shape(named, name) != own[name].shape for name in names)]
    return {name for names in unfit for name in names}


def _shape(named: StateDict, name: str) -> torch.Size | None:
    return named[name].shape if name in named else None


def _resize(model: nn.Module, name: str) -> Resize | None:
    """How a table of the model is resized, as the model itself does it; nothing for what is no table."""
    if isinstance(model.get_submodule(name.rpartition(".")[0]), NearestPositionEmbed | NearestTimeEmbed):
        return nearest
    return next((resize for pattern, resize in TABLES if fnmatchcase(name, pattern)), None)


def _fit(name: str, value: Tensor, target: Tensor, resize: Resize | None, report: LoadReport) -> Tensor:
    if value.shape == target.shape:
        report.taken.append(name)
        return value
    if resize and value.ndim == target.ndim and value.shape[-1] == target.shape[-1]:
        report.interpolated.append(name)
        return resize(value.float(), target.shape[:-1])
    raise WeightsError(
        f"the weights of {report.source} do not fit: {name} is {tuple(value.shape)} in the file, "
        f"{tuple(target.shape)} in the model; build the model in the file's size."
    )


def _check_missing(names: Iterable[str], source: str) -> None:
    optional: tuple[str, ...] = ADDED if source != OURS else END
    if source in (*IMAGE_MODELS, RESNET, RELEASED):
        optional += UNKNOWN_TO_IMAGES
    for name in names:
        if not any(fnmatchcase(name, pattern) for pattern in optional):
            raise WeightsError(
                f"the weights of {source} do not fit: {name} is in the model, not in the file; build the model as the "
                "file has it."
            )


def _check_depth(unused: Iterable[str], own: StateDict, source: str) -> None:
    """Refuse a file with more blocks than the model: it would be another network, cut off."""
    numbered = {prefix for name in own for prefix in _numbered(name)}
    lists = {prefix.rpartition(".")[0] for prefix in numbered}
    for name in unused:
        beyond = [p for p in _numbered(name) if p not in numbered and p.rpartition(".")[0] in lists]
        if beyond:
            raise WeightsError(
                f"the weights of {source} do not fit: {name} is in the file, but the model has no {beyond[0]}; "
                "build the model as deep as the file."
            )


def _numbered(name: str) -> list[str]:
    """The beginnings of a name that end in a number: `stages.2.5.a` has `stages.2` and `stages.2.5`."""
    return [name[: match.end()] for match in re.finditer(r"\.\d+(?=\.)", name)]
