"""Checkpoints of a run: whole, checked, the newest and the best kept."""

import resource
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fixformer.config import TrainConfig
from fixformer.errors import UserError
from fixformer.models.checkpoint import CheckpointInfo, find_checkpoint
from fixformer.training import checkpoint_store as store_module
from fixformer.training.checkpoint_store import CheckpointStore, Snapshot, damage, read_state, read_tensors


def snapshot(step: int) -> Snapshot:
    info = CheckpointInfo(TrainConfig(), ["a", "b"], step=step)
    return Snapshot(info, {"w": torch.full((3,), float(step))}, {"optim.w.step": torch.tensor(step)}, {"step": step})


def scored(step: int, accuracy: float) -> Snapshot:
    """Of an epoch's end, one step an epoch, after its evaluation."""
    plain = snapshot(step)
    info = replace(plain.info, epoch=float(step), metrics={"video_top1": accuracy, "epoch": step})
    return replace(plain, info=info)


def names(store: CheckpointStore) -> list[str]:
    return [path.name for path in store.paths()]


def test_the_newest_and_the_best_stay(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    for step in range(1, 6):
        store.write(snapshot(step), best=step == 2)
    assert names(store) == ["step-00000002", "step-00000004", "step-00000005"]
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
    store = CheckpointStore(tmp_path, keep=3)
    for step in (1, 2):
        store.write(snapshot(step), best=False)
    victim = store.paths()[-1] / file
    content = bytearray(victim.read_bytes())
    if how == "missing":
        victim.unlink()
    else:
        content[len(content) // 2] ^= 4
        victim.write_bytes(content if how == "flipped bit" else content[:-1])
    assert damage(store.paths()[-1])
    good = store.newest_good()
    assert good is not None
    assert good.name == "step-00000001"
    assert "step-00000002 is damaged" in capsys.readouterr().err
    assert names(store) == ["step-00000001"]


def test_the_same_step_may_be_damaged_twice(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    for _ in range(2):
        (store.write(snapshot(1), best=True) / "train.json").unlink()
        assert store.newest_good() is None


def test_nothing_good_is_nothing(tmp_path: Path) -> None:
    assert CheckpointStore(tmp_path, keep=1).newest_good() is None


def test_leftovers_of_a_kill_are_swept(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    store.write(snapshot(1), best=False)
    (store.folder / ".step-00000002.77.tmp").mkdir()
    good = store.newest_good()
    assert good is not None
    assert [path.name for path in store.folder.iterdir()] == [good.name]


def test_a_full_disk_is_reported_and_the_last_good_checkpoint_survives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    store.write(snapshot(1), best=True)

    def full(tensors: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store_module, "save_file", full)
    with pytest.raises(UserError, match=r"No space left on device.*step-00000001.*--resume"):
        store.write(snapshot(2), best=True)
    assert names(store) == ["step-00000001"]
    assert damage(store.paths()[0]) is None
    assert (tmp_path / "last").resolve().name == (tmp_path / "best").resolve().name == "step-00000001"
    assert [path.name for path in store.folder.iterdir()] == ["step-00000001"]


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """safetensors raises an error of its own, not the system's."""
    store = CheckpointStore(tmp_path, keep=1)
    store.write(snapshot(1), best=True)
    large = replace(snapshot(2), weights={"w": torch.zeros(2**20)})
    limit, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, limit[1]))
    try:
        with pytest.raises(UserError, match=r"File too large.*step-00000001.*--resume"):
            store.write(large, best=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert [path.name for path in store.folder.iterdir()] == ["step-00000001"]


def test_links_follow_a_checkpoint_that_was_written_just_before_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path, keep=3)
    store.write(scored(1, 0.5), best=True)
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "replace_symlink", lambda link, target: None)
        store.write(scored(2, 0.75), best=True)
        store.write(scored(3, 0.75), best=False)
    assert (tmp_path / "last").resolve().name == "step-00000001"
    store.newest_good()
    assert (tmp_path / "last").resolve().name == "step-00000003"
    assert (tmp_path / "best").resolve().name == "step-00000002"


def test_links_leave_a_checkpoint_that_was_set_aside(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=3)
    store.write(scored(1, 0.5), best=True)
    victim = store.write(scored(2, 0.75), best=True)
    (victim / "train.json").write_text("")
    store.newest_good()
    assert (tmp_path / "last").resolve().name == (tmp_path / "best").resolve().name == "step-00000001"
    (store.paths()[0] / "train.json").write_text("")
    assert store.newest_good() is None
    assert not (tmp_path / "last").is_symlink()


def test_an_evaluated_state_takes_the_place_of_the_same_step_unscored(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    store.write(scored(1, 0.5), best=True)
    store.write(snapshot(2), best=False)
    path = store.write(scored(2, 0.75), best=True)
    assert store.write(scored(2, 0.75), best=True) == path
    assert names(store) == ["step-00000001", path.name]
    assert store.newest_good() == path
    assert (tmp_path / "last").resolve() == (tmp_path / "best").resolve() == path.resolve()


def test_a_link_that_leads_nowhere_means_the_newest_checkpoint(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    for step in (1, 2, 3):
        store.write(snapshot(step), best=False)
    (tmp_path / "last").resolve().rename(store.folder / "damaged-step-00000003")
    assert find_checkpoint(tmp_path).name == "step-00000002"
