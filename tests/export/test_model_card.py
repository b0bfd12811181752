"""The card of a shared model: what it says, and that names in it stay text."""

import json
from typing import Any

from fixformer.config import ClipSpec
from fixformer.config.schema import dump
from fixformer.export.model_card import model_card

TOLD = {
    "recipe": "demo",
    "data": "motions",
    "versions": {"fixformer": "1.0"},
    "commit": "abc",
    "step": 7,
    "protocol": "motions val | 8 frames | 1 clips x 1 crops",
    "metrics": {"video_top1": 0.905, "video_top5": 1.0},
}


def card(labels: list[str], about: dict[str, Any]) -> str:
    labelled = dict(enumerate(labels))
    return model_card({"model_name": "fixformer_tiny", "clip": dump(ClipSpec()), "id2label": labelled, "about": about})


def test_a_score_comes_with_its_protocol() -> None:
    text = card(["a", "b"], TOLD)
    assert "Top-1 90.5 %, top-5 100.0 %.\n\n`motions val | 8 frames | 1 clips x 1 crops`" in text
    assert "data set motions by the recipe demo" in text
    assert "16 frames (the middle of as many equal segments of the video) at 224 x 224 pixels" in text
    head = dict(line.split(": ", 1) for line in text.split("---\n")[1].splitlines())
    (entry,) = json.loads(head["model-index"])
    assert entry["results"][0]["metrics"][0]["value"] == 0.905


def test_no_score_is_made_up() -> None:
    text = card(["a", "b"], {"step": 0, "commit": ""})
    assert "No evaluation came with this checkpoint." in text
    assert "Top-1" not in text
    assert "model-index" not in text


def test_names_cannot_change_the_page() -> None:
    text = card(
        ["<script>x</script>", "[click](http://x)", "a\n---\nlicense: mit", "`b`"], {**TOLD, "data": "x\nlicense: y"}
    )
    assert "<script>" not in text
    assert "[click](" not in text
    assert "\nlicense:" not in text
