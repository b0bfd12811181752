"""Cross-validation: every video scored once, by a model that has not seen it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fixformer.data.loading import index_of
from fixformer.errors import UserError
from fixformer.evaluation.evaluate import choose_data, read_evaluation
from fixformer.models.checkpoint import load_model
from fixformer.training.cross_validation import CrossValidation, cross_validate, pool
from tiny_run import TINY
from videos import class_folders, encode, textured

QUICK: dict[str, Any] = {**TINY, "epochs": 1, "eval.views": "1x1"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 videos of 2 classes."""
    return class_folders(tmp_path_factory.mktemp("cv") / "set", {"": 6}, lambda seed: encode(textured(seed, 4)))


def run(data: Path, output: Path, **changed: Any) -> CrossValidation:
    return cross_validate("demo", data=data, output=output, **{"folds": 3, **QUICK, "kind": "auto", **changed})


def test_folds_without_groups(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(folders, tmp_path / "cv")
    videos = sorted(str(path) for path in folders.rglob("*.mp4"))
    assert sorted(video.path for video in result.pooled.videos) == videos
    right = sum(video.label == video.predicted for video in result.pooled.videos)
    assert result.accuracy == pytest.approx(right / 12)
    assert sum(map(sum, result.pooled.confusion)) == 12
    assert len(result.folds) == 3
    low, high = result.interval
    assert low <= result.accuracy <= high
    assert result.groups is None
    assert "no groups are known" in str(result.warning)
    assert "groups.csv" in str(result)
    stored = json.loads((tmp_path / "cv/folds.json").read_text())
    assert stored["folds"] == result.folds
    assert stored["pooled"]["confusion"] == result.pooled.confusion
    page = (tmp_path / "cv/report.html").read_text()
    assert "fold-3/evaluation/report.html" in page
    assert "no groups are known" in page

    # a fold's checkpoint is scored on the videos of its fold, not on those it has learnt
    _, info = load_model(tmp_path / "cv/fold-2")
    index = index_of(choose_data(info, folders, None, {}))
    scored = read_evaluation(tmp_path / "cv/fold-2/evaluation")
    assert [sample.path for sample in index.split("val")] == [video.path for video in scored.videos]

    # resumed: a finished fold stays as it is, one without its score is scored, a lost one is trained again
    first = tmp_path / "cv/fold-1/evaluation/evaluation.json"
    before = first.stat().st_mtime_ns
    (tmp_path / "cv/fold-2/evaluation/evaluation.json").write_text("{")
    shutil.rmtree(tmp_path / "cv/fold-3")
    capsys.readouterr()
    with pytest.raises(UserError, match="already contains a run"):
        run(folders, tmp_path / "cv")
    assert run(folders, tmp_path / "cv", resume=True) == result
    assert first.stat().st_mtime_ns == before
    assert "fold 1 of 3 is finished" in capsys.readouterr().err
    with pytest.raises(UserError, match="another config"):
        run(folders, tmp_path / "cv", resume=True, lr=0.5)


def test_copies_on_both_sides_are_named(folders: Path, tmp_path: Path) -> None:
    """Of each class there are two videos in a fold, so five equal ones are not all in one."""
    root = Path(shutil.copytree(folders, tmp_path / "set"))
    first, *others = sorted(root.rglob("*.mp4"))
    for path in others[:4]:
        shutil.copy(first, path)
    warning = str(run(root, tmp_path / "cv").warning)
    assert "5 of 12 videos look like one in another fold, first " in warning
    assert str(first) in warning


def test_groups_stay_together(folders: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(folders, tmp_path / "set"))
    names = sorted(path.relative_to(root) for path in root.rglob("*.mp4"))
    rows = "".join(f"{name},person {int(name.stem) % 3}\n" for name in names)
    (root / "groups.csv").write_text(f"path,group\n{rows}")
    result = run(root, tmp_path / "cv")
    assert (result.groups, result.warning) == (3, None)
    assert "3 groups kept together" in str(result)
    for number in (1, 2, 3):
        scored = read_evaluation(tmp_path / f"cv/fold-{number}/evaluation")
        assert len({int(Path(video.path).stem) % 3 for video in scored.videos}) == 1


def test_pooling_weighs_folds_by_their_videos(folders: Path, tmp_path: Path) -> None:
    run(folders, tmp_path / "cv")
    parts = [read_evaluation(tmp_path / f"cv/fold-{number}/evaluation") for number in (1, 2, 3)]
    whole = pool(parts)
    counted = sum(whole.confusion[i][i] for i in range(2)) / 12
    assert whole.metrics.video_top1 == pytest.approx(counted)
    assert whole.protocol.scored == 12
    assert pool([whole, whole]).metrics == whole.metrics


def test_refusals(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="folds"):
        run(folders, tmp_path / "cv", folds=1)
    with pytest.raises(UserError, match="use fewer folds"):
        run(folders, tmp_path / "cv", folds=13)
    with pytest.raises(UserError, match="leave one out"):
        run(folders, tmp_path / "cv", fold="1/3")
    with pytest.raises(UserError, match="NUMBER/COUNT"):
        run(folders, tmp_path / "cv", fold="4/3")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="torchrun"):
        run(folders, tmp_path / "cv")
    assert not (tmp_path / "cv").exists()
