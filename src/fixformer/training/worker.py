"""A process that trains beside the one that started it (`training.processes`)."""

from dataclasses import asdict
from typing import Any

from fixformer.config import TrainConfig
from fixformer.config.schema import load
from fixformer.data.listing import Index
from fixformer.data.listing.index import index_digest
from fixformer.runtime.distributed import Seat
from fixformer.runtime.team import work_for_parent
from fixformer.training.choose import measure_rates
from fixformer.training.request import load_checked_index
from fixformer.training.run import train_in_place


class Worker:
    """What it is asked for, one job after the other."""

    config: TrainConfig
    index: Index

    def __call__(self, job: dict[str, Any]) -> Any:
        return getattr(self, job.pop("do"))(**job)

    def wake(self) -> None:
        """Everything is imported."""

    def measure(self, config: dict[str, Any], classes: int) -> dict[str, float]:
        return asdict(measure_rates(load(TrainConfig, config), classes))

    def read(self, config: dict[str, Any]) -> str:
        """List the videos, so that nobody waits for this process at the meeting."""
        self.config = load(TrainConfig, config)
        self.index = load_checked_index(self.config)
        return index_digest(self.index)

    def train(self, seat: dict[str, Any], resume: bool, fork: bool) -> None:
        train_in_place(self.config, self.index, load(Seat, seat), resume=resume, fork=fork)


def main() -> None:
    work_for_parent(Worker())
