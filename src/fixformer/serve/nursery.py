"""The process that holds the model and forks a new process for every request: `python -m fixformer.serve.nursery`.

It is started by `workshop` with one end of a socket. Over that it gets commands of five bytes, a letter and a number:
`f` to fork, with a socket for the new process, `k` to kill the process of that number. It ends with the other side,
however that ends, and then kills what runs and deletes the directory of the uploads.

A fork of a process whose model is loaded takes some ten milliseconds, starts from a clean state and leaves nothing
behind. Nothing here may start threads, which do not survive a fork: the model's first pass is made with one thread.
"""

import os
import shutil
import signal
import socket
import struct
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fixformer.config.schema import load as load_settings
from fixformer.errors import UserError, explain
from fixformer.runtime.files import parse_json
from fixformer.serve.messages import receive, send
from fixformer.serve.settings import ServeSettings

if TYPE_CHECKING:
    from fixformer.evaluation.predictor import Classifier

COMMAND = struct.Struct("!cI")


def main() -> None:
    """The arguments are the number of the socket, the directory of the uploads and the settings as JSON."""
    control = socket.socket(fileno=int(sys.argv[1]))
    settings = load_settings(ServeSettings, parse_json(sys.argv[3]))
    # a signal to the whole group, such as Ctrl-C, is for the server, which lets running requests finish
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        from fixformer.serve import work

        classifier = work.load_classifier(settings)
        send(control, {"model": work.describe(classifier)})
        _fork_on_demand(control, classifier, settings)
    except (UserError, OSError, MemoryError, RuntimeError) as error:
        sentence = explain(error)
        if sentence is None:
            raise
        with suppress(OSError):  # the server may be gone
            send(control, {"error": sentence})
    finally:
        shutil.rmtree(sys.argv[2], ignore_errors=True)


def _fork_on_demand(control: socket.socket, classifier: "Classifier", settings: ServeSettings) -> None:
    children: set[int] = set()
    control.settimeout(1.0)  # so that processes that have ended are noticed
    try:
        while True:
            try:
                data, sockets, _, _ = socket.recv_fds(control, COMMAND.size, 1)
            except TimeoutError:
                _bury(children)
                continue
            if len(data) < COMMAND.size:
                return
            letter, number = COMMAND.unpack(data)
            _bury(children)
            if letter == b"k" and number in children:  # only our own, whose numbers cannot be another's yet
                os.kill(number, signal.SIGKILL)
            for channel in sockets:
                if letter == b"f" and (child := os.fork()):
                    children.add(child)
                elif letter == b"f":
                    control.close()
                    _be_child(socket.socket(fileno=channel), classifier, settings)
                os.close(channel)
    finally:
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        for child in children:
            with suppress(ChildProcessError):
                os.waitpid(child, 0)


def _bury(children: set[int]) -> None:
    for child in list(children):
        if os.waitpid(child, os.WNOHANG)[0]:
            children.discard(child)


def _be_child(channel: socket.socket, classifier: "Classifier", settings: ServeSettings) -> None:
    """Do one job in a process of its own, and end."""
    from fixformer.serve import work

    status = 1
    try:
        send(channel, {"pid": os.getpid()})
        job: dict[str, Any] | None = receive(channel)
        if job is not None:
            work.limit_resources(settings)
            work.end_with(channel)
            send(channel, work.answer(job, classifier, settings, lambda message: send(channel, message)))
        status = 0
    except OSError:  # the server does not want the answer any more
        pass
    finally:
        os._exit(status)


if __name__ == "__main__":
    main()
