"""Peak memory of this process."""

import resource
import sys

import torch

# ru_maxrss is in bytes on macOS, in KiB elsewhere.
RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def peak_memory(device: torch.device | None = None) -> int:
    """In bytes: of torch's allocations on a GPU, of the whole process on a CPU."""
    if device is not None and device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT
