"""Rows have the labels, probabilities, logits and features that evaluation and prediction give."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

import fixformer
from fixformer.labelling.labeller import Labeller, LabelSettings
from fixformer.models.checkpoint import load_model


def as_rows(paths: list[str]) -> list[dict[str, Any]]:
    part: dict[str, Any] = {"start": None, "end": None, "escaped_cells": False}
    return [{"row": number, "id": path, "path": path, **part, "shop": 7} for number, path in enumerate(paths)]


def settings(checkpoint: str, **changes: Any) -> LabelSettings:
    return LabelSettings(checkpoint, **{"batch_size": 4, "workers": 2, "threads": 2, "device": "cpu", **changes})


@pytest.mark.parametrize(("workers", "threads", "batch_size"), [(0, 1, 1), (1, 2, 5), (3, 2, 64)])
def test_rows_are_those_of_prediction_and_evaluation(
    checkpoint: str, videos: list[str], motions: Path, workers: int, threads: int, batch_size: int
) -> None:
    chosen = settings(checkpoint, workers=workers, threads=threads, batch_size=batch_size, logits=True, features=True)
    with Labeller(chosen, "digest") as labeller:
        found = {row["path"]: row for row in labeller.label_rows(as_rows(videos[:14]))}
        again = list(labeller.label_rows(as_rows(videos[:3])))  # as Ray does, batch after batch
    assert sorted(found) == videos[:14]
    assert {row["path"] for row in again} == set(videos[:3])
    classifier = fixformer.load(checkpoint)
    for path in videos[:14]:
        row, expected = found[path], classifier.predict(path)
        assert (row["status"], row["error"], row["model"], row["shop"]) == ("ok", None, "digest", 7)
        assert row["fixformer"] == fixformer.__version__
        assert row["label"] == expected.label == row["top_labels"][0]
        assert row["top_labels"] == [guess.label for guess in expected.guesses]
        assert row["top_probabilities"] == pytest.approx([guess.probability for guess in expected.guesses], abs=1e-6)
        assert row["probability"] == row["top_probabilities"][0]
        assert torch.tensor(row["logits"]) * 6 == pytest.approx(expected.scores_K, abs=1e-5)  # 2x3 views are summed
        assert torch.tensor(row["features"]) == pytest.approx(classifier.features(path), abs=1e-5)
    scored = {one.path: one for one in fixformer.evaluate(checkpoint, workers=0).videos}
    common = scored.keys() & found.keys()
    assert common
    assert all(found[path]["probability"] == pytest.approx(scored[path].probability, abs=1e-6) for path in common)


def test_batches_are_full_across_videos(checkpoint: str, videos: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    run = Labeller.logits

    def logits(self: Labeller, model: Any, views_BVCTHW: torch.Tensor) -> Any:
        sizes.append(len(views_BVCTHW))
        return run(self, model, views_BVCTHW)

    monkeypatch.setattr(Labeller, "logits", logits)
    paths = [*videos[:5], "nowhere.mp4", *videos[5:10]]
    with Labeller(settings(checkpoint), "") as labeller:
        rows = list(labeller.label_rows(as_rows(paths)))
    assert sorted(sizes) == [2, 4, 4]
    assert sorted(row["row"] for row in rows) == list(range(11))
    assert [row["label"] for row in rows if row["status"] == "missing"] == [None]


def test_scores_that_are_no_numbers(checkpoint: str, videos: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run = Labeller.logits

    def logits(self: Labeller, model: Any, views_BVCTHW: torch.Tensor) -> Any:
        logits_BVK, features = run(self, model, views_BVCTHW)
        logits_BVK = logits_BVK.clone()
        logits_BVK[0, 0, 0] = float("nan")
        return logits_BVK, features

    monkeypatch.setattr(Labeller, "logits", logits)
    with Labeller(settings(checkpoint, workers=0, threads=1), "") as labeller:
        rows = list(labeller.label_rows(as_rows(videos[:4])))
    assert [row["status"] for row in rows] == ["not_finite", "ok", "ok", "ok"]
    assert (rows[0]["label"], rows[0]["probability"]) == (None, None)
    assert rows[0]["seconds"] > 0


def test_nothing_is_left_behind(checkpoint: str, videos: list[str]) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with Labeller(settings(checkpoint), "", load_model(checkpoint)) as labeller:
            pids = [process._process.pid for process in labeller._pool._processes]
            next(labeller.label_rows(as_rows(videos[:20])))  # and the others never
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid or 0, 0)
