"""`run.json`: what identifies a run, so that `--resume` does not continue it as another one.

It is written when a run starts or resumes. If it is lost or damaged, it is rebuilt from the newest checkpoint.
"""

from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fixformer.config import TrainConfig, changes
from fixformer.config.own import with_own
from fixformer.config.schema import dump, load
from fixformer.data.listing import Index
from fixformer.data.listing.index import order_digest
from fixformer.errors import UserError
from fixformer.models.checkpoint import read_info
from fixformer.runtime.files import make_output, read_json, write_json
from fixformer.runtime.pools import affordable_workers
from fixformer.training.checkpoint_store import read_state

RUN_FILE = "run.json"


@dataclass(frozen=True)
class RunRecord:
    """The identity of a run.

    Args:
        config: its settings.
        labels: the classes.
        data: a digest of the list of training videos; None if unknown (a checkpoint of an older version).
        readers: who reads the shards of a streamed data set, on which the order of an epoch depends; otherwise None.
    """

    config: TrainConfig
    labels: list[str]
    data: str | None
    readers: str | None = None

    @staticmethod
    def of(config: TrainConfig, index: Index, processes: int) -> "RunRecord":
        """The record of the run that these settings describe."""
        readers = None
        if config.data.location is not None:
            readers = f"{processes} processes of {max(1, affordable_workers(config.data.workers))} workers"
        return RunRecord(config, index.labels, order_digest(index.split("train")), readers)

    @staticmethod
    def read(home: Path) -> "RunRecord | None":
        """The record in a run's directory; None if the file is missing or damaged."""
        try:
            return load(RunRecord, read_json(home / RUN_FILE))
        except UserError:
            return None

    @staticmethod
    def from_checkpoint(checkpoint: Path, given: TrainConfig) -> "RunRecord":
        """The record of the run that wrote a checkpoint, which does not say the user's own settings: as `given`."""
        info, state = read_info(checkpoint), read_state(checkpoint)
        return RunRecord(with_own(info.config, given), info.labels, state.get("data"), state.get("readers"))

    def state(self) -> dict[str, str | None]:
        """What a checkpoint stores of it beside config and labels, which it has anyway."""
        return {"data": self.data, "readers": self.readers}

    def write(self, home: Path) -> None:
        values: dict[str, Any] = {"config": dump(self.config), "labels": self.labels, **self.state()}
        make_output(home, "train")
        write_json(home / RUN_FILE, values)

    def changes_to(self, new: "RunRecord") -> list[str]:
        """What differs in another run and matters, as `name: old -> new`. Other labels are a `UserError`."""
        if self.labels != new.labels:
            pairs = enumerate(zip_longest(self.labels, new.labels))
            number, names = next((number, pair) for number, pair in pairs if pair[0] != pair[1])
            old_name, new_name = ("missing" if name is None else repr(name) for name in names)
            raise UserError(
                f"the run was trained with other labels (class {number} is {old_name} in the run, {new_name} in the "
                "data); choose another --output, and start from the weights of this run with --init."
            )
        found = changes(self.config, new.config)
        if self.readers is not None and self.readers != new.readers:
            now = new.readers or "none, without location"
            found.append(f"the order of an epoch, which depends on the readers: {self.readers} -> {now}")
        if self.data is not None and self.data != new.data:
            found.append("the list of training videos")
        return found
