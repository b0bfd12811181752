"""An exported graph as a classifier: the same answers, without torch, and files that are not what they should be."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from fixformer.errors import UserError
from fixformer.evaluation.predictor import load
from fixformer.export.metadata import KEY, ExportInfo
from fixformer.export.onnx_predict import OnnxClassifier, load_onnx
from tiny_exports import CLIP, LABELS, Exports
from videos import encode, textured

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("video") / "clip.mp4"
    path.write_bytes(encode(textured(3, frames=40)))
    return path


@pytest.mark.parametrize("part", [{}, {"views": "1x1"}, {"views": "3x3"}, {"start": 0.3, "end": 1.1}])
def test_answers_are_those_of_the_checkpoint(exports: Exports, video: Path, part: dict[str, object]) -> None:
    ours, exported = load(exports.checkpoint, device="cpu"), load_onnx(exports.onnx)
    wanted, given = (one.predict(video, top_k=9, **part) for one in (ours, exported))
    assert (given.file, given.views, given.label) == (wanted.file, wanted.views, wanted.label)
    assert [guess.label for guess in given.guesses] == [guess.label for guess in wanted.guesses]
    np.testing.assert_allclose(np.asarray(given.scores_K), wanted.scores_K.numpy(), atol=1e-4)
    assert [guess.probability for guess in given.guesses] == pytest.approx(
        [g.probability for g in wanted.guesses], 1e-4
    )


def test_the_export_says_how_well_it_agrees(exports: Exports) -> None:
    for result in (exports.onnx_result, exports.hf_result):
        assert result.agreement.same_class == result.agreement.videos == 1
        assert result.agreement.largest_difference < 1e-4
        assert "agreement with PyTorch on 1 videos given" in str(result)


def test_the_command_runs_without_torch(exports: Exports, video: Path) -> None:
    code = (
        "import sys; from fixformer.cli.app import main; main(sys.argv[1:]); "
        "sys.exit('torch was imported' if 'torch' in sys.modules else 0)"
    )
    words = [sys.executable, "-c", code, "predict", str(exports.onnx), str(video), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert {guess["label"] for guess in row["top"]} == set(LABELS)


def test_the_graph_takes_full_size_frames_in_batches(exports: Exports) -> None:
    """What a program without this package would do; frames are scaled twice in the graph, nearly as in decoding."""
    import onnxruntime

    session = onnxruntime.InferenceSession(exports.onnx, providers=["CPUExecutionProvider"])
    texts = session.get_modelmeta().custom_metadata_map
    assert json.loads(texts["labels"]) == LABELS
    assert texts["views"] == "2x3"
    assert "short side of 50 pixels" in texts["input"]
    classifier = load_onnx(exports.onnx)
    # stored as RGB: FFmpeg scales the colours of other videos apart from their brightness, and so a little differently
    videos = [encode(textured(seed), codec="ffv1", container="matroska", pixel_format="bgr0") for seed in range(3)]
    full_size = OnnxClassifier(session, replace(classifier.info, clip=replace(CLIP, keep_short_side=None)))
    clips = [next(full_size.clips(video)) for video in videos]
    (logits_BK,) = session.run(None, {"frames": np.stack(clips)})
    for video, logits_K in zip(videos, logits_BK, strict=True):
        np.testing.assert_allclose(logits_K, classifier.logits(video)[0], atol=0.02 * np.ptp(logits_K))


def changed(exports: Exports, folder: Path, **texts: str | None) -> Path:
    """A copy of the graph with other metadata."""
    model = onnx.load(exports.onnx)
    kept = {prop.key: prop.value for prop in model.metadata_props} | texts
    onnx.helper.set_model_props(model, {key: value for key, value in kept.items() if value is not None})
    onnx.save(model, folder / "changed.onnx")
    return folder / "changed.onnx"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "was not made by fixformer export"),
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"format": 1}', "'labels' is missing"),
        ('{"format": 2}', "format 1"),
    ],
)
def test_metadata_of_others_is_refused(exports: Exports, tmp_path: Path, text: str | None, words: str) -> None:
    with pytest.raises(UserError, match=words):
        load_onnx(changed(exports, tmp_path, **{KEY: text}))


@pytest.mark.parametrize("name", ["frames", "size"])
def test_settings_in_metadata_are_checked(exports: Exports, tmp_path: Path, name: str) -> None:
    values = json.loads({p.key: p.value for p in onnx.load(exports.onnx).metadata_props}[KEY])
    values["clip"][name] = 10**9
    with pytest.raises(UserError, match=f"clip.{name}=1000000000"):
        load_onnx(changed(exports, tmp_path, **{KEY: json.dumps(values)}))


@pytest.mark.parametrize("content", [b"", b"text", b"\x80\x04\x95pickle"])
def test_what_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(UserError, match="no ONNX model"):
        load_onnx(path)


def test_weights_in_other_files_are_refused(exports: Exports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if such a file is there: a graph could name any file of the machine."""
    monkeypatch.chdir(tmp_path)
    model = onnx.load(exports.onnx)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=1000)
    assert (tmp_path / "weights.bin").exists()
    with pytest.raises(UserError, match="External data"):
        load_onnx(tmp_path / "m.onnx")


def test_metadata_survives() -> None:
    from fixformer.config import EvalConfig

    info = ExportInfo("fixformer_tiny", ["a", "b"], CLIP, EvalConfig(views="4x3"), "pyav", "partial")
    assert ExportInfo.from_texts(info.to_texts(), "file") == info
