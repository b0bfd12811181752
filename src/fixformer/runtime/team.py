"""Worker processes that a command starts for itself and talks to, one line of JSON each way.

They are new programs, not forks (torch's threads would not survive one), and not `multiprocessing`'s, which would run
the user's script again in each of them: so a script without a main guard and a notebook may start them. Standard input
brings the jobs; at its end, which also comes when the parent is killed, a worker ends at once.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from types import TracebackType
from typing import IO, Any, NoReturn, Self, TextIO

from fixformer.errors import Interrupted, UserError, explain, is_lost_peer

# A worker imports what this process can import, from the same places in the same order.
_START = "import json, sys; sys.path[:] = json.loads(sys.stdin.readline()); from {0} import main; main()"
END_SECONDS = 5.0  # a worker ends within a few milliseconds, unless the system writes what it has in memory to disk
BLAME_SECONDS = 5.0  # from when a connection breaks to when the process at its other end has said why


class Team:
    """So many processes that run `main` of a module, which calls `work_for_parent`."""

    def __init__(self, module: str, count: int, environment: Mapping[str, str]) -> None:
        self._workers = [_Worker(module, environment) for _ in range(count)]

    def __len__(self) -> int:
        return len(self._workers)

    def tell(self, jobs: Sequence[Mapping[str, Any]]) -> None:
        """Give each its next job."""
        for worker, job in zip(self._workers, jobs, strict=True):
            worker.tell(job)

    def answers(self) -> list[Any]:
        """What each has to say to its job; the error of the first one that failed."""
        return [worker.answer() for worker in self._workers]

    def ask(self, job: Mapping[str, Any]) -> list[Any]:
        """The answers of all to one job."""
        self.tell([job] * len(self))
        return self.answers()

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """If this process loses its connection to a worker in the block, the error is what happened to the worker."""
        try:
            yield
        except RuntimeError as error:
            if is_lost_peer(error):
                for worker in self._workers:
                    worker.confess()
            raise

    def close(self) -> None:
        for worker in self._workers:
            worker.dismiss()
        for worker in self._workers:
            worker.end()
        self._workers = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Worker:
    """One of them, seen from the parent."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        # What it prints is read only if it ends without a word: the parent prints for all.
        self._complaints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the process)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START.format(module)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env=environment,
        )
        self.tell([place for place in sys.path if isinstance(place, str)])

    def tell(self, job: Any) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._explain_end()

    def answer(self) -> Any:
        """Waits until there is one."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            self._explain_end()
        answer = json.loads(line)
        if "bug" in answer:
            raise RuntimeError(f"in a worker process:\n{answer['bug']}")
        if "error" in answer:
            raise UserError(answer["error"])
        return answer.get("value")

    def confess(self) -> None:
        """Raise the error of a worker that has one of its own, or that has been killed."""
        assert self._process.stdout is not None
        watch = select.poll()
        watch.register(self._process.stdout, select.POLLIN)
        if watch.poll(1000 * BLAME_SECONDS):
            self.answer()

    def dismiss(self) -> None:
        """By a last job, because loaders forked from this process may hold the pipe open."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(b"null\n")
            self._process.stdin.close()

    def end(self) -> None:
        assert self._process.stdout is not None
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._complaints.close()

    def _explain_end(self) -> NoReturn:
        """Raise what there is to say about a worker that ended in the middle of its work."""
        status = self._process.wait()
        self._complaints.seek(0)
        said = self._complaints.read().decode(errors="replace").strip().splitlines()
        if status < 0:
            how = f"was killed ({signal.Signals(-status).name}), perhaps for want of memory"
        else:
            how = f"ended with status {status}" + (f" ({said[-1]})" if said else "")
        raise UserError(f"a process of this run {how}; continue with --resume, or with processes=1.")


def work_for_parent(work: Callable[[dict[str, Any]], Any]) -> NoReturn:
    """The main program of a worker: do one job after the other, until one fails or there are no more."""
    # Ctrl-C reaches all processes of a terminal: the parent decides. A run has its own handler, inside its block.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    jobs: SimpleQueue[dict[str, Any]] = SimpleQueue()
    # The thread has the lock of what it reads. A loader's process, forked from this one, closes its `sys.stdin`: it
    # would wait for that lock for ever.
    stdin, sys.stdin = sys.stdin, None
    threading.Thread(target=_listen, args=(stdin, jobs), daemon=True).start()
    answer = {"value": None}
    with suppress(BrokenPipeError):  # the parent has been killed
        while answer.keys() == {"value"}:
            answer = _attempt(work, jobs.get())
            print(json.dumps(answer), file=answers, flush=True)
    os._exit(1)  # without the end of the interpreter, which may wait for a connection of torch that is gone


def _listen(stdin: TextIO, jobs: "SimpleQueue[dict[str, Any]]") -> None:
    for line in stdin:
        job = json.loads(line)
        if job is None:
            break
        jobs.put(job)
    os._exit(0)


def _attempt(work: Callable[[dict[str, Any]], Any], job: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"value": work(job)}
    except BaseException as error:
        if isinstance(error, Interrupted | KeyboardInterrupt) or is_lost_peer(error):
            return {"value": None, "ended": True}  # another process says why
        sentence = explain(error)
        return {"bug": traceback.format_exc()} if sentence is None else {"error": sentence}
