"""How much memory this process takes."""

import resource
import sys

import torch

# The system counts in bytes on macOS, in KiB elsewhere.
RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def peak_memory(device: torch.device | None = None) -> int:
    """Bytes: what torch held at most on a GPU, what the process held at most on a CPU."""
    if device is not None and device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT
