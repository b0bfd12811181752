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
    """Ask Linux to kill this process when the thread that started it ends. Not SIGTERM: workers of a run ignore it."""
    assert _LIBC is not None
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


# For `subprocess.Popen(preexec_fn=...)`; None where the system has nothing of the kind.
kill_with_parent: Callable[[], None] | None = None if _LIBC is None else _kill_with_parent


def end_with_parent() -> None:
    """In a worker process of `multiprocessing`: end at once when the parent does."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "for worker processes only"
    if kill_with_parent is None:
        threading.Thread(target=_end_after, args=(parent.join,), daemon=True).start()
        return
    kill_with_parent()
    if os.getppid() != parent.pid:  # it ended before the line above
        os._exit(1)


def _end_after(wait: Callable[[], object]) -> None:
    wait()
    os._exit(1)
