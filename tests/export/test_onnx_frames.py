"""The preprocessing of the graph against that of `data/clips`: the same numbers, to the bit."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

from fixformer.config import ClipSpec
from fixformer.data.clips.transforms import from_frames, normalise, resize, view_crops
from fixformer.data.video.scaling import scaled_size
from fixformer.export.onnx_frames import preprocessing

PLAIN = ClipSpec(frames=2, size=32)
SPECS = {
    "crop": PLAIN,
    "margin, off the middle": replace(PLAIN, short_side=45, focus=0.3),
    "no antialias": replace(PLAIN, antialias=False),
    "squeeze": replace(PLAIN, fit="squeeze", short_side=40),
    "squeeze, no antialias": replace(PLAIN, fit="squeeze", antialias=False),
    "colours": replace(PLAIN, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
}
# Height and width: enlarged, reduced, one of each, equal to the clip, odd, hundreds of times as large.
SIZES = ((20, 30), (100, 75), (24, 90), (32, 32), (45, 61), (33, 32), (32, 400), (131, 257), (1080, 67), (17, 1000))


def session(spec: ClipSpec) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(preprocessing(spec).SerializeToString(), providers=["CPUExecutionProvider"])


def noise(height: int, width: int, batch: int = 1) -> np.ndarray:
    rng = np.random.default_rng(height * 1000 + width)
    return rng.integers(0, 256, (batch, 2, height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("name", SPECS)
def test_every_crop_of_every_size_is_equal_to_the_bit(name: str) -> None:
    spec, graph = SPECS[name], session(SPECS[name])
    for height, width in SIZES:
        frames_BTHWC = noise(height, width)
        for number, view in enumerate(view_crops(from_frames(frames_BTHWC[0]), spec, 3)):
            (clip_BCTHW,) = graph.run(None, {"frames": frames_BTHWC, "crop": np.array(number)})
            wanted = normalise(view, spec.mean, spec.std).numpy()
            np.testing.assert_array_equal(clip_BCTHW[0], wanted, f"{height} x {width}, crop {number}")


def test_a_batch_is_its_clips() -> None:
    graph, frames_BTHWC = session(PLAIN), noise(50, 70, batch=3)
    (together,) = graph.run(None, {"frames": frames_BTHWC, "crop": np.array(1)})
    for clip_THWC, wanted in zip(frames_BTHWC, together, strict=True):
        (alone,) = graph.run(None, {"frames": clip_THWC[None], "crop": np.array(1)})
        np.testing.assert_array_equal(alone[0], wanted)


def test_frames_are_first_scaled_as_they_are_kept() -> None:
    """Full-size frames go through both scalings; those that were kept so when they were decoded through the second."""
    spec = replace(PLAIN, keep_short_side=48)
    kept_graph, plain_graph = session(spec), session(PLAIN)
    for height, width in ((96, 131), (131, 96), (30, 40)):
        frames_BTHWC = noise(height, width)
        columns, rows = scaled_size(width, height, 48)
        kept_CTHW = resize(from_frames(frames_BTHWC[0]), rows, columns)
        kept_BTHWC = kept_CTHW.permute(1, 2, 3, 0)[None].contiguous().numpy()
        (wanted,) = plain_graph.run(None, {"frames": kept_BTHWC, "crop": np.array(1)})
        for frames in (frames_BTHWC, kept_BTHWC):
            np.testing.assert_array_equal(kept_graph.run(None, {"frames": frames, "crop": np.array(1)})[0], wanted)
