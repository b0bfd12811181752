"""Where a number comes from: the commit of the source tree and the versions of what ran."""

import platform
import subprocess
from functools import cache
from pathlib import Path

import av
import torch

import fixformer


@cache
def versions() -> dict[str, str]:
    """Of what produced a checkpoint."""
    own = {"fixformer": fixformer.__version__, "python": platform.python_version()}
    return {**own, "torch": torch.__version__, "av": av.__version__}


@cache
def source_commit() -> str:
    """The commit of the source tree, or nothing when there is none."""
    here = Path(__file__).parent
    done = subprocess.run(
        ["git", "-C", str(here), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()
