"""What is shown of a result, complete or not; made from its JSON alone."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from fixformer.experiments.study_report import draw_study, to_markdown
from fixformer.experiments.study_statistics import accuracy, compare, mean_and_error


def score(seed: int, correct: str) -> dict[str, Any]:
    told = {"commit": "abc", "protocol_line": "set val | 8 frames", "minutes": 3.0, "diverged": None}
    return {"seed": seed, "identity": f"k{seed}", "top1": accuracy(correct), "correct": correct, **told}


def row(name: str, texts: list[str], against: list[str] | None = None, **changed: Any) -> dict[str, Any]:
    compared = (
        against
        and texts
        and compare(texts, against, cells=range(50), against="none", paper_difference=2.51, minutes=10)
    )
    means = mean_and_error([accuracy(text) for text in texts]) if texts else {"mean": None, "standard_error": None}
    return {
        **{"name": name, "settings": {}, "recipe": "r", "paper": 64.18, "claim": None, "minutes": 3.0, "diverged": 0},
        **means,
        "seeds": [score(seed, text) for seed, text in enumerate(texts)],
        "comparison": asdict(compared) if compared else None,
        **changed,
    }


@pytest.fixture
def result() -> dict[str, Any]:
    """Three rows: a reference, one that is better, one that is not there yet."""
    low, high = ["1" * 20 + "0" * 30, "1" * 22 + "0" * 28], ["1" * 40 + "0" * 10, "1" * 41 + "0" * 9]
    rows = [row("none", low), row("TS", high, low), row("a|b", [], low, minutes=None)]
    return {
        **{"study": "modules", "about": "shifts", "source": "Table 3", "note": "A note.", "recipe": "r"},
        **{"command": "fixformer ablate modules --data x.csv --seeds 2", "seeds": [0, 1], "split": "test"},
        **{
            "videos": 50,
            "train_videos": 90,
            "classes": 5,
            "cells": None,
            "numerics": 1,
            "machine": "2 cores of a processor",
        },
        **{"complete": False, "failures": {"a|b (seed 0)": "no memory"}, "rows": rows},
    }


def test_markdown(result: dict[str, Any]) -> None:
    text = to_markdown(json.loads(json.dumps(result)))
    lines = text.splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 5
    assert len({line.count("|") for line in table}) == 1
    better = next(line for line in table if line.startswith("| TS"))
    assert "| 81.0 ± 1.0 | 2 | 3.0 | +39.0 |" in better
    assert better.endswith("| 64.18 | +2.51 | agrees |")
    assert "Of the paper's claims here: 1 agrees." in text
    assert "Failed: a|b (seed 0), no memory" in text
    assert "Not complete: 2 of 6 runs are missing." in text
    assert "Top-1 of 50 test videos of 5 classes" in text
    assert "set val | 8 frames" in text
    assert "commit abc" in text
    assert "fixformer ablate modules --data x.csv --seeds 2" in lines
    assert "separation" not in text


def test_what_the_bootstrap_draws_is_told(result: dict[str, Any]) -> None:
    assert "over videos, drawn one by one." in to_markdown(result)
    result["cells"] = [number // 5 for number in range(50)]
    assert "over videos, drawn as 10 cells of one group and class." in to_markdown(result)


def test_divergence_and_bases_are_told(result: dict[str, Any]) -> None:
    result["rows"][1] |= {"diverged": 1, "recipe": "other"}
    text = to_markdown(result)
    assert "81.0 ± 1.0, 1 diverged" in text
    assert "separation" in text


def test_the_figure(result: dict[str, Any], tmp_path: Path) -> None:
    draw_study(result, tmp_path / "study.png")
    assert (tmp_path / "study.png").read_bytes().startswith(b"\x89PNG")
