"""The checkpoints of a run: written atomically, verified when read; the newest ones and the best are kept.

`RUN/checkpoints/step-00000120/` holds the two files of every checkpoint (`models/checkpoint.py`), what is needed to
resume (`train.safetensors`, `train.json`) and `manifest.json` with the digest of each. `RUN/last` and `RUN/best` are
links. With averaged weights, `model.safetensors` is the average and `train.safetensors` has the trained ones.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from fixformer.config.schema import coerce
from fixformer.errors import UserError
from fixformer.models.checkpoint import (
    CONFIG,
    WEIGHTS,
    CheckpointError,
    CheckpointInfo,
    first_changed,
    read_info,
    read_manifest,
    write_manifest,
    write_model,
)
from fixformer.models.tensor_files import read_tensor_file, require_finite
from fixformer.runtime.console import note
from fixformer.runtime.files import (
    new_directory,
    parse_json,
    read_text,
    remove_temporary_files,
    replace_symlink,
)

TENSORS, STATE = "train.safetensors", "train.json"


@dataclass
class Snapshot:
    """A run at one step: the model to use (`info`, `weights`), and what is needed to resume (`tensors`, `state`)."""

    info: CheckpointInfo
    weights: dict[str, Tensor]
    tensors: dict[str, Tensor]
    state: dict[str, Any]


class CheckpointStore:
    """The checkpoints in one run's directory, of which this process is the only writer."""

    def __init__(self, run: Path, keep: int) -> None:
        self.run, self.keep = run, keep
        self.folder = run / "checkpoints"

    def paths(self) -> list[Path]:
        """All checkpoints, oldest first."""
        return sorted(self.folder.glob("step-*"))

    def write(self, snapshot: Snapshot, *, best: bool) -> Path:
        """Store a snapshot and delete old ones; if writing fails, everything stays as it was."""
        target = self._target(snapshot.info)
        try:
            if not target.exists():
                with new_directory(target) as folder:
                    write_model(folder, snapshot.weights, snapshot.info)
                    save_file(snapshot.tensors, folder / TENSORS)
                    shutil.copymode(folder / CONFIG, folder / TENSORS)
                    (folder / STATE).write_text(json.dumps(snapshot.state, allow_nan=False))
                    write_manifest(folder)
            replace_symlink(self.run / "last", target)
            if best:
                replace_symlink(self.run / "best", target)
        except (OSError, SafetensorError) as error:  # safetensors wraps the system's error in one of its own
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"cannot write a checkpoint to {self.folder} ({reason}); {self._advice()}.") from None
        self._delete_old()
        return target

    def _target(self, info: CheckpointInfo) -> Path:
        """The directory for a checkpoint.

        A step can be stored twice, before and after its evaluation. One directory cannot replace another atomically,
        so the second gets a name of its own, with a "+".
        """
        first = self.folder / f"step-{info.step:08d}"
        stored = [path for path in self.paths() if path.name.rstrip("+") == first.name]
        if not stored:
            return first
        is_same = read_info(stored[-1]).to_json() == json.loads(json.dumps(info.to_json()))
        return stored[-1] if is_same else stored[-1].with_name(f"{stored[-1].name}+")

    def _advice(self) -> str:
        good = self.paths()
        if not good:
            return "no checkpoint has been saved"
        return f"the last good checkpoint is {good[-1]}; free some space and resume with --resume"

    def _delete_old(self) -> None:
        best = (self.run / "best").resolve()
        newest_of_step = {path.name.rstrip("+"): path for path in self.paths()}
        kept = list(newest_of_step.values())[-self.keep :]
        for path in self.paths():
            if path not in kept and path.resolve() != best:
                shutil.rmtree(path, ignore_errors=True)

    def newest_good(self) -> Path | None:
        """The newest intact checkpoint, after cleaning up what an interrupted process left.

        Damaged checkpoints are reported and renamed to `damaged-*`; the links `last` and `best` are corrected.
        """
        remove_temporary_files(self.folder)
        remove_temporary_files(self.run)
        newest = next((path for path in reversed(self.paths()) if not self._set_aside_if_damaged(path)), None)
        scores = {path: score(path) for path in self.paths() if damage(path) is None}
        scored = {path: value for path, value in scores.items() if value is not None}
        best = max(scored, key=lambda path: scored[path], default=None)  # the first of equals, as during training
        for name, target in (("last", newest), ("best", best)):
            link = self.run / name
            if target is None:
                link.unlink(missing_ok=True)
            elif link.resolve() != target.resolve():
                replace_symlink(link, target)
        return newest

    def _set_aside_if_damaged(self, path: Path) -> bool:
        problem = damage(path)
        if problem is None:
            return False
        note(f"fixformer: {path} is damaged ({problem}); using the checkpoint before it.")
        aside = path.with_name(f"damaged-{path.name}")
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
        return True


def damage(path: Path) -> str | None:
    """What is wrong with a checkpoint's files, or None."""
    try:
        changed = first_changed(path, read_manifest(path))
    except (OSError, ValueError) as error:
        return str(error)
    return f"the content of {changed} has changed" if changed else None


def score(path: Path) -> float | None:
    """The accuracy of a checkpoint that was written right after an evaluation; None for others."""
    info = read_info(path)
    value = info.metrics.get("video_top1")
    return value if info.metrics.get("epoch") == info.epoch and isinstance(value, float | int) else None


def read_state(path: Path) -> dict[str, Any]:
    """What a run needs to resume beside its tensors; its values are checked where they are used."""
    try:
        return coerce(parse_json(read_text(path / STATE)), dict, "the state of the run")
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path / STATE} is damaged ({error}); remove this checkpoint.") from None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint, named as `training/state.py` says, after `damage` has found none."""
    weights = {f"saved.{name}": value for name, value in read_tensor_file(path / WEIGHTS).items()}
    tensors = {**read_tensor_file(path / TENSORS), **weights}
    require_finite(tensors, path)
    return tensors
