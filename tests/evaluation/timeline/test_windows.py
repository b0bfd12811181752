"""Windows: where they are, which frames they have, and that each frame is decoded once."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fixformer.config import ClipSpec
from fixformer.data.clips.views import file_views
from fixformer.data.video import Decoder, open_video
from fixformer.data.video.pyav_decoder import PyAVDecoder
from fixformer.errors import UserError
from fixformer.evaluation.timeline import windows as windows_module
from fixformer.evaluation.timeline.frame_models import FromPixels, frame_model
from fixformer.evaluation.timeline.watch import choose_window
from fixformer.evaluation.timeline.windows import WindowFrames, plan_windows, seconds_of, window_starts
from fixformer.models.registry import create_model
from fixformer.training.run import TrainResult

SPEC = ClipSpec(frames=4, size=16, short_side=20, keep_frames=6)
DENSE = ClipSpec(frames=4, size=16, sampling="dense", stride=2)


@pytest.fixture
def video(trained: TrainResult) -> Iterator[Decoder]:
    with open_video(trained.evaluation.videos[0].path) as decoder:
        yield decoder


def test_windows_cover_the_video() -> None:
    assert window_starts(10, 2, 2) == [0, 2, 4, 6, 8]
    assert window_starts(10.5, 2, 2) == [0, 2, 4, 6, 8, 8.5]
    assert window_starts(10.05, 2, 2) == [0, 2, 4, 6, 8]  # too little is left
    assert window_starts(1.5, 2, 0.5) == [0]


@pytest.mark.parametrize("spec", [SPEC, DENSE, replace(SPEC, sampling="uniform", clock="seconds", fps=20.0)])
@pytest.mark.parametrize(("clips", "crops"), [(1, 1), (2, 3)])
def test_windows_are_the_clips_of_their_parts(video: Decoder, spec: ClipSpec, clips: int, crops: int) -> None:
    """Bytes for bytes what reading the part of the file gives, and every frame is asked of the decoder once."""
    model = FromPixels(create_model("fixformer_tiny"), spec, torch.device("cpu"))
    times_F = video.timestamps
    asked: list[int] = []
    get_frames = video.get_frames

    def counting(indices: Sequence[int]) -> np.ndarray:
        asked.extend(indices)
        return get_frames(indices)

    video.get_frames = counting  # type: ignore[method-assign]
    assert isinstance(video, PyAVDecoder)
    plan = plan_windows(video, times_F, spec, 0.5, 0.13, clips)
    found = list(WindowFrames(video, times_F, spec, crops, model).of_each(plan))
    assert len(found) > 5
    for window, kept_VTCHW in found:
        expected = file_views(video._file, spec, clips, crops, start=window.start, end=window.start + 0.5)
        views = torch.stack([(view * 0.5 + 0.5) * 255 for view in expected]).round()
        torch.testing.assert_close(kept_VTCHW.transpose(1, 2).float(), views, rtol=0, atol=0)
    assert len(asked) == len(set(asked))
    assert asked == sorted(asked)


def test_frames_are_kept_only_while_they_are_needed(video: Decoder) -> None:
    model = FromPixels(create_model("fixformer_tiny"), SPEC, torch.device("cpu"))
    times_F = video.timestamps
    frames = WindowFrames(video, times_F, SPEC, 1, model)
    for window, _ in frames.of_each(plan_windows(video, times_F, SPEC, 0.3, 0.1, 1)):
        assert all(number >= window.first for number in frames._kept)
    assert len(frames._kept) == 0


def test_too_much_overlap_is_refused(video: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows_module, "HELD_BYTES", 3 * 16 * 16 * 5)
    model = FromPixels(create_model("fixformer_tiny"), SPEC, torch.device("cpu"))
    times_F = video.timestamps
    with pytest.raises(UserError, match="longer stride"):
        list(WindowFrames(video, times_F, SPEC, 1, model).of_each(plan_windows(video, times_F, SPEC, 1.0, 0.05, 1)))


def test_kept_features_give_the_models_logits() -> None:
    torch.manual_seed(0)
    model = create_model("fixformer_lite", num_classes=5, num_frames=4, image_size=64).eval()
    spec = ClipSpec(frames=4, size=64)
    clip_CTHW = torch.randint(0, 256, (3, 4, 64, 64), dtype=torch.uint8)
    halves = frame_model(model, spec, torch.device("cpu"))
    kept_TS = torch.cat([halves.keep(clip_CTHW[None, :, :3]), halves.keep(clip_CTHW[None, :, 3:])])
    whole = FromPixels(model, spec, torch.device("cpu"))
    expected = whole.logits(whole.keep(clip_CTHW[None]).transpose(0, 1))
    assert not isinstance(halves, FromPixels)
    torch.testing.assert_close(halves.logits(kept_TS.transpose(0, 1)), expected, rtol=1e-4, atol=1e-5)


def test_the_length_of_a_window() -> None:
    assert choose_window(3.0, SPEC, 25.0, 2.5, 60).window == 3.0
    assert choose_window(None, SPEC, 25.0, 2.5, 60).window == 2.5
    chosen = choose_window(None, SPEC, 25.0, None, 60)
    assert (chosen.window, chosen.source, chosen.lengths) == (2.0, "default", [1.2, 1.6, 2.0, 2.4])
    dense = choose_window(None, DENSE, 25.0, 2.5, 60)
    assert (dense.window, dense.lengths) == (0.32, [0.32])
    at_rate = replace(DENSE, fps=10.0)
    assert choose_window(None, at_rate, 25.0, None, 60).window == 0.8
    assert choose_window(None, replace(at_rate, clock="seconds"), 25.0, None, 60).window == 0.8
    assert choose_window(5.0, SPEC, 25.0, None, 2.0).lengths == [1.2, 1.6, 2.0]


def test_length_of_a_video(tmp_path: Path) -> None:
    assert seconds_of(np.array([0.0, 0.5, 1.0])) == 1.5
    assert seconds_of(np.array([0.0])) > 0
