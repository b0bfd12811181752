"""Figures in one style, with matplotlib imported only when one is drawn. Every figure is optional: see `optional`."""

import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from fixformer.errors import MissingExtra
from fixformer.runtime.console import note, printable
from fixformer.runtime.files import replacing

MOST_LETTERS = 60  # of a name in a figure: more would leave no room for what it names


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


@contextmanager
def optional(what: str) -> Iterator[None]:
    """Go on without a figure that cannot be drawn or written, and say so: results never depend on their pictures.

    matplotlib raises these for fonts and texts it cannot draw; without it, `new_figure` raises a `UserError`.
    """
    try:
        yield
    except (RuntimeError, ValueError, OSError) as error:
        note(f"without {what}: {error}")


def drawable(name: str) -> str:
    """A name as text in a figure: any name can be drawn, on one line, and dollar signs do not begin a formula."""
    text = printable(name)
    if len(text) > MOST_LETTERS:  # names that begin alike may end differently
        text = f"{text[: MOST_LETTERS // 2]}…{text[1 - MOST_LETTERS // 2 :]}"
    return text.replace("$", r"\$")


def new_figure(
    rows: int = 1,
    columns: int = 1,
    *,
    size: tuple[float, float] | None = None,
    width_ratios: Sequence[float] | None = None,
    grid: bool = True,
) -> tuple[Any, Any]:
    """A figure and its axes, as `pyplot.subplots` gives them.

    Without pyplot, which would choose a window system and keep every figure alive.

    Args:
        size: (width, height) of the whole figure in inches; 5.0 x 3.6 per panel by default.
        grid: draw grid lines and leave out the frame, as suits a plot of curves but not an image.
    """
    # where the home is read only it uses a temporary directory, and warns of that in two long lines
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("drawing a figure", "plots") from None
    figure = Figure(figsize=size or (5.0 * columns, 3.6 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, width_ratios=width_ratios)
    for panel in figure.axes if grid else ():
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, axes


def distinct_colours() -> tuple[str, ...]:
    """Ten colours that are told apart, also beside each other."""
    # matplotlib's own "tab10", which it names so
    names = ("blue", "orange", "green", "red", "purple", "brown", "pink", "gray", "olive", "cyan")
    return tuple(f"tab:{name}" for name in names)


def patch(colour: Any) -> Any:
    """A filled sample of a colour, for a legend."""
    from matplotlib.patches import Patch

    return Patch(color=colour)


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure atomically, in the format of the path's suffix."""
    with replacing(path) as temporary:
        _render(figure, temporary, path.suffix[1:], dpi=150)


def png_bytes(figure: Any) -> bytes:
    """A figure as a PNG image to embed in a page."""
    buffer = io.BytesIO()
    _render(figure, buffer, "png", dpi=110)
    return buffer.getvalue()


def _render(figure: Any, target: Path | IO[bytes], kind: str, dpi: int) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a name in another script is drawn as boxes
        warnings.filterwarnings("ignore", "constrained_layout not applied")  # long names overlap what is beside them
        figure.savefig(target, format=kind, dpi=dpi)
