"""The models with their numbers of parameters, as a stored table: counting them takes seconds, and torch.

`python tools/update_model_table.py` writes the table; a test counts every model again.
"""

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".json")


def read_model_table() -> list[dict[str, Any]]:
    """For every model its name, parameters, clip size, classes and a sentence about it."""
    return json.loads(FILE.read_text(encoding="utf-8"))
