"""Small and odd sets through the whole of training: a score or one sentence, never a traceback."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixformer.errors import UserError
from fixformer.training.checkpoint_store import CheckpointStore
from fixformer.training.run import TrainResult, plan, train
from tiny_run import TINY, loss_trace
from videos import encode, jpeg, textured

Start = Callable[..., TrainResult]
SMALL: dict[str, Any] = {**TINY, "epochs": 1, "eval.views": "1x1", "kind": "auto", "batch_size": 2}


@pytest.fixture
def start(tmp_path: Path) -> Start:
    def run(**changed: Any) -> TrainResult:
        return train("demo", data=tmp_path / "set", output=tmp_path / "run", **{**SMALL, **changed})

    return run


def add(folder: Path, videos: int, frames: int = 6) -> None:
    folder.mkdir(parents=True)
    for number in range(videos):
        (folder / f"{number}.mp4").write_bytes(encode(textured(100 * ord(folder.name[0]) + number, frames)))


def test_three_videos_a_class(tmp_path: Path, start: Start) -> None:
    for name in ("a", "b"):
        add(tmp_path / "set" / name, 3)
    result = start(**{"eval.baselines": True})
    assert result.evaluation.protocol.scored == 2
    assert "not better than chance" in str(result)  # two videos prove nothing
    assert result.baselines is not None
    assert result.baselines.train_videos == 4
    assert "linear classifier on pixels" in str(result)
    assert (tmp_path / "run/evaluation/baselines.json").is_file()
    page = (tmp_path / "run/evaluation/report.html").read_text()
    assert "not better than chance" in page
    assert "Would more videos help?" in page


def test_a_batch_is_chosen_that_a_few_videos_fill(tmp_path: Path) -> None:
    for name in ("a", "b"):
        add(tmp_path / "set" / name, 3)
    settings: dict[str, Any] = {"output": tmp_path / "run", "minutes": 0.5, "size": 32, "frames": 4}
    assert plan(tmp_path / "set", **settings).config["batch_size"] == 2
    with pytest.raises(UserError, match="batch_size=8 is larger than the training set of 4 videos"):
        plan(tmp_path / "set", **settings, batch_size=8)


def test_one_class_of_3_and_one_of_30(tmp_path: Path, start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    add(tmp_path / "set/rare", 3)
    add(tmp_path / "set/common", 30)
    result = start(balance="classes")
    assert result.evaluation.protocol.scored == 7
    assert result.steps == 13  # 26 training videos in batches of 2, as without balance
    notes = capsys.readouterr().err
    assert "each of the 2 classes is drawn 13 times an epoch; the 2 training videos of 'rare' 6.5 times each" in notes
    again = start(balance="classes", resume=True)
    assert again.evaluation == result.evaluation


def test_a_balanced_run_resumes_exactly(tmp_path: Path, start: Start) -> None:
    add(tmp_path / "set/rare", 3)
    add(tmp_path / "set/common", 8)
    settings: dict[str, Any] = {"balance": "classes", "save.steps": 1, "save.keep": 100, "epochs": 2}
    whole = start(**settings)
    losses = loss_trace(tmp_path / "run")
    assert len(losses) == whole.steps == 8
    for path in CheckpointStore(tmp_path / "run", 100).paths()[3:]:  # from the middle of the first epoch
        shutil.rmtree(path)
    again = start(**settings, resume=True)
    assert loss_trace(tmp_path / "run") == losses
    assert again.evaluation.videos == whole.evaluation.videos


@pytest.mark.slow
def test_200_classes_of_two_videos(tmp_path: Path, start: Start) -> None:
    for label in range(200):
        folder = tmp_path / "set" / f"class {label:03}"
        folder.mkdir(parents=True)
        for number in range(2):
            frames = np.full((8, 16, 16, 3), label, np.uint8)
            frames[:, :, : 4 + 2 * number, label % 3] = 255 - label
            (folder / f"{number}.mp4").write_bytes(encode(frames, options={"preset": "ultrafast"}))
    result = start(batch_size=20, balance="classes")
    assert result.evaluation.protocol.scored == 200
    assert len(result.evaluation.labels) == 200


def test_videos_of_04_seconds_and_of_a_minute(tmp_path: Path, start: Start) -> None:
    for name in ("a", "b"):
        add(tmp_path / "set" / name, 2, frames=10)
        long = np.resize(textured(7, 30)[:, ::4, ::4], (1500, 24, 32, 3))
        (tmp_path / "set" / name / "long.mp4").write_bytes(encode(long, options={"preset": "ultrafast"}))
    result = start(**{"eval.baselines": True, "frames": 8})
    assert result.evaluation.protocol.scored == 2
    assert result.baselines is not None


def test_folders_of_images(tmp_path: Path, start: Start) -> None:
    for name in ("a", "b"):
        for number in range(3):
            folder = tmp_path / "set" / name / f"video {number}"
            folder.mkdir(parents=True)
            for frame, picture in enumerate(textured(number, 5)):
                (folder / f"{frame:05}.jpg").write_bytes(jpeg(picture))
    result = start(**{"eval.baselines": True})
    assert result.evaluation.protocol.scored == 2
    assert result.baselines is not None
    assert result.baselines.test_videos == 2
