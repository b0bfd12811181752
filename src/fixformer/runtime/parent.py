"""Processes that end with their parent, however it ends: a parent that is killed cannot tell them."""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def _kill_with_parent() -> None:
    """Ask Linux to kill this process when the *thread* that started it ends."""
    assert _LIBC is not None
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


# For `subprocess.Popen(preexec_fn=...)` by a thread that waits for the process; None where the system has nothing of
# the kind. Not for workers: they may outlive the thread that started them.
kill_with_parent: Callable[[], None] | None = None if _LIBC is None else _kill_with_parent


def end_with_parent() -> None:
    """In a worker process of `multiprocessing`, whatever its start method: end at once when the parent does."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "for worker processes only"
    threading.Thread(target=_end_after, args=(parent.join,), daemon=True).start()


def _end_after(wait: Callable[[], object]) -> None:
    wait()
    os._exit(1)
