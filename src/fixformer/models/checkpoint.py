"""A checkpoint: a directory with `model.safetensors` and `config.json`, from which everything else is rebuilt.

Nothing in it is ever unpickled, and nothing in it is believed: settings pass the schema, sizes are compared with the
machine before anything is allocated, and what `manifest.json` has a digest of is compared with it. Only a checkpoint
that was shared without its manifest is read unverified. A directory with a pickle, or with a link out of it, is refused
(`models/foreign_parts.py`). Training adds its own files (`training/checkpoint_store.py`).
"""

import hashlib
import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from fixformer.config import ClipSpec, EvalConfig, TrainConfig
from fixformer.config.own import without_own
from fixformer.config.schema import Count, NonNegative, Positive, check_path, coerce, dump, load
from fixformer.errors import UnknownName, UserError, WeightsError
from fixformer.models.base import VideoModel
from fixformer.models.foreign_parts import foreign_part, leads_out
from fixformer.models.registry import create_model
from fixformer.models.tensor_files import read_tensor_file, require_finite
from fixformer.runtime.files import open_file, parse_json, read_text

FORMAT = 2
WEIGHTS, CONFIG, MANIFEST = "model.safetensors", "config.json", "manifest.json"
# The settings a checkpoint needs when no training run made it.
WITHOUT_TRAINING = ("model", "model_settings", "clip", "eval")


class CheckpointError(UserError):
    """A directory that is not a checkpoint, or a damaged one."""


@dataclass(frozen=True)
class CheckpointInfo:
    """The content of `config.json`.

    Args:
        config: the training run. A checkpoint that no run made (`is_trained` is false) leaves `config.data` empty;
            then only `model`, `model_settings`, `clip` and `eval` mean anything, and only these are stored.
        labels: the name of each class, in the order of the model's outputs.
        metrics: the last evaluation during training.
        step, epoch: how far training was.
        versions, commit: the software that wrote it.
        video_seconds: the median length of the training videos, None if unknown.
    """

    config: TrainConfig
    labels: list[str]
    metrics: dict[str, Any] = field(default_factory=dict)
    step: int = 0
    epoch: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
    commit: str = ""
    video_seconds: float | None = None

    @property
    def is_trained(self) -> bool:
        return self.config.data.path != ""

    def to_json(self) -> dict[str, Any]:
        config = without_own(dump(self.config))
        return {
            "format": FORMAT,
            "config": config if self.is_trained else {name: config[name] for name in WITHOUT_TRAINING},
            "labels": self.labels,
            "metrics": self.metrics,
            "step": self.step,
            "epoch": self.epoch,
            "versions": self.versions,
            "commit": self.commit,
            **({} if self.video_seconds is None else {"video_seconds": self.video_seconds}),
        }

    @staticmethod
    def from_json(values: dict[str, Any]) -> "CheckpointInfo":
        if values["format"] == 1:
            values = _from_format_1(values)
        kinds = {"metrics": dict, "step": Count, "epoch": NonNegative, "versions": dict, "commit": str}
        others = {name: coerce(values[name], kind, name) for name, kind in kinds.items()}
        # checkpoints of earlier versions do not say it
        seconds = coerce(values.get("video_seconds"), Positive | None, "video_seconds")
        config, labels = _load_config(values["config"]), _load_labels(values["labels"])
        return CheckpointInfo(config, labels, **others, video_seconds=seconds)


def _load_labels(values: Any) -> list[str]:
    if not isinstance(values, list) or not values or not all(isinstance(name, str) and name for name in values):
        raise TypeError("labels: expected a list of names")
    if len(set(values)) < len(values):
        repeated = next(name for i, name in enumerate(values) if name in values[:i])
        raise TypeError(f"labels: {repeated!r} appears twice")
    return values


