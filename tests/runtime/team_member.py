"""What the workers of `test_team` run."""

import multiprocessing
import os
import signal
import sys
import time
from typing import Any

from fixformer.errors import UserError
from fixformer.runtime.team import work_for_parent


def work(job: dict[str, Any]) -> Any:
    kind = job["do"]
    print("what a library prints")
    if kind == "pid":
        return os.getpid()
    if kind == "mistake":
        raise UserError("this file is damaged; remove it.")
    if kind == "bug":
        raise KeyError("nobody thought of this")
    if kind == "lose the others":
        raise RuntimeError("[pair.cc:547] Connection closed by peer [127.0.0.1]:4711")
    if kind == "fork":
        forked = multiprocessing.get_context("fork").Process(target=print)
        forked.start()
        forked.join(20)
        return forked.exitcode
    if kind == "leave":
        print("first line\nlast line", file=sys.stderr)
        sys.stderr.flush()
        os._exit(3)
    if kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(1000)
    return None


def main() -> None:
    work_for_parent(work)
