"""Where the tests find the golden vectors, which are part of this repository, and the foreign data, which is not.

The foreign data (real videos, annotation files, LSA64, the paper) lies in `../shared` beside the checkout or where
`$FIXFORMER_SHARED` says. Tests that read it are skipped where it is missing; with FIXFORMER_REQUIRE_SHARED=1, as in our
CI, missing data is an error.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

torch.set_num_threads(1)  # the suite runs on several workers

SHARED = Path(os.environ.get("FIXFORMER_SHARED", Path(__file__).resolve().parents[2] / "shared"))
SHARED_PARTS = ("data/videos", "data/annotations", "data/lsa64/index.csv", "paper.tex")
CHROMIUM = "/usr/bin/chromium"  # Debian's; `make test` installs it where it can
NO_CHROMIUM = f"no browser at {CHROMIUM}"
NO_SHARED = f"no shared test data at {SHARED}"


def pytest_configure() -> None:
    missing = [name for name in SHARED_PARTS if not (SHARED / name).exists()]
    if os.environ.get("FIXFORMER_REQUIRE_SHARED") == "1" and missing:
        raise pytest.UsageError(f"{NO_SHARED} ({missing[0]} is missing), and FIXFORMER_REQUIRE_SHARED=1 is set")


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a browser; a test that asks for it is skipped where it is missing, and fails in our CI."""
    if not Path(CHROMIUM).exists():
        assert os.environ.get("FIXFORMER_REQUIRE_SHARED") != "1", NO_CHROMIUM
        pytest.skip(NO_CHROMIUM)
    return CHROMIUM


@pytest.fixture(scope="session")
def golden_dir() -> Path:
    """Outputs of the public reference implementations; see its README.md."""
    return Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def golden_sampling(golden_dir: Path) -> dict[str, Any]:
    """Sampling, crops and learning rates of the released code."""
    return json.loads((golden_dir / "sampling.json").read_text())


@pytest.fixture(scope="session")
def golden_costs(golden_dir: Path) -> list[dict[str, Any]]:
    """Parameters and operations of the full-size reference models, one row each."""
    return json.loads((golden_dir / "cost.json").read_text())["rows"]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The directory with the foreign data; a test that asks for it is skipped where it is missing."""
    if not SHARED.is_dir():
        pytest.skip(NO_SHARED)
    return SHARED


@pytest.fixture(scope="session")
def shared_or_none() -> Path | None:
    """For tests that can do without."""
    return SHARED if SHARED.is_dir() else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make demo` takes as long as half of the rest; begun last, one worker would wait for it."""
    items.sort(key=lambda item: not item.nodeid.endswith("[README.md-1]"))


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for all tests that did not run for lack of foreign data, and one for those of the page."""
    without_browser = [one for one in terminalreporter.stats.get("skipped", []) if NO_CHROMIUM in str(one.longrepr)]
    if without_browser:
        terminalreporter.write_line(f"{len(without_browser)} tests of the page skipped: {NO_CHROMIUM}.")
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if NO_SHARED in str(report.longrepr)]
    if skipped:
        terminalreporter.write_line(
            f"{len(skipped)} tests on foreign videos and data sets skipped: {NO_SHARED}. The checks of the method "
            "do without; set FIXFORMER_SHARED to a directory with data/ and paper.tex to run these as well."
        )
