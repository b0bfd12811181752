"""Evaluating a checkpoint: the numbers, what is not scored, and what is refused."""

import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fixformer.config import DataConfig, TrainConfig
from fixformer.data.clips.views import file_views
from fixformer.errors import UserError
from fixformer.evaluation.charts import training_chart
from fixformer.evaluation.evaluate import choose_data, evaluate, write_evaluation
from fixformer.evaluation.result import name_of_set
from fixformer.models.checkpoint import CheckpointInfo, load_model
from fixformer.training.run import TrainResult


def test_it_repeats_the_score_of_the_run(trained: TrainResult) -> None:
    again = evaluate(trained.output)
    assert again.metrics == trained.evaluation.metrics
    assert again.protocol == trained.evaluation.protocol
    assert again.protocol.views == "2x3"


def test_scores_are_those_of_the_views_one_by_one(trained: TrainResult) -> None:
    found = evaluate(trained.output, views="2x3", aggregate="probabilities", batch_size=5)
    model, info = load_model(trained.output)
    hits = []
    for video in found.videos:
        logits = torch.stack([model(view[None])[0] for view in file_views(video.path, info.config.clip, 2, 3)])
        shares = logits.softmax(-1).mean(0)
        assert shares[video.predicted].item() == pytest.approx(video.probability, rel=1e-4)
        assert shares.max().item() == pytest.approx(video.probability, rel=1e-4)
        hits += (logits.argmax(-1) == video.label).tolist()
    assert found.metrics.clip_top1 == sum(hits) / len(hits)
    assert len(found.videos) == 12


def validation_files(data: Path) -> list[Path]:
    rows = json.loads((data / "labels" / "validation.json").read_text())
    return [data / "20bn-something-something-v2" / f"{row['id']}.webm" for row in rows]


def test_unreadable_and_missing_videos_are_listed_not_replaced(
    trained: TrainResult, copied_data: Path, tmp_path: Path
) -> None:
    unreadable, missing, *_ = validation_files(copied_data)
    unreadable.write_bytes(b"not a video")
    missing.unlink()
    found = evaluate(trained.output, data=copied_data, output=tmp_path / "report")
    assert (found.protocol.scored, found.protocol.listed) == (10, 12)
    assert {Path(failure.path).stem for failure in found.failures} == {unreadable.stem, missing.stem}
    assert sum(map(sum, found.confusion)) == 10
    assert str(found).startswith("video top-1")
    assert [str(found).count(failure.path) for failure in found.failures] == [1, 1]
    assert str(found.protocol).startswith("motions (ssv2) val | ")
    html = (tmp_path / "report" / "report.html").read_text()
    assert "Not scored: 2 videos" in html
    assert unreadable.name in html
    assert {path.name for path in (tmp_path / "report").iterdir()} >= {
        "confusion.png",
        "classes.png",
        "evaluation.json",
    }
    assert json.loads((tmp_path / "report" / "evaluation.json").read_text())["protocol"]["scored"] == 10


@pytest.fixture
def named(trained: TrainResult, copied_data: Path, tmp_path: Path) -> Path:
    """The validation videos in folders named after their labels, of all classes but the last, and a list of all."""
    (tmp_path / "names.txt").write_text("\n".join(trained.evaluation.labels))
    for video in trained.evaluation.videos:
        if video.label < len(trained.evaluation.labels) - 1:
            folder = tmp_path / "some classes" / "val" / trained.evaluation.labels[video.label]
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(video.path, folder)
    return tmp_path


def test_data_of_some_classes_needs_the_labels_of_all(trained: TrainResult, named: Path) -> None:
    """In folders as in a table."""
    folders, table, labels = named / "some classes", named / "some.csv", trained.evaluation.labels
    with pytest.raises(UserError, match=rf"{labels[-1]!r}.*12 .* 11 .*labels=FILE"):
        evaluate(trained.output, data=folders)
    files = sorted(folders.rglob("*.webm"))
    table.write_text("path,label,split\n" + "".join(f'{file},"{file.parent.name}",val\n' for file in files))
    found = [evaluate(trained.output, data=data, labels=str(named / "names.txt")) for data in (folders, table)]
    assert found[0].metrics == found[1].metrics
    assert [one.protocol.dataset for one in found] == ["some classes (folders)", f"{named.name}/some.csv (csv)"]
    scores = {Path(video.path).name: video.probability for video in trained.evaluation.videos}
    for video in found[0].videos:
        assert video.probability == pytest.approx(scores[Path(video.path).name], rel=1e-4)


