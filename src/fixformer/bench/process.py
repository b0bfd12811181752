"""A measurement in a process of its own, so that its peak memory is its own."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from fixformer.errors import UserError, explain
from fixformer.runtime.parent import kill_with_parent

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Job = TypeVar("Job")


def measure_apart(
    module: str, job: "DataclassInstance", what: str, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The JSON that `python -m MODULE JOB` prints; `what` names the measurement in the error if it fails."""
    command = [sys.executable, "-m", module, json.dumps(asdict(job))]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=kill_with_parent,
        env=environment,
    )
    if done.returncode:
        killed = "its process was killed, perhaps for want of memory; use smaller clips."
        reason = killed if done.returncode < 0 else done.stderr.strip().splitlines()[-1]
        raise UserError(f"{what} could not be measured: {reason}")
    return json.loads(done.stdout)


def answer(job: Callable[..., Job], measure: Callable[[Job], dict[str, Any]]) -> None:
    """The main program of such a process: print the measurement as JSON, or the error in one sentence."""
    try:
        print(json.dumps(measure(job(**json.loads(sys.argv[1])))))
    except (UserError, OSError, MemoryError, OverflowError, RuntimeError) as error:
        sentence = explain(error)
        if sentence is None:
            raise
        sys.exit(sentence)
