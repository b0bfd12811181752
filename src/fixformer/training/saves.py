"""The checkpoints of a run: written whole or not at all, checked when read, the newest and the best kept.

`RUN/checkpoints/step-00000120/` holds the two files of every checkpoint (`fixformer.checkpoint`), what training needs
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

from safetensors.torch import load_file, save_file
from torch import Tensor

from fixformer.checkpoint import CONFIG, WEIGHTS, CheckpointInfo, write_model
from fixformer.errors import UserError
from fixformer.files import new_directory, point, sweep

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
        target = self.folder / f"step-{snapshot.info.step:08d}"
        try:
            if not target.exists():
                with new_directory(target) as folder:
                    write_model(folder, snapshot.weights, snapshot.info)
                    save_file(snapshot.tensors, folder / TENSORS)
                    (folder / STATE).write_text(json.dumps(snapshot.state))
                    (folder / MANIFEST).write_text(json.dumps(_digests(folder)))
            point(self.run / "last", target)
            if best:
                point(self.run / "best", target)
        except OSError as error:
            raise UserError(self._failure(error)) from None
        self._forget_old()
        return target

    def _failure(self, error: OSError) -> str:
        good = self.paths()
        rest = f"the last good checkpoint is {good[-1]}; make room and go on with --resume" if good else "none is saved"
        return f"a checkpoint cannot be written to {self.folder} ({error.strerror or error}); {rest}."

    def paths(self) -> list[Path]:
        """All checkpoints, oldest first."""
        return sorted(self.folder.glob("step-*"))

    def newest_good(self) -> Path | None:
        """The newest whole checkpoint; damaged ones are reported, set aside and passed over."""
        sweep(self.folder)
        sweep(self.run)
        for path in reversed(self.paths()):
            problem = damage(path)
            if problem is None:
                return path
            print(f"fixformer: {path} is damaged ({problem}); falling back to the one before.", file=sys.stderr)
            aside = path.with_name(f"damaged-{path.name}")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
        return None

    def _forget_old(self) -> None:
        best = (self.run / "best").resolve()
        for path in self.paths()[: -self.keep]:
            if path.resolve() != best:
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
