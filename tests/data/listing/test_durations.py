"""The typical length of the videos of a list."""

from pathlib import Path

import numpy as np
import pytest

from fixformer.data.listing import Sample
from fixformer.data.listing.durations import typical_seconds
from fixformer.data.synthetic.motions import encode


def test_the_median_of_what_can_be_read(tmp_path: Path) -> None:
    for frames in (10, 20, 60):
        pictures = list(np.random.default_rng(0).integers(0, 256, (frames, 32, 32, 3), dtype=np.uint8))
        encode(tmp_path / f"{frames}.webm", pictures, 10)
    (tmp_path / "bad.webm").write_text("not a video")
    samples = [Sample(str(tmp_path / f"{n}.webm"), 0, "train", str(n)) for n in (10, 20, 60, "bad", "missing")]
    assert typical_seconds(samples) == pytest.approx(2.0, abs=0.15)
    assert typical_seconds(samples[3:]) is None
    assert typical_seconds([]) is None
    part = Sample("missing.webm", 0, "train", "part", start=1.0, end=4.5)
    assert typical_seconds([part]) == 3.5
