"""Runs commands, each in a process of its own, without paying for the import of torch every time.

This process imports the program once and forks for every command; run as a script, it reads requests and writes
answers as lines of JSON. In the forked process an audit hook reports what no abuse may cause: writing outside the
places the command may write to, starting a program, opening a connection that the command line has no URL for.
"""

import ctypes
import importlib
import json
import os
import re
import resource
import signal
import sys
import tempfile
import time
from typing import Any

# What the program itself starts: git for the commit, uname for the processor's name, and what the user's own
# `location=pipe:cat ...` names.
PROGRAMS = ("git", "uname", "cat")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# events that change the file system, with which of their arguments is changed
CHANGES = {
    "os.mkdir": 0,
    "os.rename": 1,
    "os.remove": 0,
    "os.rmdir": 0,
    "os.symlink": 1,
    "os.link": 1,
    "os.truncate": 0,
}
STARTS = {"os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen", "pty.spawn"}
LIMITS = {resource.RLIMIT_AS: 10 << 30, resource.RLIMIT_FSIZE: 256 << 20}  # bytes of memory and of a file
PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    _import_the_program()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphans of a command become ours, so that none can hide
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(request)
            sys.exit()  # ends as any process does: with its exit handlers
        print(json.dumps(_wait(child, request)), flush=True)


# A directory by which it is tried, beforehand, whether the output can be made; and a file beside its target, before it
# is renamed.
TEMPORARY = re.compile(r"\.fixformer-\w+|\.[0-9a-f]{32}\.tmp")
# What the commands import when they need it.
MODULES = (
    *("fixformer.cli.app", "fixformer.evaluation.predictor", "fixformer.training.run", "fixformer.data.audit.check"),
    *("fixformer.data.prepare.prepare", "fixformer.cli.printing", "fixformer.cli.print_bench", "rich.progress"),
    *("fixformer.labelling.corpus", "pyarrow.parquet"),
    *("matplotlib.figure", "matplotlib.backends.backend_agg", "torch._dynamo", "torch.utils.tensorboard"),
)


def _import_the_program() -> None:
    for name in MODULES:
        importlib.import_module(name)


def _run(request: dict[str, Any]) -> None:
    """In the forked process: become the command."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a server in the background ignores it
    for number, limit in LIMITS.items():
        resource.setrlimit(number, (limit, limit))
    for number, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.chdir(request["cwd"])
    os.environ.update(request["env"])
    tempfile.tempdir = None  # it was the server's
    words = [os.fsdecode(bytes.fromhex(word)) for word in request["words"]]
    sys.argv = ["fixformer", *words]
    report = os.open(request["violations"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    _watch(report, request["cwd"], request["writable"], may_connect=request["may_connect"])

    if request["call"]:
        _call(*request["call"])
    else:
        from fixformer.cli.app import main

        main()


def _call(name: str, arguments: str) -> None:
    """Call a public function of the Python interface; a `UserError` is printed as the command does."""
    import ast
    import inspect

    from fixformer.errors import UserError

    module, _, function = name.rpartition(".")
    try:
        result = getattr(importlib.import_module(module), function)(**ast.literal_eval(arguments))
        if inspect.isgenerator(result):
            list(result)
    except (UserError, OSError, MemoryError) as error:
        print("fixformer:", ascii(str(error)), file=sys.stderr)
        sys.exit(1)


def _watch(report: int, cwd: str, writable: list[str], *, may_connect: bool) -> None:
    """Write to `report` every event that must not happen."""
    allowed = [os.path.join(cwd, os.fsdecode(bytes.fromhex(name))) for name in writable]
    allowed += ["/dev/null", "/dev/shm", "/proc/self", f"/proc/{os.getpid()}"]

    def is_allowed(path: Any) -> bool:
        if isinstance(path, int):
            return True
        full = os.path.abspath(os.path.join(os.getcwd(), os.fsdecode(path)))
        if TEMPORARY.fullmatch(os.path.basename(full)):
            return True
        return any(full == place or full.startswith(f"{place}/") for place in map(os.path.abspath, allowed))

    def hook(event: str, args: tuple[Any, ...]) -> None:
        wrong = False
        if event == "open":
            path, _, flags = args
            wrong = path is not None and bool(flags & WRITES) and not is_allowed(path)
        elif event in CHANGES:
            path = args[CHANGES[event]]
            is_idle = event == "os.mkdir" and os.path.isdir(path)  # as mkdir(exist_ok=True) tries first
            wrong = args[-1] == -1 and not is_idle and not is_allowed(path)  # else relative to an open directory
        elif event in STARTS:
            program = os.path.basename(os.fsdecode(args[0] or ""))
            wrong = program not in PROGRAMS and args[0] != sys.executable
        elif event == "socket.connect":
            wrong = not may_connect and not isinstance(args[1], str | bytes)  # a path is a local socket
        if wrong:
            os.write(report, f"{event} {args!r}\n".encode("utf-8", "backslashreplace"))

    sys.addaudithook(hook)


def _wait(child: int, request: dict[str, Any]) -> dict[str, Any]:
    """The status of the command; `patience` seconds, then Ctrl-C, then `hang` seconds to the end."""
    started = time.monotonic()
    status, interrupted = None, False
    while status is None and time.monotonic() - started < request["patience"] + request["hang"]:
        finished, code = os.waitpid(child, os.WNOHANG)
        status = os.waitstatus_to_exitcode(code) if finished else None
        if status is None and not interrupted and time.monotonic() - started > request["patience"]:
            interrupted = True
            os.killpg(child, signal.SIGINT)
        time.sleep(0.005)
    seconds = time.monotonic() - started
    left = _left_over(child) if status is not None else False
    if status is None or left:
        _kill_group(child)
    return {"status": status, "seconds": seconds, "interrupted": interrupted, "left_over": left}


def _left_over(group: int) -> bool:
    """Whether processes of the command outlive it by more than 3 s."""
    for _ in range(300):
        try:
            while os.waitpid(-group, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return False
        time.sleep(0.01)
    return True


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
        while True:
            os.waitpid(-group, 0)
    except (ProcessLookupError, ChildProcessError):
        return


if __name__ == "__main__":
    main()
