"""Where a number comes from: the commit of the source tree and the versions of the software."""

import os
import platform
import subprocess
from functools import cache
from pathlib import Path

import av
import torch

import fixformer


@cache
def versions() -> dict[str, str]:
    """Versions of what writes a checkpoint."""
    own = {"fixformer": fixformer.__version__, "python": platform.python_version()}
    return {**own, "torch": torch.__version__, "av": av.__version__}


@cache
def source_commit() -> str:
    """The commit of the checkout this package runs from, "-dirty" if changed; empty if it is not run from its checkout.

    A package installed inside another repository must not report that repository's commit, so the file that is running
    has to be tracked under its own path.
    """
    package = Path(fixformer.__file__).parent
    tracked = _git(package, "ls-files", "--full-name", "--error-unmatch", "__init__.py")
    return _git(package, "describe", "--always", "--dirty") if tracked == "src/fixformer/__init__.py" else ""


def _git(folder: Path, *arguments: str) -> str:
    """The output of a git command in `folder`; empty if it fails or git is not installed."""
    # inside a git hook, GIT_DIR and its like point to the repository of the hook
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], env=environment, capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
