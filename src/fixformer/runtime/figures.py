"""Figures in one style, with matplotlib imported only when one is drawn."""

from pathlib import Path
from typing import Any

from fixformer.errors import MissingExtra
from fixformer.runtime.files import replacing


def new_figure(columns: int = 1, width: float = 5.0, height: float = 3.6) -> tuple[Any, Any]:
    """A figure that needs no screen, and its axes."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("drawing a figure", "plots") from None
    figure = Figure(figsize=(width * columns, height), layout="constrained")
    axes = figure.subplots(1, columns)
    for one in axes if columns > 1 else [axes]:
        one.grid(alpha=0.3)
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save_figure(figure: Any, path: Path) -> None:
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150, format=path.suffix[1:])
