"""Figures are built in one place, of any names, and nothing depends on them."""

import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import fixformer
from fixformer.cli.bench_verbs import _deliver
from fixformer.errors import MissingExtra
from fixformer.runtime.figures import MOST_LETTERS, drawable, new_figure, optional, png_bytes, save_figure


def test_no_other_module_builds_a_figure() -> None:
    package = Path(fixformer.__file__).parent
    words = ("from matplotlib", "savefig")
    users = [file for file in package.rglob("*.py") if any(word in file.read_text() for word in words)]
    assert users == [package / "runtime" / "figures.py"]


def test_panels_and_formats(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure, axes = new_figure(2, 3, size=(6, 4))
    assert axes.shape == (2, 3)
    axes[0, 0].plot([0, 1])
    assert png_bytes(figure).startswith(b"\x89PNG")
    save_figure(figure, tmp_path / "figure.svg")
    assert "<svg" in (tmp_path / "figure.svg").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["figure.svg"]


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"fixformer\[plots\]"):
        new_figure()


NAMES = ["$x^2", "$", r"\$5", "a\nb", "caf\udce9", "\x00\x1b", "👩‍🚀", "日本語", "n" * 255, "_hidden", "<b>", "", " "]


def test_any_name_can_be_drawn(recwarn: pytest.WarningsRecorder) -> None:
    pytest.importorskip("matplotlib")
    figure, axes = new_figure()
    names = [drawable(name) for name in NAMES]
    axes.barh(range(len(names)), range(len(names)))
    axes.set_yticks(range(len(names)), names)
    axes.set_title(drawable("".join(NAMES)))
    png_bytes(figure)
    assert max(map(len, names)) <= MOST_LETTERS + 1
    shown = [text.get_text() for text in axes.get_yticklabels()]
    assert shown[0] == r"\$x^2"
    assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.parametrize(
    "error", [MissingExtra("drawing", "plots"), OSError(28, "No space left"), RuntimeError("font"), ValueError("parse")]
)
def test_a_picture_that_fails_costs_one_line(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    with optional("chart.png"):
        raise error
    said = capsys.readouterr().err
    assert said.startswith("without chart.png: ")
    assert said.count("\n") == 1


def test_a_bug_in_drawing_is_still_a_bug() -> None:
    with pytest.raises(TypeError), optional("chart.png"):
        raise TypeError


def test_every_drawing_is_optional() -> None:
    """A call of a function that saves a figure or returns one stands inside `with optional(...)`."""
    drawing = {"draw_histograms", "plot_figure_1", "_charts", "examples_chart"}
    calls, guarded = [], []
    for file in Path(fixformer.__file__).parent.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        calls += [node for node in ast.walk(tree) if _name(node) in drawing]
        for block in (node for node in ast.walk(tree) if isinstance(node, ast.With)):
            if any(_name(item.context_expr) == "optional" for item in block.items):
                guarded += [node for node in ast.walk(block) if _name(node) in drawing]
    assert len(calls) == len(guarded) == len(drawing)


def test_a_measurement_is_printed_and_written_without_its_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def draw(result: dict[str, Any], path: Path) -> None:
        raise MissingExtra("drawing", "plots")

    _deliver({"seconds": 1}, tmp_path / "bench.json", None, draw)
    out, err = capsys.readouterr()
    assert json.loads(out) == json.loads((tmp_path / "bench.json").read_text()) == {"seconds": 1}
    assert "bench.png" in err


def _name(node: ast.AST) -> str | None:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
