"""`fixformer eval` and `fixformer predict` with a checkpoint: settings of the data, status, who prints."""

import json
from pathlib import Path

import pytest

from fixformer.cli.app import main
from fixformer.training.run import TrainResult


def test_settings_of_the_data_reach_the_evaluation(trained: TrainResult, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["eval", str(trained.output), "recording_set=1"])
    assert stopped.value.code == 1
    assert "recording_set=1 " in capsys.readouterr().err


def test_one_process_of_many_speaks(
    trained: TrainResult, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    main(["eval", str(trained.output), "--views", "1x1", "--json"])
    assert json.loads(capfd.readouterr().out)["protocol"]["views"] == "1x1"
    monkeypatch.setenv("RANK", "1")
    main(["eval", str(trained.output), "--views", "1x1", "--json"])
    assert capfd.readouterr() == ("", "")


def test_a_file_that_is_no_video_is_status_1(
    trained: TrainResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And does not keep the others from being classified."""
    (tmp_path / "text.mp4").write_text("not a video")
    good = trained.evaluation.videos[0].path
    with pytest.raises(SystemExit) as stopped:
        main(["predict", str(trained.output), good, str(tmp_path / "text.mp4"), good])
    assert stopped.value.code == 1
    told = capsys.readouterr()
    assert told.err.count("\n") == 1
    assert told.out.count(f"{good} (2x3 views)") == 2