def test_elsewhere_the_error_says_where_the_data_was_looked_for(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = json.loads((copied / "config.json").read_text())
    content["config"]["data"]["path"] = "videos/motions"
    (copied / "config.json").write_text(json.dumps(content))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=rf"'videos/motions'.*{tmp_path}/videos/motions.*--data"):
        evaluate(copied)


def test_a_set_is_called_as_its_user_calls_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("videos/train", "lsa64"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("videos/list.csv", "lsa64/index.csv"):
        (tmp_path / file).write_text("")
    monkeypatch.chdir(tmp_path / "videos")
    assert name_of_set(".", "folders") == name_of_set("../videos/", "folders") == "videos (folders)"
    assert name_of_set("list.csv", "csv") == "videos/list.csv (csv)"
    assert name_of_set("train/..", "folders") == "videos (folders)"
    assert name_of_set("../lsa64", "lsa64") == name_of_set("../lsa64/index.csv", "lsa64") == "lsa64"
    assert name_of_set("/", "folders") == "folders"


def test_the_protocol_is_complete(trained: TrainResult) -> None:
    line = str(trained.evaluation.protocol)
    for part in (
        "motions (ssv2) val",
        "4 frames x uniform @ 16",
        "2 clips x 3 crops",
        "pyav",
        "12/12 videos scored",
        "seed 0",
    ):
        assert part in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"views": "0x3"}, ["views='0x3'", "2x3"]),
        ({"split": "train2"}, ["train2", "val"]),
        ({"data": "no/such/place"}, ["no/such/place"]),
        ({"batch_size": 0}, ["batch_size=0"]),
        ({"workers": 1025}, ["workers=1025", "1024"]),
        ({"progress": 5}, ["progress=5", "a function"]),
        ({"kindd": "csv"}, ["kindd", "kind"]),
        ({"device": "tpu"}, ["'tpu'"]),
        ({"device": "meta"}, ["device='meta'", "cpu"]),
    ],
)
def test_mistakes(trained: TrainResult, arguments: dict[str, object], words: list[str]) -> None:
    with pytest.raises(UserError) as raised:
        evaluate(trained.output, **arguments)  # type: ignore[arg-type]
    assert all(word in str(raised.value) for word in words), raised.value


def test_another_label_set_is_refused(trained: TrainResult, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / "set" / "val" / name).mkdir(parents=True)
        source = next(Path(trained.config.data.path).rglob("*.webm"))
        shutil.copy(source, tmp_path / "set" / "val" / name / "a.webm")
    with pytest.raises(UserError, match=r"'one' is not a label of the checkpoint \(12 .* 2 "):
        evaluate(trained.output, data=tmp_path / "set")


def test_a_directory_without_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"test_a_directory.* no checkpoint.*model\.safetensors"):
        evaluate(tmp_path)
    with pytest.raises(UserError, match=r"nothing does not exist"):
        evaluate(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "damaged"),
        ("[]", "damaged"),
        ('{"format": 99}', "format 99"),
        ('{"format": 2}', r"damaged \('metrics'"),
    ],
)
def test_a_damaged_config(copied: Path, text: str, words: str) -> None:
    (copied / "config.json").write_text(text)
    with pytest.raises(UserError, match=rf"copy/config\.json .*{words}"):
        evaluate(copied)


