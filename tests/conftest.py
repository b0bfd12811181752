"""Where the tests find the shared golden vectors and videos, which are not part of this repository."""

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # the suite runs on several workers


@pytest.fixture(scope="session")
def shared() -> Path:
    """The directory with golden/ and data/: `$FIXFORMER_SHARED`, or `../shared` beside the checkout."""
    default = Path(__file__).resolve().parents[2] / "shared"
    path = Path(os.environ.get("FIXFORMER_SHARED", default))
    if not path.is_dir():
        missing = f"the shared test data is not at {path}; set FIXFORMER_SHARED"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make demo` takes as long as half of the rest; begun last, one worker would wait for it."""
    items.sort(key=lambda item: not item.nodeid.endswith("[README.md-1]"))
