"""A program as it looks on a terminal."""

import os
import pty
import sys


def shown_on_a_terminal(program: str) -> str:
    """Everything a Python program prints when its output is a terminal."""
    shown = b""

    def keep(terminal: int) -> bytes:
        nonlocal shown
        data = os.read(terminal, 4096)
        shown += data
        return data

    assert pty.spawn([sys.executable, "-c", program], keep) == 0
    return shown.decode()
