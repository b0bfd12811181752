"""The small model that comes with the package; `tools/make_shipped_model.py` makes it, its README.md describes it."""

from pathlib import Path

SHIPPED = Path(__file__).parent / "shipped"
SHIPPED_ABOUT = "a small model that comes with fixformer and knows 12 generated motions, nothing else"
