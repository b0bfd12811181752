"""How the threads of libgomp, torch's OpenMP on Linux, wait for each other.

At the end of each parallel section libgomp's threads spin, by default for as long as a processor is theirs. When
another process needs one of the processors, a thread spins while the one it waits for cannot run: with one of two cores
busy, a training step took four times as long. A short spin costs nothing on a quiet machine and half of that on a busy
one; `fixformer bench busy` measures it.
"""

import os
import sys
from collections.abc import MutableMapping

SPIN = "2000"
_NAMES = ("OMP_", "GOMP_", "KMP_")


def limit_spinning(environment: MutableMapping[str, str] = os.environ) -> None:
    """For this process and its children, before torch is loaded; what the user has set about waiting stands."""
    is_set = any(name.startswith("GOMP_") or name == "OMP_WAIT_POLICY" for name in environment)
    if sys.platform == "linux" and not is_set:
        environment["GOMP_SPINCOUNT"] = SPIN


def openmp_settings() -> dict[str, str]:
    """What is in force in this process, by name."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(_NAMES)}
