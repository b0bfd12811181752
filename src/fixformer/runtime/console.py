"""Results on stdout: tables for people, JSON for programs."""

import json
import sys
from typing import Any

from rich.console import Console


def console() -> Console:
    """A console on stdout; without a terminal it is 140 columns wide, so that tables are not cut to 80."""
    return Console(width=None if sys.stdout.isatty() else 140, highlight=False)


def print_json(value: Any) -> None:
    """NaN is a bug: it is no JSON, so whatever may hold one decides itself what to print."""
    print(json.dumps(value, indent=1, allow_nan=False))
