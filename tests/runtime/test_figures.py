"""Figures are built in one place."""

import sys
from pathlib import Path

import pytest

import fixformer
from fixformer.errors import MissingExtra
from fixformer.runtime.figures import new_figure, png_bytes, save_figure


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
