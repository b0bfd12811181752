"""The checkpoints of a run: written whole or not at all, checked when read, the newest and the best kept.

`RUN/checkpoints/step-00000120/` holds the two files of every checkpoint (`models/checkpoint.py`), what training needs
to go on (`train.safetensors`, `train.json`) and `manifest.json` with the digest of each. `RUN/last` and `RUN/best` are
links. With averaged weights, `model.safetensors` is the average and `train.safetensors` has the trained ones.
"""

import hashlib
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from fixformer.errors import UserError
from fixformer.models.checkpoint import CONFIG, WEIGHTS, CheckpointInfo, read_info, write_model
from fixformer.runtime.files import new_directory, point, sweep

TENSORS, STATE, MANIFEST = "train.safetensors", "train.json", "manifest.json"


@dataclass
class Snapshot:
    """A run at one moment."""

    info: CheckpointInfo
    weights: dict[str, Tensor]
    tensors: dict[str, Tensor]
    state: dict[str, Any]


class Saves:
    """The checkpoints under one run directory, of which this process is the only writer."""

    def __init__(self, run: Path, keep: int) -> None:
        self.run, self.keep = run, keep
        self.folder = run / "checkpoints"

    def write(self, snapshot: Snapshot, *, best: bool) -> Path:
        """Store a snapshot; a failure leaves everything that was there before."""
        target = self._place(snapshot.info)
        try:
            if not target.exists():
                with new_directory(target) as folder:
                    write_model(folder, snapshot.weights, snapshot.info)
                    save_file(snapshot.tensors, folder / TENSORS)
                    shutil.copymode(folder / CONFIG, folder / TENSORS)
                    (folder / STATE).write_text(json.dumps(snapshot.state))
                    (folder / MANIFEST).write_text(json.dumps(_digests(folder)))
            point(self.run / "last", target)
            if best:
                point(self.run / "best", target)
        except (OSError, SafetensorError) as error:  # safetensors hides the system's error in one of its own
            raise UserError(self._failure(error)) from None
        self._forget_old()
        return target

    def _place(self, info: CheckpointInfo) -> Path:
        """Where a checkpoint goes: a step that is stored in another state (not yet evaluated) gets a second directory.

        A directory cannot take the place of another in one step, so the new one stands beside the old one.
        """
        first = self.folder / f"step-{info.step:08d}"
        stored = [path for path in self.paths() if path.name.rstrip("+") == first.name]
        if not stored:
            return first
        is_same = read_info(stored[-1]).to_json() == json.loads(json.dumps(info.to_json()))
        return stored[-1] if is_same else stored[-1].with_name(f"{stored[-1].name}+")

    def _failure(self, error: Exception) -> str:
        good = self.paths()
        rest = f"the last good checkpoint is {good[-1]}; make room and go on with --resume" if good else "none is saved"
        reason = getattr(error, "strerror", None) or error
        return f"a checkpoint cannot be written to {self.folder} ({reason}); {rest}."

    def paths(self) -> list[Path]:
        """All checkpoints, oldest first."""
        return sorted(self.folder.glob("step-*"))

    def newest_good(self) -> Path | None:
        """The newest whole checkpoint; damaged ones are reported, set aside and passed over. The links follow."""
        sweep(self.folder)
        sweep(self.run)
        newest = next((path for path in reversed(self.paths()) if self._is_good(path)), None)
        self._repair_link("last", newest)
        self._repair_link("best", self._best())
        return newest

    def _is_good(self, path: Path) -> bool:
        problem = damage(path)
        if problem is not None:
            print(f"fixformer: {path} is damaged ({problem}) and set aside; the one before is taken.", file=sys.stderr)
            aside = path.with_name(f"damaged-{path.name}")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
        return problem is None

    def _repair_link(self, name: str, target: Path | None) -> None:
        """A run killed between a checkpoint and its link left the link on an older one, or on nothing."""
        link = self.run / name
        if target is None:
            link.unlink(missing_ok=True)
        elif link.resolve() != target.resolve():
            point(link, target)

    def _best(self) -> Path | None:
        """The first of the whole checkpoints with the highest score."""
        scores = {path: score(path) for path in self.paths() if damage(path) is None}
        scored = {path: value for path, value in scores.items() if value is not None}
        return max(scored, key=lambda path: scored[path], default=None)

    def _forget_old(self) -> None:
        best = (self.run / "best").resolve()
        newest_of_step = {path.name.rstrip("+"): path for path in self.paths()}
        kept = list(newest_of_step.values())[-self.keep :]
        for path in self.paths():
            if path not in kept and path.resolve() != best:
                shutil.rmtree(path, ignore_errors=True)


def damage(path: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        expected = json.loads((path / MANIFEST).read_text())
        actual = _digests(path)
    except (OSError, ValueError) as error:
        return str(error)
    wrong = [name for name in expected if actual.get(name) != expected[name]]
    return f"{wrong[0]} is not what was written" if wrong else None


def score(path: Path) -> float | None:
    """The accuracy of a checkpoint that was written right after its evaluation; None for the others."""
    info = read_info(path)
    return info.metrics["video_top1"] if info.metrics.get("epoch") == info.epoch else None


def read_state(path: Path) -> dict[str, Any]:
    return json.loads((path / STATE).read_text())


def read_tensors(path: Path) -> dict[str, Tensor]:
    """What training stored, the weights of the checkpoint itself under `saved.NAME`."""
    weights = {f"saved.{name}": value for name, value in load_file(path / WEIGHTS).items()}
    return {**load_file(path / TENSORS), **weights}


def _digests(folder: Path) -> dict[str, str]:
    return {name: _digest(folder / name) for name in (WEIGHTS, CONFIG, TENSORS, STATE)}


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").hexdigest()
