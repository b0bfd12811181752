"""One process or many: this process's rank, and the few messages processes exchange.

Under torchrun every process reads its rank from the environment; `train` gives one to each process that it starts;
otherwise, a world of one makes no library call at all. Control messages travel over gloo on the CPU, so that they never
wait for a GPU.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from fixformer.config import check_device
from fixformer.errors import Interrupted, UserError

T = TypeVar("T")
# While the main process decodes a large data set, the others wait for its message.
CONTROL_TIMEOUT = timedelta(days=7)


@dataclass(frozen=True)
class World:
    """All processes of a run, seen from one of them."""

    rank: int
    size: int
    device: torch.device
    control: dist.ProcessGroup | None = None

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def loader_options(self) -> dict[str, Any]:
        """The arguments of a data loader that depend on the process."""
        return {"rank": self.rank, "world": self.size, "pin_memory": self.device.type == "cuda"}

    def all_gather(self, value: T) -> list[T]:
        """Every process's value, in order of rank, on every process."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.control)
        return values

    def any(self, *flags: bool) -> list[bool]:
        """For each flag, whether it is set on any process."""
        if self.size == 1:
            return list(flags)
        states = torch.tensor(flags, dtype=torch.int32)
        dist.all_reduce(states, dist.ReduceOp.MAX, group=self.control)
        return [bool(state) for state in states]

    def on_main_process(self, function: Callable[[], T]) -> T:
        """Run a function on the main process only; every process gets its result, or raises its error."""
        if self.size == 1:
            return function()
        answer: list[Any] = [None]
        if self.is_main:
            try:
                answer = [function()]
            except (UserError, Interrupted) as error:
                answer = [error]
        dist.broadcast_object_list(answer, src=0, group=self.control)
        if isinstance(answer[0], UserError | Interrupted):
            raise answer[0]
        return answer[0]


SINGLE_PROCESS = World(0, 1, torch.device("cpu"))


@dataclass(frozen=True)
class Seat:
    """The place of a process among those that `train` has started on this machine.

    `meeting` is the path of a new file in a private directory, where they publish their addresses.
    """

    rank: int
    size: int
    meeting: str


@contextmanager
def join_world(device: str, seat: Seat | None = None) -> Iterator[World]:
    """The world of this process; its connections are closed at the end of the block."""
    if seat is not None:
        with _loopback(), _grouped("gloo", dist.FileStore(seat.meeting, seat.size), seat.rank, seat.size) as control:
            yield World(seat.rank, seat.size, torch.device("cpu"), control)
        return
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World(0, 1, choose_device(device, 0))
        return
    chosen = choose_device(device, int(os.environ["LOCAL_RANK"]))
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    backend = "cpu:gloo,cuda:nccl" if chosen.type == "cuda" else "gloo"
    with _grouped(backend, _fresh_store(), int(os.environ["RANK"]), size) as control:
        yield World(dist.get_rank(), size, chosen, control)


@contextmanager
def _grouped(backend: str, store: dist.Store, rank: int, size: int) -> Iterator[dist.ProcessGroup]:
    """The default process group for the block, and the one for control messages."""
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    try:
        yield dist.new_group(backend="gloo", timeout=CONTROL_TIMEOUT)
    finally:
        dist.destroy_process_group()


@contextmanager
def _loopback() -> Iterator[None]:
    """Gloo listens to this machine only, not on the network."""
    name, interface = "GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo"
    before = os.environ.get(name)
    os.environ[name] = interface
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _fresh_store() -> dist.Store:
    """The store where processes publish their addresses, without those of processes that torchrun has replaced.

    torch 2.13's torchrun keeps one store over restarts and its own `init_process_group` then finds dead addresses. On
    one machine the restart count separates them; machines count restarts independently, so several of them need
    TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, with which torchrun makes a new store each time.
    """
    host, port, size = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), int(os.environ["WORLD_SIZE"])
    is_shared = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    is_host = os.environ["RANK"] == "0" and not is_shared
    store = dist.TCPStore(host, port, size, is_master=is_host, multi_tenant=True)
    one_machine = os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if one_machine else "0"
    return dist.PrefixStore(f"fixformer/{restart}", store)


def choose_device(name: str, local_rank: int) -> torch.device:
    """The device a setting means; "auto" and "cuda" give each process its own GPU."""
    check_device(name)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device={name!r}, but torch finds no GPU; use device=cpu.")
    return torch.device("cuda", local_rank) if device.type == "cuda" and device.index is None else device
