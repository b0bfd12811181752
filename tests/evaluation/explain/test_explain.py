"""Explanations of clips: heats that must be where they are, files that can be read, models of all kinds."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fixformer.cli.app import main
from fixformer.config import ClipSpec
from fixformer.data.video import open_video
from fixformer.errors import UserError
from fixformer.evaluation.explain.explaining import explain
from fixformer.evaluation.explain.heat import colours, stretched
from fixformer.evaluation.explain.occlusion import occlude, parse_cells
from fixformer.evaluation.predictor import Classifier, load
from fixformer.models.base import VideoModel
from fixformer.models.registry import create_model
from fixformer.runtime.pictures import encode_png, write_mp4
from fixformer.training.run import TrainResult

CPU = torch.device("cpu")


class CornerModel(VideoModel):
    """Sees nothing but the lower right quarter of the second half of a clip."""

    name = "corner"
    num_classes, num_features = 2, 1

    def forward_features(self, video_BCTHW: Tensor) -> Tensor:
        return video_BCTHW[:, :, 4:, 8:, 8:].mean((1, 2, 3, 4), keepdim=True)

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        x_B1 = features.flatten(1)
        return torch.cat([x_B1, -x_B1], 1)


@pytest.fixture(scope="module")
def classifier(trained: TrainResult) -> Classifier:
    return load(trained.output)


def test_occlusion_finds_what_the_model_sees() -> None:
    drops = occlude(CornerModel(), torch.ones(1, 3, 8, 16, 16), 0, (2, 2, 2))
    expected = torch.zeros(2, 2, 2)
    expected[1, 1, 1] = torch.tensor([1.0, -1.0]).log_softmax(-1)[0] - np.log(0.5)
    torch.testing.assert_close(drops, expected)
    assert parse_cells("4x3x2") == (4, 3, 2)
    with pytest.raises(UserError, match="occlusion='4x4'"):
        parse_cells("4x4")


def test_a_model_without_attention_is_explained_by_occlusion_alone() -> None:
    clip_CTHW = torch.full((3, 8, 16, 16), 255, dtype=torch.uint8)
    found = explain("x", CornerModel(), ClipSpec(frames=8, size=16), ["a", "b"], clip_CTHW, CPU, cells=(2, 2, 2))
    assert found.heat_of == "occlusion"
    assert (found.label, found.table, found.figure, found.correlations) == ("a", [], None, {})
    assert [sentence.startswith("corner has no") or "roll-out" in sentence for sentence in found.notes] == [True] * 3
    assert np.unravel_index(found.gamma_THW.argmax(), found.gamma_THW.shape) >= (4, 8, 8)
    without = explain("x", CornerModel(), ClipSpec(frames=8, size=16), ["a", "b"], clip_CTHW, CPU, cells=None)
    assert without.heat_of == "nothing"
    assert "there is no heat to draw" in without.notes[-1]


def test_a_class_token_model_has_a_table_and_no_roll_out() -> None:
    settings = {"num_frames": 2, "image_size": 32, "embed_dim": 32, "depth": 1, "num_heads": 2}
    model = create_model("timesformer_base", num_classes=2, **settings).eval()
    clip_CTHW = torch.randint(0, 256, (3, 2, 32, 32), dtype=torch.uint8)
    found = explain("x", model, ClipSpec(frames=2, size=32), ["a", "b"], clip_CTHW, CPU, cells=(2, 2, 2))
    assert [row.layer for row in found.table] == ["0.time", "0.space"]
    assert [row.to_softmax for row in found.table] == pytest.approx([0, 0], abs=1e-5)
    assert list(found.heats) == ["occlusion"]


@pytest.mark.parametrize("settings", [{"attention": "mala"}, {"attention": "inline"}, {"kernel": "polar"}], ids=str)
def test_negative_weights_are_measured_and_drawn(settings: dict[str, str], tmp_path: Path) -> None:
    """By their absolute values, and a sentence says so."""
    torch.manual_seed(0)
    sizes = {"num_frames": 4, "image_size": 48, "embed_dim": 32, "depth": 2, "num_heads": 2}
    model = create_model("fixformer_tiny", num_classes=2, local=True, output_gate=True, **sizes, **settings).eval()
    for name, parameter in model.named_parameters():
        if ".qkv." in name:  # large ones, whose weights are far from equal
            torch.nn.init.normal_(parameter)
    clip_CTHW = torch.randint(0, 256, (3, 4, 48, 48), dtype=torch.uint8)
    found = explain("x", model, ClipSpec(frames=4, size=48), ["a", "b"], clip_CTHW, CPU, layers=["0"], cells=(2, 2, 2))
    assert any("negative weights" in note for note in found.notes) == ("attention" in settings)
    assert (found.matrices["0.space"].min() < 0) == ("attention" in settings)
    for row in found.table:
        assert all(0 <= value <= 1 for value in (row.entropy, row.top_tenth, row.to_softmax))
    assert all(np.isfinite(heat).all() for heat in found.heats.values())
    assert set(found.heats) == {"fixation", "roll-out", "occlusion"}
    pytest.importorskip("matplotlib")
    from fixformer.evaluation.explain.sheets import draw_figure_two, draw_sheet

    assert found.figure is not None
    draw_figure_two(tmp_path / "two.png", found.figure, found.frames_THWC)
    draw_sheet(tmp_path / "sheet.png", found.frames_THWC, found.heats)
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("two.png", "sheet.png"))


@pytest.mark.slow
def test_an_explanation_is_of_what_predict_says(classifier: Classifier, trained: TrainResult, tmp_path: Path) -> None:
    file = trained.evaluation.videos[0].path
    found = classifier.explain(file, layers=("0",), occlusion="2x2x2", compare=(str(trained.output),))
    prediction = classifier.predict(file, views="1x1")
    assert (found.label, found.probability) == (prediction.label, pytest.approx(prediction.guesses[0].probability))
    assert found.frames_THWC.shape == (4, 16, 16, 3)
    assert found.gamma_THW.shape == (4, 16, 16)
    assert found.gamma_THW.min() >= 0
    assert found.gamma_THW.max() <= 1
    assert list(found.heats) == ["fixation", "roll-out", "occlusion"]
    assert set(found.matrices) == {"0.space", "0.time"}
    assert found.figure is not None
    np.testing.assert_allclose(found.figure.panels[-1].matrix_NN, found.figure.panels[2].matrix_NN, atol=1e-6)
    assert len(found.overlay_frames()) == 4
    names = found.write(tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")} == set(names)
    assert len(names) == 5
    values = json.loads((tmp_path / "out" / "explanation.json").read_text())
    assert values["figure_2"]["panels"][0]["attention"] == "linear"
    assert np.shape(values["occlusion"]) == (2, 2, 2)
    with pytest.raises(UserError, match="unknown layer '7'"):
        classifier.explain(file, layers=("7",))


@pytest.mark.slow
def test_the_command(trained: TrainResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["explain", str(trained.output), trained.evaluation.videos[0].path]
    main([*words, "--occlusion", "none", "--json", "--out", str(tmp_path / "o")])
    assert json.loads(capsys.readouterr().out)["occlusion"] is None
    main([*words, "--occlusion", "1x2x2"])
    assert "rank correlation of fixation with occlusion" in capsys.readouterr().out


def test_heat() -> None:
    torch.testing.assert_close(stretched(torch.tensor([2.0, 3.0, 4.0])), torch.tensor([0, 0.5, 1]))
    assert stretched(torch.full((2,), 3.0)).tolist() == [0, 0]
    brightness = colours(np.linspace(0, 1, 50)).astype(float) @ np.array([0.299, 0.587, 0.114])
    assert (np.diff(brightness) > 0).all()


def test_pictures_can_be_read(tmp_path: Path) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (5, 24, 33, 3), dtype=np.uint8)
    with open_video(encode_png(frames[0])) as video:
        np.testing.assert_array_equal(video.get_frames([0])[0], frames[0])
    write_mp4(tmp_path / "a.mp4", frames, 4)
    with open_video(tmp_path / "a.mp4") as video:
        assert (len(video), video.info.width, video.info.height, video.info.fps) == (5, 32, 24, 4)
