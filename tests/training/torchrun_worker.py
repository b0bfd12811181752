"""What torchrun starts in `test_torchrun`: a run with the given arguments; a process may be told to die on the way."""

import json
import os
import signal
import sys
from typing import Any

import torch

from fixformer.evaluation import report
from fixformer.training.run import train
from fixformer.training.trainer import Trainer

KILLED_RANK = "1"


def die_at(step: int) -> None:
    """In the first life of this group of processes, one of them is killed."""
    whole = Trainer.train_step

    def deadly(self: Trainer, batch: Any) -> torch.Tensor:
        if self.position.step == step and os.environ["RANK"] == KILLED_RANK:
            os.kill(os.getpid(), signal.SIGKILL)
        return whole(self, batch)

    Trainer.train_step = deadly  # type: ignore[method-assign]


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    deadly_step = arguments.pop("die_at", None)
    torch.set_num_threads(1)
    report.can_draw = lambda: False
    if deadly_step is not None and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        die_at(deadly_step)
    result = train(**arguments)
    if os.environ["RANK"] == "0":
        print(json.dumps(result.to_json()["metrics"]))
