"""The memory this process uses, and whether there is enough for more."""

import ctypes
import gc
import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch

from fixformer.errors import OutOfMemory

STATUS, MACHINE = Path("/proc/self/status"), Path("/proc/meminfo")
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def peak_memory(device: torch.device | None = None) -> int:
    """In bytes: of torch's allocations on a GPU, of the whole process on a CPU."""
    if device is not None and device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return _status("VmHWM")


def resident_memory() -> int:
    """In bytes, now; on systems other than Linux, the peak so far."""
    return _status("VmRSS")


def virtual_memory() -> int:
    """Bytes of addresses now, which is what `resource.RLIMIT_AS` limits."""
    return _status("VmSize")


def reset_peak_memory() -> int:
    """Return free memory to the system and reset the peak; gives the resident bytes."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)
    with suppress(OSError):  # Linux only; elsewhere the peak of the whole process counts
        Path("/proc/self/clear_refs").write_text("5")
    return resident_memory()


def free_memory() -> int | None:
    """Bytes that this process could still get without swapping, within the limit of its container; None if unknown."""
    found = []
    with suppress(OSError, StopIteration, ValueError):
        line = next(line for line in MACHINE.read_text().splitlines() if line.startswith("MemAvailable"))
        found.append(int(line.split()[1]) * 1024)
    with suppress(OSError, ValueError):  # "max" is no number: there is no limit
        found.append(int(CONTAINER_LIMIT.read_text()) - resident_memory())
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        found.append(limit - virtual_memory())
    return max(0, min(found)) if found else None


def require_memory(need: float, what: str, advice: str) -> None:
    """Raise an `OutOfMemory` if `what` needs more memory than there is; the system would kill the process silently."""
    free = free_memory()
    if free is not None and need > free:
        raise OutOfMemory(f"{what} need {need / 1e9:,.1f} GB of memory, but {free / 1e9:,.1f} GB are free; {advice}.")


def limit_resource(kind: int, value: int) -> None:
    """Set one of the limits `resource.RLIMIT_*` of this process, as far as it may."""
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def limit_memory(more: int) -> None:
    """Let this process have so many bytes beside those it has; to ask for more is an error, as if there were no more.

    If the system runs out of memory nevertheless, it ends this process rather than another.
    """
    limit_resource(resource.RLIMIT_AS, virtual_memory() + more)
    with suppress(OSError):  # Linux only
        Path("/proc/self/oom_score_adj").write_text("1000")


def _status(field: str) -> int:
    """A field of /proc/self/status in bytes; on systems without it, the peak so far from getrusage.

    On Linux getrusage is not used, because its peak includes the parent process before the program was loaded.
    """
    if not STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024
