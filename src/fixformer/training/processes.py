"""How many processes train together on a CPU, where the user has not said so, and the processes themselves.

Two processes of one thread are faster than two threads, which wait for each other at the end of every operation, while
processes meet once a step; the weights are the same up to rounding. This process is the first of them, so that
messages, signals, errors and the result are where they are without the others.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Self

import torch
import torch.distributed as dist
from torch.nn.modules.batchnorm import _BatchNorm

from fixformer.config import TrainConfig
from fixformer.config.schema import dump
from fixformer.data.listing import Index
from fixformer.data.listing.index import index_digest
from fixformer.errors import SettingsConflict, UserError
from fixformer.models.attention.kinds import PerformerAttention
from fixformer.models.checkpoint import complete_model_settings
from fixformer.models.registry import create_model
from fixformer.runtime.console import note
from fixformer.runtime.distributed import Seat, choose_device
from fixformer.runtime.memory import free_memory, require_memory
from fixformer.runtime.pools import processors
from fixformer.runtime.team import Team
from fixformer.training.choose import Rates, measure_rates
from fixformer.training.initialise import check_batch_division, check_stage_sizes
from fixformer.training.plan import process_bytes, training_macs

# A process takes 4 to 6 seconds to start and two of them save a fifth of the time or less, so a run must be longer.
LEAST_SECONDS = 60.0
# Multiply-accumulates a second of two threads in small models: recipe `demo` does 25 billion, larger models more.
MACS_PER_SECOND = 25e9
# Every process exchanges all gradients at each step, and has the weights in memory.
MOST_PROCESSES = 8
# Of the free memory: what is estimated is not exact, and the videos need some, too.
MEMORY_SHARE = 0.7
WORKER = "fixformer.training.worker"


@dataclass(frozen=True)
class Decision:
    """So many processes with so many threads each; None are torch's own. `why` is worth a line, if it is not empty."""

    processes: int
    threads: int | None = None
    why: str = ""


def decide(config: TrainConfig, index: Index, seconds: float | None = None) -> Decision:
    """The processes of a run that takes about so many seconds in one process; estimated if None."""
    wanted = config.run.processes
    if "WORLD_SIZE" in os.environ:
        _check_torchrun(wanted, int(os.environ["WORLD_SIZE"]))
        return Decision(1)
    is_cpu = choose_device(config.run.device, 0).type == "cpu"
    if wanted is None:
        with suppress(UserError):  # about the model or its clips: the run meets it, too, and says more
            return _choose(config, index, seconds) if is_cpu and not _is_settled(config) else Decision(1)
        return Decision(1)
    if wanted == 1:
        return Decision(1)
    if not is_cpu:
        raise SettingsConflict(
            f"processes={wanted} on a GPU; use torchrun --nproc-per-node {wanted}, or processes=1 or device=cpu."
        )
    check_batch_division(config, wanted)
    need = wanted * process_bytes(config, len(index.labels), wanted)
    require_memory(need, f"processes={wanted} with these settings", "use fewer processes or smaller clips")
    threads = config.run.threads or max(1, processors() // wanted)
    return Decision(wanted, threads, f"{_words(wanted, threads)}, as asked for")


def _words(processes: int, threads: int) -> str:
    return f"{processes} processes of {threads} thread{'s' if threads > 1 else ''}"


def _check_torchrun(wanted: int | None, size: int) -> None:
    if wanted not in (None, size):
        raise SettingsConflict(f"processes={wanted} under torchrun, which has started {size}; leave it out.")


def _is_settled(config: TrainConfig) -> bool:
    """Whether one process is what the user has asked for, or the only way."""
    is_asked = config.run.threads or "OMP_NUM_THREADS" in os.environ
    is_only_way = sys.platform != "linux" or not sys.executable or _cores() < 2 or dist.is_initialized()
    # compiling in every process was not measured; the order of streamed shards depends on the number of processes
    return bool(is_asked) or is_only_way or config.run.compile or config.run.shard or config.data.location is not None


def _cores() -> int:
    """As many as torch has threads: one for both halves of a hyper-threaded core, and no more than a script has set."""
    return min(processors(), torch.get_num_threads())


def _choose(config: TrainConfig, index: Index, seconds: float | None) -> Decision:
    check_stage_sizes(config, len(index.labels))  # first, because the costs of an absurd size cannot be counted
    if seconds is None:
        seconds = training_macs(config, index) / MACS_PER_SECOND
    if seconds < LEAST_SECONDS:
        return Decision(1)
    if reason := _what_differs(config, len(index.labels)):
        return Decision(1, None, f"one process: {reason} (otherwise processes=N)")
    count = next(filter(lambda n: _divides(config, n), range(min(_cores(), MOST_PROCESSES), 1, -1)), 1)
    if count == 1:
        sizes = ", ".join(map(str, sorted(config.batch_sizes)))
        return Decision(1, None, f"one process: batch_size={sizes} cannot be divided (otherwise another batch_size)")
    free, need = free_memory(), count * process_bytes(config, len(index.labels), count)
    if free is not None and need > MEMORY_SHARE * free:
        sizes_of = f"{count} need about {need / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are free"
        return Decision(1, None, f"one process: {sizes_of} (otherwise processes={count})")
    why = f"{_words(count, 1)}: faster than {_cores()} threads, the same run up to rounding (otherwise processes=1)"
    return Decision(count, 1, why)


def _divides(config: TrainConfig, processes: int) -> bool:
    with suppress(SettingsConflict):
        check_batch_division(config, processes)
        return True
    return False


def _what_differs(config: TrainConfig, classes: int) -> str:
    """What makes several processes another run than one, if anything does."""
    with torch.device("meta"):
        model = create_model(config.model, **complete_model_settings(config, classes))
    if not type(model).__module__.startswith("fixformer."):
        return f"other processes would not know {config.model}, which is not of this package"
    kinds = {type(module) for module in model.modules()}
    if any(issubclass(kind, _BatchNorm) for kind in kinds):
        return f"{config.model} normalises batches, and every process would see its part only"
    if PerformerAttention in kinds and config.micro_batch is not None:
        return "attention=performer draws its projection once for each micro_batch"
    return ""


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many of torch, for the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Crew:
    """The processes of one command. Those beside this one are started when they are first needed, and kept."""

    def __init__(self) -> None:
        self.size = 1
        self._team: Team | None = None
        self._open = ExitStack()
        self._said = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def prepare(self, config: TrainConfig, index: Index, seconds: float | None = None) -> None:
        """Decide, unless that is done, say so, and start the other processes; they need not be waited for."""
        if self._team is not None:
            return
        decision = self.announce(config, index, seconds)
        if decision.processes > 1:
            assert decision.threads is not None
            self.size = decision.processes
            self._open.enter_context(_threads(decision.threads))
            environment = {**os.environ, "OMP_NUM_THREADS": str(decision.threads)}
            self._team = self._open.enter_context(Team(WORKER, self.size - 1, environment))

    def announce(self, config: TrainConfig, index: Index, seconds: float | None = None) -> Decision:
        """The decision, which is printed unless the last one was the same."""
        decision = decide(config, index, seconds)
        if decision.why and decision.why != self._said:
            note(decision.why)
            self._said = decision.why
        return decision

    def measure(self, config: TrainConfig, classes: int) -> Rates:
        """The rates of all processes at once: they share the memory and the caches of the machine."""
        if self._team is None:
            return measure_rates(config, classes)
        clips = max(1, config.batch_size // self.size)
        share = replace(config, batch_size=clips, micro_batch=config.micro_batch and min(config.micro_batch, clips))
        self._team.ask({"do": "wake"})  # all are there before the first one measures
        self._team.tell([{"do": "measure", "config": dump(share), "classes": classes}] * len(self._team))
        rates = [measure_rates(share, classes), *(Rates(**found) for found in self._team.answers())]
        return Rates(*map(sum, zip(*map(astuple, rates), strict=True)))

    @contextmanager
    def seat(self, config: TrainConfig, index: Index, *, resume: bool, fork: bool) -> Iterator[Seat | None]:
        """The place of this process in a run that the others take part in; None if there are none."""
        if self._team is None:
            yield None
            return
        # a video that came or went meanwhile would shift their batches, or leave one of them waiting for another
        if any(found != index_digest(index) for found in self._team.ask({"do": "read", "config": dump(config)})):
            raise UserError("the list of videos has changed while the processes of this run started; start it again.")
        with tempfile.TemporaryDirectory(prefix="fixformer-") as private, self._team.blamed():
            seats = [Seat(rank, self.size, str(Path(private) / "meeting")) for rank in range(self.size)]
            job = {"do": "train", "resume": resume, "fork": fork}
            self._team.tell([{**job, "seat": asdict(seat)} for seat in seats[1:]])
            yield seats[0]
            self._team.answers()
