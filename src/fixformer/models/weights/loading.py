"""Weights from elsewhere: names translated, tables resized, and a report of what happened to every tensor.

A converter is a function from a foreign state dict to one in our names. `load_weights` then fits it to a model whose
frames, size or classes may differ. Files are safetensors; nothing is ever unpickled.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from torch import Tensor, nn

from fixformer.errors import WeightsError
from fixformer.models.attention.kinds import resize_slots
from fixformer.models.base import VideoModel
from fixformer.models.layers.embedding import interpolate_space, interpolate_time
from fixformer.models.tensor_files import read_tensor_file, require_finite
from fixformer.models.weights.image_vit import from_timm_vit, from_transformers_vit
from fixformer.models.weights.pytorchvideo import (
    from_pytorchvideo_mvit,
    from_pytorchvideo_slowfast,
    from_pytorchvideo_x3d,
)
from fixformer.models.weights.released import from_released
from fixformer.models.weights.resnet import from_motionsqueeze, from_tsm
from fixformer.models.weights.video_vit import (
    from_motionformer,
    from_transformers_timesformer,
    from_transformers_vivit,
    from_xvit,
)
from fixformer.models.weights.vivit_grid import VOLUME, Grid, grid_beside, with_grid
from fixformer.models.zoo.timesformer import NearestPositionEmbed, NearestTimeEmbed, nearest
from fixformer.models.zoo.vivit import interpolate_volume
from fixformer.runtime.console import note, printable

StateDict = Mapping[str, Tensor]
Converter = Callable[[StateDict], dict[str, Tensor]]

OURS = "fixformer"
RELEASED = "the released code"
IMAGE_MODELS = ("a ViT of transformers", "a ViT of timm")
RESNET = "a ResNet of torchvision"
# Tried in this order: a pattern matches the start of "name axes" of a tensor that only this system has.
CONVERTERS: dict[str, tuple[str, Converter]] = {
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
    """What happened to every tensor, of the file and of the model."""

    source: str
    taken: list[str] = field(default_factory=list)
    interpolated: list[str] = field(default_factory=list)
    initial: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rows = [("taken", self.taken), ("interpolated", self.interpolated)]
        rows += [("left at initial values", self.initial), ("unused", self.unused)]
        lines = [f"weights of {self.source}:"]
        for title, names in rows:
            # four examples, the blocks' numbers folded into one, tell a reader which part of the model it is
            folded = list(dict.fromkeys(re.sub(r"blocks\.\d+\.", "blocks.*.", name) for name in names))
            more = [f"and {len(folded) - 4} more"] if len(folded) > 4 else []
            examples = ", ".join([*folded[:4], *more])
            lines.append(f"  {title:<23}{len(names):>5}  {examples}".rstrip())
        return "\n".join(map(printable, lines))


Resize = Callable[[Tensor, Sequence[int]], Tensor]

# Tables with an entry for each position or frame, and how they are interpolated to another grid.
TABLES: tuple[tuple[str, Resize], ...] = (
    ("time_embed.slots", lambda table, grid: interpolate_time(table, *grid)),
    ("position_embed.table", lambda table, grid: interpolate_space(table, *grid)),
    ("position_embed.volume", lambda table, grid: interpolate_volume(table, *grid)),
    ("*.attend.keys", resize_slots),
    ("*.attend.values", resize_slots),
)
# May be missing from foreign files: what we add to their networks, the classifier, counters.
ADDED = (
    *("*.steps.fixate.*", "*.attend.*", "*.body.local.*", "*.body.output_gate.*"),
    *("motion.*", "head.*", "head_*", "*.num_batches_tracked"),
)
# May be missing from our own files: what follows the last block, if they pool in another way.
END = ("pool.*", "head.*")
# May also be missing from image models, and from the released code, which has no position table.
UNKNOWN_TO_IMAGES = (
    *("*.time.*", "*.time_fc.*", "*.dwconv.*", "time_embed.*", "position_embed.*", "pre_logits.*", "temporal_*"),
)


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, all finite; those of a checkpoint are compared with its manifest."""
    path = Path(path)
    tensors = read_tensor_file(path)
    require_finite(tensors, path)
    return tensors


