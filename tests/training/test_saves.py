"""Checkpoints of a run: whole, checked, the newest and the best kept."""

from pathlib import Path

import pytest
import torch

from fixformer.checkpoint import CheckpointInfo
from fixformer.config import ClipSpec
from fixformer.errors import UserError
from fixformer.training import saves as saves_module
from fixformer.training.saves import Saves, Snapshot, damage, read_state, read_tensors


def snapshot(step: int) -> Snapshot:
    info = CheckpointInfo("fixformer_tiny", {"num_classes": 2}, ClipSpec(), ["a", "b"], step=step)
    return Snapshot(info, {"w": torch.full((3,), float(step))}, {"optim.w.step": torch.tensor(step)}, {"step": step})


def names(saves: Saves) -> list[str]:
    return [path.name for path in saves.paths()]


def test_the_newest_and_the_best_stay(tmp_path: Path) -> None:
    saves = Saves(tmp_path, keep=2)
    for step in range(1, 6):
        saves.write(snapshot(step), best=step == 2)
    assert names(saves) == ["step-00000002", "step-00000004", "step-00000005"]
    assert (tmp_path / "last").resolve().name == "step-00000005"
    assert (tmp_path / "best").resolve().name == "step-00000002"
    found = read_tensors(tmp_path / "last")
    assert found["saved.w"].tolist() == [5.0] * 3
    assert found["optim.w.step"] == 5
    assert read_state(tmp_path / "last") == {"step": 5}


@pytest.mark.parametrize("file", ["model.safetensors", "train.safetensors", "train.json", "config.json"])
@pytest.mark.parametrize("how", ["flipped bit", "cut short", "missing"])
def test_a_damaged_newest_falls_back_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, how: str
) -> None:
    saves = Saves(tmp_path, keep=3)
    for step in (1, 2):
        saves.write(snapshot(step), best=False)
    victim = saves.paths()[-1] / file
    content = bytearray(victim.read_bytes())
    if how == "missing":
        victim.unlink()
    else:
        content[len(content) // 2] ^= 4
        victim.write_bytes(content if how == "flipped bit" else content[:-1])
    assert damage(saves.paths()[-1])
    good = saves.newest_good()
    assert good is not None
    assert good.name == "step-00000001"
    assert "step-00000002 is damaged" in capsys.readouterr().err
    assert names(saves) == ["step-00000001"]


def test_the_same_step_may_be_damaged_twice(tmp_path: Path) -> None:
    saves = Saves(tmp_path, keep=1)
    for _ in range(2):
        (saves.write(snapshot(1), best=True) / "train.json").unlink()
        assert saves.newest_good() is None


def test_nothing_good_is_nothing(tmp_path: Path) -> None:
    assert Saves(tmp_path, keep=1).newest_good() is None


def test_leftovers_of_a_kill_are_swept(tmp_path: Path) -> None:
    saves = Saves(tmp_path, keep=1)
    saves.write(snapshot(1), best=False)
    (saves.folder / ".step-00000002.77.tmp").mkdir()
    good = saves.newest_good()
    assert good is not None
    assert [path.name for path in saves.folder.iterdir()] == [good.name]


def test_a_full_disk_is_reported_and_the_last_good_checkpoint_survives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves = Saves(tmp_path, keep=1)
    saves.write(snapshot(1), best=True)

    def full(tensors: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saves_module, "save_file", full)
    with pytest.raises(UserError, match=r"No space left on device.*step-00000001.*--resume"):
        saves.write(snapshot(2), best=True)
    assert names(saves) == ["step-00000001"]
    assert damage(saves.paths()[0]) is None
    assert (tmp_path / "last").resolve().name == (tmp_path / "best").resolve().name == "step-00000001"
    assert [path.name for path in saves.folder.iterdir()] == ["step-00000001"]
