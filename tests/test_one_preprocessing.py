"""One preprocessing: the same real clips give the same logits by every way there is to ask a model."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from fixformer.cli.app import main
from fixformer.config import DataConfig, EvalConfig
from fixformer.data.listing import Sample
from fixformer.evaluation.predictor import load
from fixformer.evaluation.scoring import score_split
from fixformer.export.onnx_predict import load_onnx
from fixformer.models.checkpoint import load_model
from fixformer.serve.interface import make_app
from fixformer.serve.settings import ServeSettings
from tiny_exports import LABELS, Exports, exports
from videos import encode, textured

__all__ = ["exports"]

pytestmark = pytest.mark.slow

# Square pixels and others, upright and turned, with and without a frame count, 8 and 10 bit.
REAL = (
    "decord/tests__test_data__video_90.mov",
    "decord/tests__test_data__unordered.mov",
    "intel_sample_videos/asl_gestures__again.mkv",
    "mmaction2/tests__data__test.avi",
    "ssv2_dvd/demos__task41__0.webm",
)

Way = Callable[[Exports, list[Path], pytest.CaptureFixture[str]], np.ndarray]
"""Scores `[N, K]` of the files, one view each: logits, or logarithms of probabilities."""


def by_eval(made: Exports, files: list[Path], capsys: pytest.CaptureFixture[str]) -> np.ndarray:
    model, info = load_model(made.checkpoint)
    samples = [Sample(str(file), 0, "test", file.name) for file in files]
    scores = score_split(model, samples, info.config.clip, EvalConfig(views="1x1"), DataConfig(path=".", workers=0))
    assert not scores.problems
    return scores.score_NK.numpy()


def by_python(made: Exports, files: list[Path], capsys: pytest.CaptureFixture[str]) -> np.ndarray:
    classifier = load(made.checkpoint, device="cpu")
    return np.stack([classifier.predict(file, views="1x1").scores_K.numpy() for file in files])


def by_onnx(made: Exports, files: list[Path], capsys: pytest.CaptureFixture[str]) -> np.ndarray:
    classifier = load_onnx(made.onnx)
    return np.stack([np.asarray(classifier.predict(file, views="1x1").scores_K) for file in files])


def by_command(path: Path, files: list[Path], capsys: pytest.CaptureFixture[str]) -> np.ndarray:
    capsys.readouterr()
    main(["predict", str(path), *map(str, files), "--views", "1x1", "--top-k", str(len(LABELS)), "--json"])
    return log_shares([row["top"] for row in json.loads(capsys.readouterr().out)], "probability")


def by_pipeline(made: Exports, files: list[Path], capsys: pytest.CaptureFixture[str]) -> np.ndarray:
    import transformers

    import fixformer.export.hugging_face

    assert fixformer.export.hugging_face
    pipeline = transformers.pipeline("video-classification", str(made.hf), device="cpu")
    return log_shares([pipeline(str(file), top_k=len(LABELS)) for file in files], "score")


def log_shares(rows: list[list[dict[str, float]]], name: str) -> np.ndarray:
    """Logarithms of the probabilities, in the order of the labels."""
    shares = [{str(guess["label"]): guess[name] for guess in row} for row in rows]
    return np.log([[share[label] for label in LABELS] for share in shares])


def by_http(made: Exports, files: list[Path], capsys: pytest.CaptureFixture[str]) -> np.ndarray:
    settings = ServeSettings(checkpoint=str(made.checkpoint))
    with TestClient(make_app(settings), base_url="http://localhost") as client:
        wait_until_ready(client)
        asked = {"views": "1x1", "scores": "true"}
        answers = [client.post("/v1/predict", params=asked, content=file.read_bytes()) for file in files]
    assert [answer.status_code for answer in answers] == [200] * len(files), answers[0].text
    return np.array([answer.json()["scores"] for answer in answers])


def wait_until_ready(client: TestClient) -> None:
    deadline = time.monotonic() + 120
    while client.get("/ready").status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.2)


# One more way is one more row.
WAYS: dict[str, Way] = {
    "eval": by_eval,
    "python": by_python,
    "command line": lambda made, files, capsys: by_command(made.checkpoint, files, capsys),
    "onnx": by_onnx,
    "command line, onnx": lambda made, files, capsys: by_command(made.onnx, files, capsys),
    "hugging face pipeline": by_pipeline,
    "http": by_http,
}


@pytest.fixture(scope="module")
def files(shared_or_none: Path | None, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Real clips, or generated ones where there are none."""
    if shared_or_none is not None:
        return [shared_or_none / "data/videos" / name for name in REAL]
    folder = tmp_path_factory.mktemp("clips")
    for number, rotation in enumerate((0, 90, 180)):
        (folder / f"{number}.mp4").write_bytes(encode(textured(number), rotation=rotation))
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def expected(exports: Exports, files: list[Path]) -> np.ndarray:
    """By the definition: the functions of `data/clips` and the model, step by step."""
    from fixformer.data.clips.frames import open_frames
    from fixformer.data.clips.transforms import normalise
    from fixformer.data.clips.views import make_view_bytes

    model, info = load_model(exports.checkpoint)
    spec, rows = info.config.clip, []
    for file in files:
        with open_frames(str(file), spec) as frames, torch.no_grad():
            rows.append(model(normalise(make_view_bytes(frames, spec, 1, 1), spec.mean, spec.std))[0].numpy())
    return np.stack(rows)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_the_same_logits(
    way: str, exports: Exports, files: list[Path], expected: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = WAYS[way](exports, files, capsys)
    assert np.ptp(expected, axis=1).min() > 0.5  # answers that could differ
    assert len({row.argmax() for row in expected}) > 1 or np.ptp(expected, axis=0).max() > 0.1  # and do, between videos
    # probabilities know logits up to a constant
    np.testing.assert_allclose(centred(scores), centred(expected), atol=1e-4, rtol=0)


def centred(scores_NK: np.ndarray) -> np.ndarray:
    return scores_NK - scores_NK.mean(1, keepdims=True)
