"""Jobs in processes of their own: at most so many at once, so many waiting, and none for longer than its time.

The server's side of `nursery`. All of it runs in the event loop's thread.
"""

import asyncio
import json
import math
import socket
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fixformer.config.schema import dump
from fixformer.runtime.console import note
from fixformer.serve.counters import Metrics
from fixformer.serve.messages import pack, read_message
from fixformer.serve.nursery import COMMAND
from fixformer.serve.refusal import Refusal, not_ready
from fixformer.serve.settings import ServeSettings

RESTART_SECONDS = 1.0  # before the model is loaded again, if its process was killed
DEATH_SECONDS = 10.0  # that a process may take to end
LOST = "the server lost its model and is loading it again; try again in a few seconds."
OnProgress = Callable[[dict[str, Any]], None]


@dataclass
class Job:
    """What to do with which file; `name` is what the client calls it."""

    task: str
    path: Path
    name: str
    options: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {"task": self.task, "path": str(self.path), "name": self.name, "options": self.options}


@dataclass
class Worker:
    """A process that has been forked and waits for its job."""

    pid: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Workshop:
    """Runs jobs; `model` describes the model once it is loaded, `failure` says why it could not be."""

    def __init__(self, settings: ServeSettings, uploads: Path, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        self.model: dict[str, Any] | None = None
        self.failure: str | None = None
        self.on_failure: Callable[[], None] = lambda: None
        self._uploads = uploads
        self._free = asyncio.Semaphore(settings.concurrent)
        self._places = 0  # taken by requests that run, wait or are being uploaded
        self._idle: deque[asyncio.Task[Worker]] = deque()
        self._control: socket.socket | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._usual_seconds = 1.0

    async def start(self) -> None:
        self._keeper = asyncio.create_task(self._keep_nursery())

    async def stop(self) -> None:
        """End the process with the model, and with it all others."""
        if self._keeper:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """A place for a request, from before its upload until after its answer; a `Refusal` if all are taken."""
        if self.model is None:
            raise not_ready()
        if self._places >= self.settings.concurrent + self.settings.queue:
            wait = math.ceil(self._usual_seconds * (1 + self.settings.queue / self.settings.concurrent))
            raise Refusal(429, "busy", "too many requests are waiting; try again later.", retry_after=wait)
        self._places += 1
        self.metrics.places.set(self._places)
        try:
            yield
        finally:
            self._places -= 1
            self.metrics.places.set(self._places)

    async def run(self, job: Job, on_progress: OnProgress) -> dict[str, Any]:
        """The result of a job, or a `Refusal`."""
        try:
            async with asyncio.timeout(self.settings.queue_seconds):
                if self._free.locked():
                    on_progress({"done": 0, "total": 1, "what": "waiting for other requests"})
                await self._free.acquire()
        except TimeoutError:
            sentence = "the server is too busy to begin with this request; try again later."
            raise Refusal(503, "waited", sentence, retry_after=math.ceil(self._usual_seconds)) from None
        self.metrics.running.inc()
        begin = asyncio.get_running_loop().time()
        try:
            return await self._run(job, on_progress)
        finally:
            seconds = asyncio.get_running_loop().time() - begin
            self._usual_seconds = 0.8 * self._usual_seconds + 0.2 * seconds
            self.metrics.seconds.labels(job.task).observe(seconds)
            self.metrics.running.dec()
            self._free.release()

    async def _run(self, job: Job, on_progress: OnProgress) -> dict[str, Any]:
        worker = await self._take_worker()
        try:
            async with asyncio.timeout(self.settings.seconds):
                worker.writer.write(pack(job.to_json()))
                while True:
                    message = await read_message(worker.reader)
                    if "progress" in message:
                        on_progress(message["progress"])
                    elif "result" in message:
                        return message["result"]
                    else:
                        raise Refusal(**message["refusal"])
        except TimeoutError:
            self.metrics.killed.inc()
            sentence = f"it took longer than {self.settings.seconds:g} s; send a shorter or smaller video."
            raise Refusal(504, "too_slow", f"{job.name}: {sentence}") from None
        except (EOFError, ConnectionError, ValueError):
            self.metrics.killed.inc()
            if self.model is None:
                raise not_ready(LOST) from None
            sentence = "decoding it ended the process that did it, perhaps for want of memory or time"
            raise Refusal(422, "crashed", f"{job.name}: {sentence}; re-encode the video.") from None
        finally:
            await self._end(worker)

    async def _end(self, worker: Worker) -> None:
        """Kill a process, whether it is done or not, and see it gone."""
        self._command(b"k", worker.pid)
        worker.writer.close()
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(DEATH_SECONDS):
                while await worker.reader.read(1 << 16):  # until the other side is closed, by the system if need be
                    pass

    async def _take_worker(self) -> Worker:
        """A process that is ready, or a new one; and one more is made ready for the next."""
        if self._control is None:
            raise not_ready()
        task = self._idle.popleft() if self._idle else asyncio.create_task(self._fork())
        try:
            worker = await asyncio.shield(task)
        except asyncio.CancelledError:  # the client is gone; the process is for the next
            self._idle.appendleft(task)
            raise
        except (EOFError, OSError):
            raise not_ready(LOST) from None
        if self._control is not None and len(self._idle) < self.settings.concurrent:
            self._idle.append(asyncio.create_task(self._fork()))
        return worker

    async def _fork(self) -> Worker:
        ours, theirs = socket.socketpair()
        with theirs:
            self._command(b"f", 0, theirs)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        hello = await read_message(reader)
        return Worker(int(hello["pid"]), reader, writer)

    def _command(self, letter: bytes, number: int, *sockets: socket.socket) -> None:
        """Tell the nursery something. If it is gone, so are its processes."""
        if self._control is not None:
            with suppress(OSError):
                socket.send_fds(self._control, [COMMAND.pack(letter, number)], [one.fileno() for one in sockets])

    async def _keep_nursery(self) -> None:
        """Start the process with the model, and again whenever it ends."""
        while self.failure is None:
            ours, theirs = socket.socketpair()
            arguments = [str(theirs.fileno()), str(self._uploads), json.dumps(dump(self.settings))]
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-m", "fixformer.serve.nursery", *arguments],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,  # a signal to the server's group is not for it
                )
            try:
                await self._watch(ours)
            finally:
                self.model = self._control = None
                ours.close()
                self._drop_idle()
                await asyncio.to_thread(_wait, process)
            if self.failure is None:
                note("the process with the model has ended, perhaps for want of memory; it is started again")
                await asyncio.sleep(RESTART_SECONDS)

    def _drop_idle(self) -> None:
        for task in self._idle:
            if task.done() and not task.cancelled() and not task.exception():
                task.result().writer.close()
            task.cancel()
        self._idle.clear()

    async def _watch(self, control: socket.socket) -> None:
        """Take the first message of the nursery, then wait until it ends."""
        reader, writer = await asyncio.open_unix_connection(sock=control.dup())
        try:
            first = await read_message(reader)
            if "error" in first:
                self.failure = str(first["error"])
                self.on_failure()
                return
            self._control = control
            self._idle.extend(asyncio.create_task(self._fork()) for _ in range(self.settings.concurrent))
            await asyncio.gather(*self._idle)
            self.model = first["model"]
            await reader.read()
        except EOFError:
            pass
        finally:
            writer.close()


def _wait(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(DEATH_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
