"""Linear classifiers beside a model, and the learning curve."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fixformer.config import ClipSpec
from fixformer.data.listing import Sample
from fixformer.data.loading.reader import DecodingReader
from fixformer.data.synthetic import ridge_scores, standardised_products
from fixformer.data.synthetic.linear_probe import RIDGES
from fixformer.errors import MissingExtra
from fixformer.evaluation import baselines
from fixformer.evaluation.baselines import CurvePoint, compute_baselines, learning_curve, would_more_help
from fixformer.evaluation.charts import learning_chart
from fixformer.evaluation.report import write_report
from fixformer.training.run import TrainResult
from videos import encode

CLIP = ClipSpec(frames=4, size=16)


def blobs(videos: int, spread: float, classes: int = 4, width: int = 300) -> tuple[np.ndarray, np.ndarray]:
    centres = np.random.default_rng(0).normal(size=(classes, width))
    rng = np.random.default_rng(videos)
    y = np.arange(videos) % classes
    return centres[y] + spread * rng.normal(size=(videos, width)), y


def test_leaving_one_out_is_what_the_shortcut_computes() -> None:
    """The regularisation is the one of the smallest error when each video is really left out, refitting every time."""
    x, y = blobs(24, 8.0)
    gram, _ = standardised_products(x, x)
    target, errors = np.eye(4)[y], {}
    scale = np.trace(gram) / len(gram)
    for ridge in RIDGES:
        total = 0.0
        for out in range(len(y)):
            rest = np.delete(np.arange(len(y)), out)
            own = gram[np.ix_(rest, rest)]
            centred = np.trace(own - own.mean(0) - own.mean(0)[:, None] + own.mean()) / len(rest)
            scores = ridge_scores(own, gram[[out]][:, rest], y[rest], 4, ridge * scale / centred)
            total += float(np.square(scores - target[out]).sum())
        errors[ridge] = total
    best = min(errors, key=errors.__getitem__)
    assert RIDGES[0] < best < RIDGES[-1]
    assert np.allclose(ridge_scores(gram, gram, y, 4), ridge_scores(gram, gram, y, 4, best))


def test_equal_features_give_the_largest_class() -> None:
    scores = ridge_scores(np.ones((5, 5)), np.ones((2, 5)), np.array([0, 1, 1, 1, 2]), 3)
    assert scores.argmax(1).tolist() == [1, 1]


def test_more_videos_help_where_they_do() -> None:
    x, y = blobs(64, 9.0)
    x_new, y_new = blobs(401, 9.0)
    curve, lost = learning_curve(*standardised_products(x, x_new), y, y_new, 4, np.random.default_rng(1))
    assert [point.videos for point in curve] == [8, 16, 32, 64]
    assert all(point.low <= point.accuracy <= point.high for point in curve)
    assert curve[-1].accuracy > curve[0].accuracy + 0.1
    assert lost.mean() == pytest.approx(curve[-1].accuracy - curve[-2].accuracy)
    assert would_more_help(curve, lost, "pixels").endswith("more videos would help")


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (np.zeros(500), "is as good: more videos of this kind would help little"),
        (np.array([0.2] * 100 + [0.0] * 100), "loses 10 points: more videos would help"),
        (np.array([1.0, -1.0, 0.2, 0.0]), "loses 5 points: 4 scored videos are too few"),
        (np.full(100, -0.01), "gains 1 point: more videos of this kind would help little"),
    ],
)
def test_one_sentence(lost: np.ndarray, said: str) -> None:
    curve = [CurvePoint(4, 0.5, 0.4, 0.6), CurvePoint(8, 0.6, 0.6, 0.6)]
    assert said in would_more_help(curve, lost, "image features")
    assert "too few" in would_more_help(curve[1:], lost, "image features")


@pytest.fixture(scope="module")
def colours(tmp_path_factory: pytest.TempPathFactory) -> list[Sample]:
    """Red and green clips: pixels suffice."""
    folder, samples = tmp_path_factory.mktemp("colours"), []
    for number in range(16):
        frames = np.random.default_rng(number).integers(0, 100, (4, 16, 16, 3)).astype(np.uint8)
        frames[..., number % 2] += 120
        path = folder / f"{number}.mp4"
        path.write_bytes(encode(frames))
        samples.append(Sample(str(path), number % 2, "train" if number < 10 else "val", path.name))
    return samples


def test_baselines_of_a_small_set(colours: list[Sample]) -> None:
    readers = (DecodingReader(CLIP), DecodingReader(CLIP))
    found = compute_baselines(colours[:10], colours[10:], 2, CLIP, readers)
    assert found is not None
    assert found.pixels == 1.0
    assert (found.train_videos, found.test_videos, found.listed_train) == (10, 6, 10)
    assert found.curve[-1].videos == 10
    assert found == compute_baselines(colours[:10], colours[10:], 2, CLIP, readers)
    first, *_, last = found.lines(0.5)
    assert first.startswith("linear classifier on pixels 100%")
    assert first.endswith("this model 50%")
    assert last == found.more_videos


def test_without_image_weights_and_on_a_large_set(colours: list[Sample], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise MissingExtra("image weights", "pretrained")

    monkeypatch.setattr(baselines, "lite0_weights", missing)
    monkeypatch.setattr(baselines, "MOST_TRAIN", 4)
    broken = [*colours[10:], replace(colours[0], path="nowhere.mp4", split="val")]
    found = compute_baselines(colours[:10], broken, 2, CLIP, (DecodingReader(CLIP), DecodingReader(CLIP)))
    assert found is not None
    assert found.features is None
    assert found.curve_of == "pixels"
    lines = list(found.lines(1.0))
    assert "fixformer[pretrained]" in lines[1]
    assert "4 of 10 training videos and 6 of 7 scored ones" in lines[2]


def test_nothing_readable_gives_no_baselines(colours: list[Sample]) -> None:
    gone = [replace(sample, path="nowhere.mp4") for sample in colours]
    assert compute_baselines(gone[:10], gone[10:], 2, CLIP, (DecodingReader(CLIP), DecodingReader(CLIP))) is None


def test_the_report_shows_them(colours: list[Sample], trained: TrainResult, tmp_path: Path) -> None:
    found = compute_baselines(colours[:10], colours[10:], 2, CLIP, (DecodingReader(CLIP), DecodingReader(CLIP)))
    assert found is not None
    page = write_report(trained.evaluation, tmp_path, baselines=found).read_text()
    assert "What the model adds" in page
    assert found.more_videos in page
    pytest.importorskip("matplotlib")
    assert learning_chart(found).startswith(b"\x89PNG")