def _load_config(values: Any) -> TrainConfig:
    if not isinstance(values, dict):
        raise TypeError(f"config is of type {type(values).__name__}")
    if "data" in values:
        return load(TrainConfig, without_own(values))
    # part by part: a whole `TrainConfig` without data is not valid
    name, settings = values["model"], values["model_settings"]
    if not isinstance(name, str) or not isinstance(settings, dict):
        raise TypeError("model is not a name with a table of settings")
    clip, scoring = load(ClipSpec, values["clip"], "clip"), load(EvalConfig, values["eval"], "eval")
    return TrainConfig(model=name, model_settings=settings, clip=clip, eval=scoring)


def _from_format_1(values: dict[str, Any]) -> dict[str, Any]:
    """Format 1 had model, clip and eval beside `recipe`, which repeats them unless no run made the checkpoint."""
    model, settings = values["model"]["name"], values["model"]["settings"]
    outside = {"model": model, "model_settings": settings, "clip": values["clip"], "eval": values["eval"]}
    return {**values, "config": {**outside, **values["recipe"]}}


def complete_model_settings(config: TrainConfig, num_classes: int) -> dict[str, Any]:
    """The arguments of `create_model`: the configured ones, and those that follow from the labels and the clip."""
    sizes = {"num_classes": num_classes, "num_frames": config.clip.frames, "image_size": config.clip.size}
    return {**sizes, **config.model_settings}  # a checkpoint that no run made may be sized for another clip


def write_model(folder: Path, tensors: dict[str, Tensor], info: CheckpointInfo) -> None:
    """Write the two files of a checkpoint into an existing directory; `write_manifest` then completes it."""
    save_file({name: value.contiguous() for name, value in tensors.items()}, folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps(info.to_json(), indent=1, allow_nan=False) + "\n")
    shutil.copymode(folder / CONFIG, folder / WEIGHTS)  # safetensors creates files that only their owner can read


def write_manifest(folder: Path) -> None:
    """Store the digest of every file of a new checkpoint, so that a changed byte is noticed when it is read."""
    digests = {path.name: _digest(path) for path in sorted(folder.iterdir())}
    (folder / MANIFEST).write_text(json.dumps(digests))


def read_manifest(folder: Path) -> dict[str, str]:
    """The digest of each file of a checkpoint."""
    digests = parse_json(read_text(folder / MANIFEST))
    if not isinstance(digests, dict) or not {WEIGHTS, CONFIG} <= digests.keys():
        raise ValueError(f"{MANIFEST} does not list its files")
    return digests


def first_changed(folder: Path, digests: dict[str, str]) -> str | None:
    """The first file whose content is not what its digest says, or None. A 400 MB file takes 0.3 s."""
    return next((name for name, digest in digests.items() if _digest(folder / name) != digest), None)


def verify(folder: Path, *names: str) -> None:
    """Raise a `CheckpointError` if one of these files has changed since the checkpoint was written.

    A checkpoint may be shared as its two files only; without the manifest there is nothing to compare with.
    """
    if not os.path.lexists(folder / MANIFEST):
        return
    try:
        digests = read_manifest(folder)
        changed = first_changed(folder, {name: digests[name] for name in names})
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder / MANIFEST} is damaged ({error}); use another checkpoint of the run.") from None
    if changed:
        raise CheckpointError(
            f"{folder / changed} is damaged (its content has changed since it was written); use another checkpoint of "
            f"the run, or, if you changed it yourself, remove {MANIFEST} beside it."
        )


def model_digest(path: str | Path) -> str:
    """Identifies the weights and the settings of a checkpoint, in 16 hexadecimal digits."""
    folder = find_checkpoint(path)
    parts = "".join(_digest(folder / name) for name in (WEIGHTS, CONFIG))
    return hashlib.blake2b(parts.encode(), digest_size=8).hexdigest()


def _digest(path: Path) -> str:
    with open_file(path, "rb") as stream:
        return hashlib.file_digest(stream, "blake2b").hexdigest()