def load_weights(
    model: nn.Module, weights: StateDict | str | Path, *, grid: Grid | None = None, quiet: bool = False
) -> LoadReport:
    """Load a file or a state dict, ours or foreign, into `model`, and print the report to stderr.

    Tables of time and position are interpolated to the model's clip; a head of other classes or width stays as it is.
    Anything else that does not fit is an error that names the first differing tensor. `grid` is needed for a ViViT of
    transformers whose number of positions leaves open how many frames, rows and columns of tokens they are.
    """
    foreign = weights if isinstance(weights, Mapping) else read_weights(weights)
    source, convert = _recognise(foreign)
    with _expecting_shapes_of(source):
        named = convert(foreign)
        if source in IMAGE_MODELS and isinstance(model, VideoModel):
            named = model.adapt_image_weights(named)
    own = model.state_dict()
    if source == OURS and own.keys().isdisjoint(named):
        raise WeightsError(
            f"none of the {len(named)} names in the weights ({', '.join([*named][:2])}, ...) belongs to the model or "
            f"to a known system; known: {', '.join(CONVERTERS)}."
        )
    if VOLUME in own and VOLUME in named and named[VOLUME].ndim == 2:
        named = with_grid(named, grid or (None if isinstance(weights, Mapping) else grid_beside(Path(weights))))
    elif grid is not None:
        raise WeightsError(
            f"grid={grid} applies only to ViViT's list of positions, which the weights of {source} lack; omit it."
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
        note(str(report))
    return report


def _recognise(foreign: StateDict) -> tuple[str, Converter]:
    """The system whose weights these are, by their names, and how they are renamed."""
    for source, (mark, convert) in CONVERTERS.items():
        if any(re.match(mark, f"{name} {tensor.ndim}") for name, tensor in foreign.items()):
            return source, convert
    return OURS, dict


@contextmanager
def _expecting_shapes_of(source: str) -> Iterator[None]:
    """A file may have the names of a system and other shapes, on which its converter fails in its own way."""
    try:
        yield
    except WeightsError:
        raise
    except (IndexError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise WeightsError(
            f"the weights have names of {source}, but not its shapes ({error}); use weights of that system."
        ) from None


def _fresh_head(named: StateDict, own: StateDict) -> set[str]:
    """Parameters of the head that stay initial, always whole layers: a bias without its weight would be wrong."""
    head = [name for name in own if name.startswith("head.")]
    unfit = [name for name in head if name not in named or named[name].shape != own[name].shape]
    layers = {name.rpartition(".")[0] for name in unfit}
    return {name for name in head if name.rpartition(".")[0] in layers}


def _resize(model: nn.Module, name: str) -> Resize | None:
    """How the model itself resizes the table of this name; None if it is not a table."""
    if isinstance(model.get_submodule(name.rpartition(".")[0]), NearestPositionEmbed | NearestTimeEmbed):
        return nearest
    return next((resize for pattern, resize in TABLES if fnmatchcase(name, pattern)), None)


def _fit(name: str, value: Tensor, target: Tensor, resize: Resize | None, report: LoadReport) -> Tensor:
    if value.is_floating_point() != target.is_floating_point():
        raise WeightsError(
            f"the weights of {report.source} do not fit: {name} is of type {value.dtype} in the file, expected "
            f"{target.dtype}."
        )
    if value.shape == target.shape:
        report.taken.append(name)
        return value
    if resize and value.ndim == target.ndim and value.shape[-1] == target.shape[-1]:
        report.interpolated.append(name)
        return resize(value.float(), target.shape[:-1])
    raise WeightsError(
        f"the weights of {report.source} do not fit: {name} is {tuple(value.shape)} in the file, "
        f"{tuple(target.shape)} in the model; create the model with the file's sizes."
    )


def _check_missing(names: Iterable[str], source: str) -> None:
    optional: tuple[str, ...] = ADDED if source != OURS else END
    if source in (*IMAGE_MODELS, RESNET, RELEASED):
        optional += UNKNOWN_TO_IMAGES
    for name in names:
        if not any(fnmatchcase(name, pattern) for pattern in optional):
            raise WeightsError(
                f"the weights of {source} do not fit: {name} is in the model but not in the file; create the model "
                "with the file's settings."
            )


def _check_depth(unused: Iterable[str], own: StateDict, source: str) -> None:
    """Refuse a file with more blocks than the model: part of a deeper network is another network."""
    numbered = {prefix for name in own for prefix in _numbered(name)}
    lists = {prefix.rpartition(".")[0] for prefix in numbered}
    for name in unused:
        beyond = [p for p in _numbered(name) if p not in numbered and p.rpartition(".")[0] in lists]
        if beyond:
            raise WeightsError(
                f"the weights of {source} do not fit: {name} is in the file, but the model has no {beyond[0]}; "
                "create the model with the file's depth."
            )


def _numbered(name: str) -> list[str]:
    """The beginnings of a name that end in a number: `stages.2.5.a` has `stages.2` and `stages.2.5`."""
    return [name[: match.end()] for match in re.finditer(r"\.\d+(?=\.)", name)]
