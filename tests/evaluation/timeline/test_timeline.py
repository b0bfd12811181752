"""The timeline of a file: its scores are those of `predict`, and its outputs can be read."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fixformer.cli.app import main
from fixformer.data.synthetic.motions import encode, make_clip
from fixformer.errors import UserError
from fixformer.evaluation.predictor import Classifier, load
from fixformer.evaluation.timeline.subtitles import srt, vtt
from fixformer.evaluation.timeline.timeline import Segment
from fixformer.training.run import TrainResult


@pytest.fixture(scope="session")
def classifier(trained: TrainResult) -> Classifier:
    return load(trained.output)


@pytest.fixture(scope="session")
def long_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three scenes, about ten seconds."""
    frames = [scene.render(i) for n in range(3) for scene, _ in [make_clip(n, 0, (32, 40))] for i in range(len(scene))]
    path = tmp_path_factory.mktemp("long") / "long.webm"
    encode(path, frames, 12)
    return path


@pytest.mark.parametrize("views", ["1x1", "2x3"])
def test_scores_are_those_of_predict(classifier: Classifier, long_file: Path, views: str) -> None:
    """Also if the model sees several windows at a time."""
    calls: list[tuple[int, int]] = []
    found = classifier.timeline(
        long_file,
        window=1.5,
        stride=0.4,
        views=views,
        progress=lambda done, total, what=None: calls.append((done, total)),
    )
    assert calls[-1][0] == calls[-1][1] == len(calls)
    for place in (0, 1, len(found.times) // 2, len(found.times) - 1):
        start = found.times[place] - 0.75
        prediction = classifier.predict(long_file, views=views, start=start, end=start + 1.5)
        count = {"1x1": 1, "2x3": 6}[views]  # logits are summed over views
        shares = (prediction.scores_K / count).softmax(-1)
        np.testing.assert_allclose(found.scores_NK[place], shares.numpy(), atol=1e-4)


def test_a_short_video_is_one_window(classifier: Classifier, trained: TrainResult) -> None:
    file = trained.evaluation.videos[0].path
    found = classifier.timeline(file, window=60.0)
    (segment,) = found.segments
    prediction = classifier.predict(file, views="1x1")
    assert (segment.label, segment.start) == (prediction.label, 0)
    assert segment.end == pytest.approx(found.seconds)
    assert segment.certainty == pytest.approx(prediction.guesses[0].probability, abs=1e-4)


def test_what_is_written(classifier: Classifier, long_file: Path, tmp_path: Path) -> None:
    found = classifier.timeline(long_file.read_bytes(), window=1.0)
    names = found.write(tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")} == set(names)
    values = json.loads((tmp_path / "out" / "timeline.json").read_text())
    assert values["segments"][-1]["end"] == pytest.approx(found.seconds)
    assert values["window_from"] == "given"
    with (tmp_path / "out" / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(values["windows"]) == len(found.times)
    assert sum(float(rows[0][label]) for label in classifier.labels) == pytest.approx(1, abs=1e-2)
    with (tmp_path / "out" / "segments.csv").open() as file:
        assert [row["label"] for row in csv.DictReader(file)] == [segment.label for segment in found.segments]
    assert (tmp_path / "out" / "timeline.png").read_bytes().startswith(b"\x89PNG")
    assert len(found.thumbnails) == 12


def test_subtitles_escape_names() -> None:
    segments = [Segment(0.0, 3661.5, "a --> <b> & c\n", 0.876)]
    assert vtt(segments) == ("WEBVTT\n\n00:00:00.000 --> 01:01:01.500\na --&gt; &lt;b&gt; &amp; c\\n (88%)\n")
    assert srt(segments) == "1\n00:00:00,000 --> 01:01:01,500\na --› ‹b› & c\\n (88%)\n"


def test_the_command(trained: TrainResult, long_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["timeline", str(trained.output), str(long_file), "--window", "1.5", "--out", str(tmp_path / "o"), "--json"])
    printed = capsys.readouterr()
    assert json.loads(printed.out)["window"] == 1.5
    assert "timeline.vtt" in printed.err
    main(["timeline", str(trained.output), str(long_file)])
    assert "window 2.00 s" in capsys.readouterr().out


def test_mistakes(classifier: Classifier, long_file: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="stride=0"):
        classifier.timeline(long_file, stride=0)
    with pytest.raises(UserError, match="longer stride"):
        classifier.timeline(long_file, stride=1e-6)
    with pytest.raises(UserError, match="views='3'"):
        classifier.timeline(long_file, views="3")
    (tmp_path / "text.mp4").write_text("not a video")
    with pytest.raises(UserError, match=r"text\.mp4"):
        classifier.timeline(tmp_path / "text.mp4")
    with torch.no_grad():
        bad = Classifier(classifier.model, classifier.info, classifier.device)
        weight = bad.model.head.fc.bias  # type: ignore[union-attr]
        kept = weight.clone()  # type: ignore[operator]
        weight.fill_(float("nan"))  # type: ignore[operator]
        try:
            with pytest.raises(UserError, match="NaN"):
                bad.timeline(long_file, window=5.0, stride=5.0)
        finally:
            weight.copy_(kept)  # type: ignore[operator]
