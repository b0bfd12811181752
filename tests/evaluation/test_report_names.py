"""Reports and pictures of classes and files with any names."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fixformer.evaluation.examples import Example, examples_chart
from fixformer.evaluation.metrics import Metrics
from fixformer.evaluation.predictor import Guess, Prediction
from fixformer.evaluation.report import write_report
from fixformer.evaluation.result import Evaluation, Failure, Mistake, Protocol

NAMES = [
    "$x^2$ $",
    "two\nlines",
    "caf\udce9",
    "\x1b[31mred",
    "<script>x</script>",
    "n" * 255,
    "\u202eltr",
    "👩‍🚀",
]


def evaluation() -> Evaluation:
    protocol = Protocol("\x1b<b>", "p", "val", "m\x1b", 1, "clip", "1x1", "logits", "pyav", 8, 8, 0, "")
    return Evaluation(
        metrics=Metrics(0.5, 0.5, 0.5, 0.5, 0.5),
        protocol=protocol,
        labels=NAMES,
        recall=[0.5] * len(NAMES),
        confusion=np.eye(len(NAMES), dtype=int).tolist(),
        mistakes=[Mistake(name, name, [name]) for name in NAMES],
        failures=[Failure(name, f"{name}: cannot be read") for name in NAMES],
        videos=[],
    )


def test_the_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_report(evaluation(), tmp_path, title=NAMES[4])
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert page.rstrip("\n").replace("\n", "").replace("\u200d", "").isprintable()
    assert r"caf\udce9" in page
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "confusion.png", "classes.png"}


def test_the_text() -> None:
    lines = str(evaluation()).split("\n")
    assert len(lines) == 2 + len(NAMES)
    assert all(line.replace("\u200d", "").isprintable() for line in lines)


def test_the_examples() -> None:
    pytest.importorskip("matplotlib")
    guesses = [Guess(name, 0.3) for name in NAMES[:3]]
    prediction = Prediction("f", "1x1", guesses, torch.zeros(3))
    shown = [Example(prediction, name, np.zeros((2, 8, 8, 3), np.uint8)) for name in NAMES]
    assert examples_chart(shown).startswith(b"\x89PNG")