def find_checkpoint(path: str | Path) -> Path:
    """The checkpoint a path means: itself, or the last one of a run's directory, even if the link `last` is broken."""
    check_path(path, "checkpoint")
    path = Path(path)
    newest_first = sorted((path / "checkpoints").glob("step-*"), reverse=True)
    for candidate in (path, path / "last", *newest_first):
        if (candidate / CONFIG).is_file() and (candidate / WEIGHTS).is_file():
            _require_own_parts(candidate, path)
            return candidate
    problem = "contains no checkpoint" if path.is_dir() else "does not exist" if not path.exists() else "is a file"
    raise CheckpointError(f"{path} {problem}; a checkpoint is a directory with {WEIGHTS} and {CONFIG}.")


def _require_own_parts(folder: Path, given: Path) -> None:
    """Raise a `CheckpointError` if a checkpoint, found in the directory that was given, is not made of its own files.

    The directory that was given may itself be a link: that one is the user's.
    """
    if leads_out(folder, given):
        target = os.path.realpath(folder)
        raise CheckpointError(f"{folder} is a link out of {given}, to {target}; give that directory if you trust it.")
    problem = foreign_part(folder)
    if problem:
        raise CheckpointError(f"{folder} {problem}; a checkpoint has none, remove it or use another checkpoint.")


def read_info(path: str | Path) -> CheckpointInfo:
    """The content of a checkpoint's `config.json`."""
    folder = find_checkpoint(path)
    file = folder / CONFIG
    verify(folder, CONFIG)
    try:
        values = parse_json(read_text(file))
        if not isinstance(values, dict):
            raise TypeError("not a table of settings")
        if values.get("format") not in (1, FORMAT):
            stored = values.get("format")
            raise CheckpointError(f"{file} has format {stored!r}, this version reads 1 to {FORMAT}; upgrade fixformer.")
        return CheckpointInfo.from_json(values)
    except CheckpointError:
        raise
    except UnknownName as error:
        raise CheckpointError(f"{file} was written by another version ({error}); upgrade fixformer.") from None
    except KeyError as error:
        problem = f"{error} is missing"
    except (OSError, ValueError, TypeError) as error:  # unreadable, not JSON, not text, or settings that are not valid
        problem = str(error).rstrip(".")
    raise CheckpointError(f"{file} is damaged ({problem}); use another checkpoint of the run.")


def load_model(path: str | Path) -> tuple[VideoModel, CheckpointInfo]:
    """The model of a checkpoint with its weights, ready for inference."""
    folder = find_checkpoint(path)
    info = read_info(folder)
    try:
        model = create_model(info.config.model, **complete_model_settings(info.config, len(info.labels)))
    except UserError as error:
        raise CheckpointError(f"{folder / CONFIG} describes no model that can be built here: {error}") from None
    if model.num_classes != len(info.labels):
        raise CheckpointError(
            f"{folder / CONFIG} has {len(info.labels)} labels for a model with num_classes={model.num_classes}; "
            "expected as many labels as classes."
        )
    model.load_state_dict(_read_weights(folder, model))
    return model.eval(), info


def _read_weights(folder: Path, model: VideoModel) -> dict[str, Tensor]:
    """The verified weights: those of the model, each of its shape and kind, and finite."""
    file = folder / WEIGHTS
    verify(folder, WEIGHTS)
    tensors, own = read_tensor_file(file), model.state_dict()
    for name in [*own, *tensors]:
        shapes = [tuple(state[name].shape) if name in state else None for state in (own, tensors)]
        if shapes[0] != shapes[1]:
            raise WeightsError(
                f"{file}: {name} has shape {shapes[1]}, but {CONFIG} describes a model with {shapes[0]}."
            )
        if tensors[name].is_floating_point() != own[name].is_floating_point():
            raise WeightsError(f"{file}: {name} is of type {tensors[name].dtype}, expected {own[name].dtype}.")
    require_finite(tensors, file)
    return tensors
