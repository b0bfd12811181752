"""A checkpoint: a directory with `model.safetensors` and `config.json`, from which everything else is rebuilt.

Nothing in it is ever unpickled. Training adds its own files beside these two (`training.saves`).
"""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from fixformer.config import ClipSpec, EvalConfig
from fixformer.config.schema import dump, load
from fixformer.errors import UserError, WeightsError
from fixformer.models.base import VideoModel
from fixformer.models.registry import create_model

FORMAT = 1
WEIGHTS, CONFIG = "model.safetensors", "config.json"


class CheckpointError(UserError):
    """A directory that is no checkpoint, or a damaged one."""


@dataclass(frozen=True)
class CheckpointInfo:
    """What `config.json` says: the model, what it is fed, what its outputs mean, and where it comes from."""

    model: str
    model_settings: dict[str, Any]
    clip: ClipSpec
    labels: list[str]
    eval: EvalConfig = field(default_factory=EvalConfig)
    recipe: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    step: int = 0
    epoch: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
    commit: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "model": {"name": self.model, "settings": self.model_settings},
            "clip": dump(self.clip),
            "labels": self.labels,
            "eval": dump(self.eval),
            "recipe": self.recipe,
            "metrics": self.metrics,
            "step": self.step,
            "epoch": self.epoch,
            "versions": self.versions,
            "commit": self.commit,
        }

    @staticmethod
    def from_json(values: dict[str, Any]) -> "CheckpointInfo":
        named = {name: values[name] for name in ("labels", "recipe", "metrics", "step", "epoch", "versions", "commit")}
        clip, scoring = load(ClipSpec, values["clip"], "clip"), load(EvalConfig, values["eval"], "eval")
        name, settings = values["model"]["name"], values["model"]["settings"]
        kinds = {"labels": list, "recipe": dict, "metrics": dict, "step": int, "epoch": float | int}
        wrong = [key for key, kind in kinds.items() if not isinstance(named[key], kind)]
        if wrong or not isinstance(name, str) or not isinstance(settings, dict):
            raise TypeError(f"{wrong[0] if wrong else 'model'} is of another type")
        return CheckpointInfo(name, settings, clip, eval=scoring, **named)


def write_model(folder: Path, tensors: dict[str, Tensor], info: CheckpointInfo) -> None:
    """The two files of a checkpoint, into an existing directory."""
    save_file({name: value.contiguous() for name, value in tensors.items()}, folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps(info.to_json(), indent=1) + "\n")
    shutil.copymode(folder / CONFIG, folder / WEIGHTS)  # safetensors makes files that only their owner may read


def find_checkpoint(path: str | Path) -> Path:
    """The checkpoint a path means: itself, or the last one of a run's directory, even where its link leads nowhere."""
    path = Path(path)
    newest_first = sorted((path / "checkpoints").glob("step-*"), reverse=True)
    for candidate in (path, path / "last", *newest_first):
        if (candidate / CONFIG).is_file() and (candidate / WEIGHTS).is_file():
            return candidate
    kind = "has no checkpoint in it" if path.is_dir() else "does not exist" if not path.exists() else "is a file"
    raise CheckpointError(f"{path} {kind}; a checkpoint is a directory with {WEIGHTS} and {CONFIG}.")


def read_info(path: str | Path) -> CheckpointInfo:
    """What a checkpoint says about itself."""
    file = find_checkpoint(path) / CONFIG
    try:
        values = json.loads(file.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{file} is damaged ({error}); use another checkpoint of the run.") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{file} is damaged (not a table of settings); use another checkpoint of the run.")
    if values.get("format") != FORMAT:
        raise CheckpointError(
            f"{file} has format {values.get('format')!r}, this version reads {FORMAT}; upgrade fixformer."
        )
    try:
        return CheckpointInfo.from_json(values)
    except KeyError as error:
        raise CheckpointError(f"{file} lacks {error}; use another checkpoint of the run.") from None
    except TypeError as error:
        raise CheckpointError(f"{file} is damaged ({error}); use another checkpoint of the run.") from None


def load_model(path: str | Path) -> tuple[VideoModel, CheckpointInfo]:
    """The model of a checkpoint with its weights, ready for inference."""
    folder = find_checkpoint(path)
    info = read_info(folder)
    model = create_model(info.model, **info.model_settings)
    try:
        tensors = load_file(folder / WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{folder / WEIGHTS} is damaged ({error}); use another checkpoint of the run.") from None
    own = model.state_dict()
    for name in [*own, *tensors]:
        shapes = [tuple(state[name].shape) if name in state else None for state in (own, tensors)]
        if shapes[0] != shapes[1]:
            raise WeightsError(f"{folder / WEIGHTS}: {name} is {shapes[1]}, but {CONFIG} makes it {shapes[0]}.")
    model.load_state_dict(tensors)
    return model.eval(), info
