"""The model in the package is small, is what its card says, and knows the motions it was trained on."""

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

import fixformer
from fixformer.data.synthetic.motions import make_clip, motion_labels
from fixformer.evaluation.predictor import Classifier
from fixformer.models.shipped_model import SHIPPED


def test_it_is_small_and_in_half_precision_on_the_disk_alone() -> None:
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) <= 3_000_000
    stored = load_file(SHIPPED / "model.safetensors")
    assert {value.dtype for value in stored.values()} == {torch.float16}
    loaded = fixformer.load().model.state_dict()
    assert {value.dtype for value in loaded.values()} == {torch.float32}
    assert all(torch.equal(loaded[name], value.float()) for name, value in stored.items())


def test_the_card_says_what_it_knows_and_how_well() -> None:
    card, info = (SHIPPED / "README.md").read_text(), fixformer.load().info
    assert info.labels == motion_labels()
    assert all(f"\n- {label}\n" in card for label in info.labels)
    assert "does not know" in card
    assert f"**{100 * info.metrics['video_top1']:.1f} %** top-1 of {info.metrics['videos']} held-out" in card
    measured = json.loads((Path(__file__).parents[2] / "results" / "shipped_model.json").read_text())["float16"]
    assert info.metrics["video_top1"] == measured["video_top1"] >= 0.9
    assert str(Path.home()) not in (SHIPPED / "config.json").read_text()


def test_it_knows_clips_that_it_has_never_seen() -> None:
    """Of another seed than its own, one of each class. Chance would get one right."""
    classifier: Classifier = fixformer.load()
    right = 0
    for number, label in enumerate(motion_labels()):
        scene, _ = make_clip(number, seed=12345)
        clip = np.stack([scene.render(frame) for frame in range(len(scene))])
        right += classifier.predict(clip, views="1x1").label == label
    assert right >= 9
