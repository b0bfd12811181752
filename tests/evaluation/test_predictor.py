"""Prediction: the preprocessing and the logits of evaluation, rebuilt from the checkpoint alone."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fixformer.data.loading import index_of
from fixformer.errors import UserError
from fixformer.evaluation.evaluate import evaluate
from fixformer.evaluation.predictor import load, predict
from fixformer.evaluation.scoring import score_split
from fixformer.models.checkpoint import load_model
from fixformer.training.run import TrainResult


@pytest.mark.parametrize("aggregate", ["logits", "probabilities"])
def test_predict_agrees_with_evaluation(trained: TrainResult, tmp_path: Path, aggregate: str) -> None:
    """From a checkpoint that was moved, and that has only its two files."""
    moved = tmp_path / "checkpoint"
    moved.mkdir()
    for name in ("model.safetensors", "config.json"):
        shutil.copy(trained.output / "last" / name, moved / name)
    text = (moved / "config.json").read_text().replace('"aggregate": "logits"', f'"aggregate": "{aggregate}"')
    (moved / "config.json").write_text(text)
    classifier = load(moved)
    found = evaluate(trained.output, aggregate=aggregate, batch_size=1)  # type: ignore[arg-type]
    model, info = load_model(trained.output)
    samples = index_of(trained.config.data).split("val")
    config = replace(info.config.eval, aggregate=aggregate, batch_size=1)  # type: ignore[arg-type]
    scores = score_split(model, samples, info.config.clip, config, trained.config.data)
    scores_of = {samples[i].path: row_K for i, row_K in zip(scores.index_N.tolist(), scores.score_NK, strict=True)}
    for video in found.videos:
        prediction = classifier.predict(video.path)
        torch.testing.assert_close(prediction.scores_K, scores_of[video.path], rtol=0, atol=0)
        assert prediction.label == found.labels[video.predicted]
        assert prediction.guesses[0].probability == pytest.approx(video.probability, rel=1e-5)


def test_guesses_are_sorted_and_add_up(trained: TrainResult) -> None:
    classifier = load(trained.output)
    file = trained.evaluation.videos[0].path
    everything = classifier.predict(file, views="1x1", top_k=100)
    shares = [guess.probability for guess in everything.guesses]
    assert len(shares) == 12
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1, rel=1e-5)
    assert everything.views == "1x1"
    assert [guess.label for guess in classifier.predict(file, views="1x1").guesses] == [
        guess.label for guess in everything.guesses[:5]
    ]
    assert everything.to_json()["top"][0]["label"] == everything.label


def test_bytes_paths_and_parts(trained: TrainResult) -> None:
    classifier = load(trained.output)
    file = Path(trained.evaluation.videos[0].path)
    scores = classifier.predict(file).scores_K
    assert torch.equal(classifier.predict(file.read_bytes()).scores_K, scores)
    assert torch.equal(predict(trained.output, str(file)).scores_K, scores)
    assert not torch.equal(classifier.predict(file, start=0.5, end=0.9).scores_K, scores)


def test_features_are_what_the_last_layer_sees(trained: TrainResult) -> None:
    classifier = load(trained.output)
    file = trained.evaluation.videos[0].path
    features = classifier.features(file, views="1x1")
    logits = classifier.model.head.fc(features)  # type: ignore[union-attr, operator]
    torch.testing.assert_close(logits, classifier.predict(file, views="1x1").scores_K)


def test_mistakes(trained: TrainResult, tmp_path: Path) -> None:
    classifier = load(trained.output)
    file = trained.evaluation.videos[0].path
    with pytest.raises(UserError, match="top_k=0"):
        classifier.predict(file, top_k=0)
    with pytest.raises(UserError, match="views='3'"):
        classifier.predict(file, views="3")
    (tmp_path / "text.mp4").write_text("not a video")
    with pytest.raises(UserError, match=r"text\.mp4"):
        classifier.predict(tmp_path / "text.mp4")
