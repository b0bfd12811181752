"""`fixformer.export` and the command: what is refused, what is written; the program of torch.export."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

import fixformer
from fixformer.cli.app import main
from fixformer.config import ClipSpec
from fixformer.data.clips.transforms import from_frames, normalise, view_crops
from fixformer.errors import InputError, UserError
from fixformer.export.onnx_predict import load_onnx
from tiny_exports import CLIP, Exports, write_checkpoint
from videos import encode, textured


@pytest.mark.parametrize(
    ("to", "out", "words"),
    [
        ("onnx", "m.pt2", "expected a name that ends in .onnx"),
        ("onnx-int8", "m", "such as m.onnx"),
        ("torch", "m.onnx", "expected a name that ends in .pt2"),
        ("hf", ".", "expected a new or empty directory"),
        ("onyx", "m.onnx", "did you mean onnx"),
        ("onnx", "", "expected a path"),
    ],
)
def test_wrong_places_and_formats_are_refused_before_anything_is_loaded(to: str, out: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        fixformer.export("no checkpoint", to=to, out=out)


def test_one_file_is_no_list() -> None:
    with pytest.raises(InputError, match="expected a list of files"):
        fixformer.export("no checkpoint", to="onnx", out="m.onnx", videos="clip.mp4")


@pytest.mark.slow
def test_the_command_writes_int8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without data and videos it compares on generated ones."""
    checkpoint = write_checkpoint(tmp_path / "checkpoint", CLIP)
    path = tmp_path / "new" / "m.onnx"
    main(["export", str(checkpoint), "--to", "onnx-int8", "--out", str(path), "--json"])
    result = json.loads(capsys.readouterr().out)
    assert result["bytes"] == path.stat().st_size
    assert result["quantisation"] in ("dynamic", "static")
    assert result["agreement"]["source"] == "generated videos"
    assert result["agreement"]["same_class"] == result["agreement"]["videos"]
    assert 0 < result["agreement"]["largest_difference"] < 5  # of logits that are 30 apart
    operators = {node.op_type for node in onnx.load(path).graph.node}
    assert operators & {"DynamicQuantizeLinear", "QuantizeLinear"}
    video = tmp_path / "clip.mp4"
    video.write_bytes(encode(textured(2)))
    assert load_onnx(path).predict(video).label == fixformer.load(checkpoint, device="cpu").predict(video).label


@pytest.mark.slow
def test_the_torch_program_is_the_checkpoint(exports: Exports, tmp_path: Path) -> None:
    """For pictures of every shape, and in batches."""
    path = tmp_path / "m.pt2"
    video = tmp_path / "clip.mp4"
    video.write_bytes(encode(textured(2)))
    result = fixformer.export(exports.checkpoint, to="torch", out=path, videos=[video])
    assert result.agreement.largest_difference < 1e-4
    files = {"fixformer.json": ""}
    module = torch.export.load(path, extra_files=files).module()
    assert json.loads(files["fixformer.json"])["views"] == "2x3"
    model = fixformer.load(exports.checkpoint, device="cpu").model
    for height, width in ((50, 80), (90, 50), (50, 50)):  # as kept, so that the first scaling has nothing to do
        frames_BTHWC = np.random.default_rng(0).integers(0, 256, (2, 4, height, width, 3), dtype=np.uint8)
        with torch.no_grad():
            logits_BK = module(torch.from_numpy(frames_BTHWC))
            wanted = model(torch.stack([inputs(clip_THWC, CLIP) for clip_THWC in frames_BTHWC]))
        torch.testing.assert_close(logits_BK, wanted, atol=1e-4, rtol=0)


def inputs(clip_THWC: np.ndarray, spec: ClipSpec) -> torch.Tensor:
    (view,) = view_crops(from_frames(clip_THWC), spec, 1)
    return normalise(view, spec.mean, spec.std)
