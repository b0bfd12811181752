"""The memory this process uses."""

import ctypes
import gc
import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")


def peak_memory(device: torch.device | None = None) -> int:
    """In bytes: of torch's allocations on a GPU, of the whole process on a CPU."""
    if device is not None and device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return _status("VmHWM")


def resident_memory() -> int:
    """In bytes, now; on systems other than Linux, the peak so far."""
    return _status("VmRSS")


def reset_peak_memory() -> int:
    """Return free memory to the system and reset the peak; gives the resident bytes."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)
    with suppress(OSError):  # Linux only; elsewhere the peak of the whole process counts
        Path("/proc/self/clear_refs").write_text("5")
    return resident_memory()


def _status(field: str) -> int:
    """A field of /proc/self/status in bytes; on systems without it, the peak so far from getrusage.

    On Linux getrusage is not used, because its peak includes the parent process before the program was loaded.
    """
    if not STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024