@pytest.mark.parametrize(
    "where", [("config",), ("config", "model"), ("config", "model_settings"), ("config", "clip"), ("labels",)]
)
def test_a_config_of_another_type(copied: Path, where: tuple[str, ...]) -> None:
    content = json.loads((copied / "config.json").read_text())
    inner = content
    for name in where[:-1]:
        inner = inner[name]
    inner[where[-1]] = 7
    (copied / "config.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"copy/config\.json is damaged"):
        evaluate(copied)


@pytest.mark.parametrize("size", [0, 5, 1000])
def test_weights_that_are_cut_short(copied: Path, size: int) -> None:
    (copied / "model.safetensors").write_bytes((copied / "model.safetensors").read_bytes()[:size])
    with pytest.raises(UserError, match=r"model\.safetensors is damaged "):
        evaluate(copied)


def test_weights_that_are_not_the_models(copied: Path) -> None:
    content = json.loads((copied / "config.json").read_text())
    content["config"]["model_settings"]["depth"] = 2
    (copied / "config.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"blocks\.1\."):
        evaluate(copied)
    content["config"]["model"] = "fixformer_tni"
    (copied / "config.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"'fixformer_tni'.*fixformer_tiny"):
        evaluate(copied)


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CheckpointInfo:
    """Of a run whose data was divided by chance."""
    (tmp_path / "plain").mkdir()
    monkeypatch.chdir(tmp_path)
    data = DataConfig(path="plain", kind="folders", split_seed=7, val_fraction=0.4, videos="v", damaged="partial")
    return CheckpointInfo(TrainConfig(data=data), ["a", "b"])


@pytest.mark.parametrize("spelling", ["plain/", "./plain", "plain/../plain", "absolute"])
def test_another_spelling_of_the_place_is_the_same_data(stored: CheckpointInfo, spelling: str) -> None:
    path = Path("plain").resolve() if spelling == "absolute" else spelling
    assert choose_data(stored, path, None, {}) == replace(stored.config.data, path=str(path))


def test_another_place_keeps_what_does_not_depend_on_it(stored: CheckpointInfo) -> None:
    found = choose_data(stored, "elsewhere", None, {"labels": "names.txt"})
    assert (found.split_seed, found.val_fraction, found.damaged) == (7, 0.4, "partial")
    assert (found.kind, found.videos, found.labels) == ("auto", None, "names.txt")
    assert choose_data(stored, None, None, {"videos": None}).videos is None


def test_a_checkpoint_that_no_run_made_needs_data() -> None:
    with pytest.raises(UserError, match="--data"):
        choose_data(CheckpointInfo(TrainConfig(), ["a"]), None, None, {})
    assert choose_data(CheckpointInfo(TrainConfig(), ["a"]), "elsewhere", 3, {}) == DataConfig("elsewhere", workers=3)


def test_an_evaluation_that_cannot_be_written(trained: TrainResult, tmp_path: Path) -> None:
    (tmp_path / "evaluation.json").mkdir()
    with pytest.raises(UserError, match=rf"{tmp_path}/evaluation\.json: Is a directory"):
        write_evaluation(trained.evaluation, tmp_path)


def test_nothing_scored_is_no_score(trained: TrainResult, copied_data: Path) -> None:
    for file in validation_files(copied_data):
        file.write_bytes(b"not a video")
    with pytest.raises(UserError, match=r"12 videos of split 'val'.*fixformer check"):
        evaluate(trained.output, data=copied_data)


def test_names_of_classes_are_no_formulas(trained: TrainResult, tmp_path: Path) -> None:
    """And are drawn in any script, without a word about fonts."""
    names = ["pay $0_a_b_$", "a $\\frac$ b", "$", "\u624b", *trained.evaluation.labels[4:]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_evaluation(replace(trained.evaluation, labels=names), tmp_path)
    assert (tmp_path / "confusion.png").stat().st_size > 5000


def test_damaged_rows_of_a_log_are_not_drawn() -> None:
    good = {"kind": "step", "step": 1, "epoch": 0.5, "loss": 0.7, "lr": 0.1}
    score = {"kind": "eval", "step": 1, "epoch": 1.0, "video_top1": 0.5}
    assert training_chart([good, {**good, "loss": {}}, score, {**score, "video_top1": "x"}])
