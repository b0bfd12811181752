"""pyarrow, imported where a table is read or written."""

from typing import Any

from fixformer.errors import MissingExtra


def import_arrow() -> Any:
    """pyarrow, with `pyarrow.parquet` in it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("labelling a corpus (fixformer label)", "label") from None
    return pyarrow
