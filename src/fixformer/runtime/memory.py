"""How much memory this process takes."""

import ctypes
import gc
import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")


def peak_memory(device: torch.device | None = None) -> int:
    """Bytes: what torch held at most on a GPU, what the process held at most on a CPU."""
    if device is not None and device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return _status("VmHWM")


def resident_memory() -> int:
    """Bytes the process holds now; elsewhere than on Linux, at most so far."""
    return _status("VmRSS")


def reset_peak_memory() -> int:
    """Return free memory to the system, forget the peak so far, and give the bytes that are still held."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)
    with suppress(OSError):  # Linux only; elsewhere the peak of the whole process counts
        Path("/proc/self/clear_refs").write_text("5")
    return resident_memory()


def _status(field: str) -> int:
    """A field of Linux's record of this process, in bytes. Elsewhere the peak so far, which getrusage knows everywhere.

    On Linux getrusage would not do: it counts the process that started this one, until the program was loaded.
    """
    if not STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024
