"""Whether a tensor is one that code written by hand may take out of torch's sight."""

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.modules import module as torch_module
from torch.utils._python_dispatch import _get_current_dispatch_mode

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
GLOBAL_HOOKS = tuple(f"_global{kind}" for kind in HOOKS)


def is_ordinary(x: Tensor) -> bool:
    """A float32 tensor on a CPU that nobody traces, transforms or observes."""
    return (
        type(x) is Tensor
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and not torch._C._are_functorch_transforms_active()
        and forward_ad._current_level < 0
        and _get_current_dispatch_mode() is None
        and not any(getattr(torch_module, name, None) for name in GLOBAL_HOOKS)
    )
