"""The exported forms of a tiny checkpoint."""

from tiny_exports import exports

__all__ = ["exports"]
