"""Evaluating a checkpoint: the numbers, what is not scored, and what is refused."""

import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fixformer.config import ClipSpec, DataConfig
from fixformer.config.schema import dump
from fixformer.data.clips.views import file_views
from fixformer.errors import UnknownName, UserError
from fixformer.evaluation.evaluate import data_of, evaluate, write_evaluation
from fixformer.models.checkpoint import CheckpointInfo, load_model, read_info
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
        logits = torch.stack([model(view[None])[0] for view in file_views(video.path, info.clip, 2, 3)])
        shares = logits.softmax(-1).mean(0)
        assert shares[video.predicted].item() == pytest.approx(video.probability, rel=1e-4)
        assert shares.max().item() == pytest.approx(video.probability, rel=1e-4)
        hits += (logits.argmax(-1) == video.label).tolist()
    assert found.metrics.clip_top1 == sum(hits) / len(hits)
    assert len(found.videos) == 12


def test_unreadable_and_missing_videos_are_listed_not_replaced(trained: TrainResult, tmp_path: Path) -> None:
    data = tmp_path / "motions"
    shutil.copytree(trained.config.data.path, data)
    videos = data / "20bn-something-something-v2"
    listed = [row["id"] for row in json.loads((data / "labels" / "validation.json").read_text())]
    (videos / f"{listed[0]}.webm").write_bytes(b"not a video")
    (videos / f"{listed[1]}.webm").unlink()
    found = evaluate(trained.output, data=data, output=tmp_path / "report")
    assert (found.protocol.scored, found.protocol.listed) == (10, 12)
    assert {Path(failure.path).stem for failure in found.failures} == set(listed[:2])
    assert sum(map(sum, found.confusion)) == 10
    assert str(found).startswith("video top-1")
    assert [str(found).count(failure.path) for failure in found.failures] == [1, 1]
    assert str(found.protocol).startswith("motions (ssv2) val | ")
    html = (tmp_path / "report" / "report.html").read_text()
    assert "Not scored: 2 videos" in html
    assert f"{listed[0]}.webm" in html
    assert {path.name for path in (tmp_path / "report").iterdir()} >= {
        "confusion.png",
        "classes.png",
        "evaluation.json",
    }
    assert json.loads((tmp_path / "report" / "evaluation.json").read_text())["protocol"]["scored"] == 10


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
    with pytest.raises(UserError, match="another label set: 'one' is not a label of the checkpoint"):
        evaluate(trained.output, data=tmp_path / "set")


def test_no_checkpoint_and_a_damaged_one(trained: TrainResult, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no checkpoint in it"):
        evaluate(tmp_path)
    with pytest.raises(UserError, match="does not exist"):
        evaluate(tmp_path / "nothing")
    copy = tmp_path / "copy"
    shutil.copytree(trained.output / "last", copy)
    assert replace(read_info(copy), labels=[]) != read_info(copy)
    (copy / "config.json").write_text("{")
    with pytest.raises(UserError, match="damaged"):
        evaluate(copy)
    (copy / "config.json").write_text('{"format": 99}')
    with pytest.raises(UserError, match="format 99"):
        evaluate(copy)


@pytest.mark.parametrize(
    ("where", "value"),
    [((), []), (("model",), "x"), (("model", "settings"), "x"), (("labels",), "x"), (("clip",), "x")],
)
def test_a_config_of_another_type(trained: TrainResult, tmp_path: Path, where: tuple[str, ...], value: object) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(trained.output / "last", copy)
    content = json.loads((copy / "config.json").read_text())
    inner = {"whole": content}
    for name in ("whole", *where)[:-1]:
        inner = inner[name]
    inner[("whole", *where)[-1]] = value
    (copy / "config.json").write_text(json.dumps(inner["whole"] if not where else content))
    with pytest.raises(UserError, match=r"damaged|clip='x'"):
        evaluate(copy)


@pytest.mark.parametrize("size", [0, 5, 1000])
def test_weights_that_are_cut_short(trained: TrainResult, tmp_path: Path, size: int) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(trained.output / "last", copy)
    (copy / "model.safetensors").write_bytes((copy / "model.safetensors").read_bytes()[:size])
    with pytest.raises(UserError, match=r"model\.safetensors is damaged .*another checkpoint"):
        evaluate(copy)


def test_weights_that_are_not_the_models(trained: TrainResult, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(trained.output / "last", copy)
    content = json.loads((copy / "config.json").read_text())
    content["model"]["settings"]["depth"] = 2
    (copy / "config.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"blocks\.1\."):
        evaluate(copy)
    content["model"]["name"] = "fixformer_tni"
    (copy / "config.json").write_text(json.dumps(content))
    with pytest.raises(UnknownName, match="fixformer_tiny"):
        evaluate(copy)


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CheckpointInfo:
    """Of a run whose data was divided by chance."""
    (tmp_path / "plain").mkdir()
    monkeypatch.chdir(tmp_path)
    data = DataConfig(path="plain", kind="folders", split_seed=7, val_fraction=0.4, videos="v", damaged="partial")
    return CheckpointInfo("fixformer_tiny", {}, ClipSpec(), ["a", "b"], recipe={"data": dump(data)})


@pytest.mark.parametrize("spelling", ["plain/", "./plain", "plain/../plain", "absolute"])
def test_another_spelling_of_the_place_is_the_same_data(stored: CheckpointInfo, spelling: str) -> None:
    path = Path("plain").resolve() if spelling == "absolute" else spelling
    assert dump(data_of(stored, path, None, {})) == {**stored.recipe["data"], "path": str(path)}


def test_another_place_keeps_what_does_not_depend_on_it(stored: CheckpointInfo) -> None:
    found = data_of(stored, "elsewhere", None, {"labels": "names.txt"})
    assert (found.split_seed, found.val_fraction, found.damaged) == (7, 0.4, "partial")
    assert (found.kind, found.videos, found.labels) == ("auto", None, "names.txt")
    assert data_of(stored, None, None, {"videos": None}).videos is None


def test_an_evaluation_that_cannot_be_written(trained: TrainResult, tmp_path: Path) -> None:
    (tmp_path / "evaluation.json").mkdir()
    with pytest.raises(UserError, match=r"cannot be written to .*Is a directory"):
        write_evaluation(trained.evaluation, tmp_path)


def test_nothing_scored_is_no_score(trained: TrainResult, tmp_path: Path) -> None:
    data = tmp_path / "motions"
    shutil.copytree(trained.config.data.path, data)
    for row in json.loads((data / "labels" / "validation.json").read_text()):
        (data / "20bn-something-something-v2" / f"{row['id']}.webm").write_bytes(b"not a video")
    with pytest.raises(UserError, match=r"none of the 12 videos of split 'val' can be read.*fixformer check"):
        evaluate(trained.output, data=data)


def test_names_of_classes_are_no_formulas(trained: TrainResult, tmp_path: Path) -> None:
    """And are drawn in any script, without a word about fonts."""
    names = ["pay $0_a_b_$", "a $\\frac$ b", "$", "\u624b", *trained.evaluation.labels[4:]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_evaluation(replace(trained.evaluation, labels=names), tmp_path)
    assert (tmp_path / "confusion.png").stat().st_size > 5000
