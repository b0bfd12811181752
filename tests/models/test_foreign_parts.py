"""A checkpoint's directory with a pickle, with a link out of it or with another config is refused."""

import os
import pickle
import shutil
from pathlib import Path

import pytest
import torch

from fixformer.models.checkpoint import CheckpointError, find_checkpoint, load_model, read_info
from fixformer.models.shipped_model import SHIPPED


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.file),)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SHIPPED, tmp_path / "checkpoint"))


@pytest.mark.parametrize("name", ["optimizer.pt", "training_args.bin", "notes", "archive.zip"])
def test_a_pickle_in_it(checkpoint: Path, tmp_path: Path, name: str) -> None:
    trap = Trap(tmp_path / "PWNED")
    if name == "archive.zip":
        torch.save({"x": trap}, checkpoint / name)
    else:
        (checkpoint / name).write_bytes(pickle.dumps(trap))
    for read in (load_model, read_info, find_checkpoint):
        with pytest.raises(CheckpointError, match=rf"has a pickle in it, {name}"):
            read(checkpoint)
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_for_weights(checkpoint: Path, tmp_path: Path, protocol: int) -> None:
    (checkpoint / "manifest.json").unlink()
    (checkpoint / "model.safetensors").write_bytes(pickle.dumps(Trap(tmp_path / "PWNED"), protocol))
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
        load_model(checkpoint)
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "README.md", "other"])
def test_a_link_out_of_it(checkpoint: Path, tmp_path: Path, name: str) -> None:
    (checkpoint / name).unlink(missing_ok=True)
    (checkpoint / name).symlink_to(SHIPPED / name if name != "other" else "/etc")
    with pytest.raises(CheckpointError, match=rf"has a link out of it, {name}"):
        load_model(checkpoint)


def test_a_run_whose_last_checkpoint_is_elsewhere(checkpoint: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "last").symlink_to(checkpoint)
    with pytest.raises(CheckpointError, match=rf"last is a link out of {run}, to {checkpoint}"):
        load_model(run)
    assert find_checkpoint(run / "last") == run / "last"  # given by the user


def test_links_within_it_and_to_it_are_fine(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "copy.md").symlink_to("README.md")
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    checkpoint.rename(tmp_path / "run" / "checkpoints" / "step-1")
    (tmp_path / "run" / "last").symlink_to("checkpoints/step-1")
    (tmp_path / "alias").symlink_to("run")
    load_model(tmp_path / "alias")


def test_another_config(checkpoint: Path) -> None:
    file = checkpoint / "config.json"
    file.write_text(file.read_text().replace("Moving something left", "Moving something back"))
    with pytest.raises(CheckpointError, match=r"config\.json is damaged \(its content has changed"):
        load_model(checkpoint)
