"""A measurement in a process of its own, so that its peak memory is its own."""

import json
import subprocess
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fixformer.errors import UserError
from fixformer.runtime.parent import kill_with_parent

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def measure_apart(module: str, job: "DataclassInstance", what: str) -> dict[str, Any]:
    """The JSON that `python -m MODULE JOB` prints; `what` names the measurement in the error if it fails."""
    command = [sys.executable, "-m", module, json.dumps(asdict(job))]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=kill_with_parent,
    )
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}, out of memory?"]
        raise UserError(f"{what} could not be measured: {reason[0]}")
    return json.loads(done.stdout)
