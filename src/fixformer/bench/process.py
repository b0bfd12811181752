"""A measurement in a process of its own, so that its peak memory is its own."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from fixformer.errors import OutOfMemory, UserError, explain, is_out_of_memory
from fixformer.runtime.parent import kill_with_parent

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Job = TypeVar("Job")
# Of a process for which there was not enough memory; another than Python's own of 1 and 2.
OUT_OF_MEMORY = 3


def measure_apart(
    module: str, job: "DataclassInstance", what: str, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The JSON that `python -m MODULE JOB` prints; `what` names the measurement in the error if it fails.

    An `OutOfMemory` if that is why, also if the system has killed the process.
    """
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
        is_lack = done.returncode in (OUT_OF_MEMORY, -signal.SIGKILL) or "std::bad_alloc" in done.stderr
        raise (OutOfMemory if is_lack else UserError)(f"{what} could not be measured: {reason}")
    return json.loads(done.stdout)


def answer(job: Callable[..., Job], measure: Callable[[Job], dict[str, Any]]) -> None:
    """The main program of such a process: print the measurement as JSON, or the error in one sentence."""
    try:
        print(json.dumps(measure(job(**json.loads(sys.argv[1])))))
    except (UserError, OSError, MemoryError, OverflowError, ImportError, RuntimeError) as error:
        sentence = explain(error)
        if sentence is None:
            raise
        print(sentence, file=sys.stderr)
        sys.exit(OUT_OF_MEMORY if is_out_of_memory(error) else 1)
