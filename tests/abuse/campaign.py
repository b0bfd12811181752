"""Many abuses, and whether each was borne: the oracle of the property test and of `tools/abuse.py`."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases import Case, make_case
from nasty_text import to_bytes
from playground import home_of

HANG = 60.0  # seconds
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
BUG = "bug in fixformer"  # what `main` says about an error that it does not know


@dataclass(frozen=True)
class Outcome:
    """How a case ended; `faults` is empty if it was borne."""

    case: Case
    status: int | None
    seconds: float
    faults: list[str]
    stderr: str


class Campaign:
    """Runs cases one after the other, each on a fresh copy of the site."""

    def __init__(self, site: Path, scratch: Path) -> None:
        self._site, self._scratch = site, scratch
        here = str(Path(__file__).parent)
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": here}
        environment["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._server = subprocess.Popen(
            [sys.executable, f"{here}/fork_server.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment, **home_of(site)},
            text=True,
        )

    def __enter__(self) -> "Campaign":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server.stdin
        self._server.stdin.close()
        self._server.wait()

    def run(self, number: int) -> Outcome:
        """Make the case, run its command, and hold the result against what must be true of every command."""
        place = self._scratch / str(number)
        shutil.rmtree(place, ignore_errors=True)
        copy = place / "site"
        shutil.copytree(self._site, copy, symlinks=True)
        case = make_case(number, copy)
        before = _snapshot(copy, case.writable)
        answer = self._ask(case, place, copy)
        stdout, stderr = ((place / name).read_bytes().decode(errors="replace") for name in ("stdout", "stderr"))
        faults = list(_faults(case, answer, stdout, stderr))
        faults += [f"not to happen: {line}" for line in _lines(place / "violations")[:3]]
        faults += _changed(before, _snapshot(copy, case.writable))
        faults += [f"a command was run: {path}" for path in copy.rglob("PWNED")]
        left = [
            path.name for path in (copy / "tmp").iterdir() if not path.name.startswith("torchinductor")
        ]  # torch's own
        faults += [f"left in the temporary directory: {name}" for name in left[:1]]
        outcome = Outcome(case, answer["status"], answer["seconds"], faults, stderr)
        if not faults:
            shutil.rmtree(place)
        return outcome

    def _ask(self, case: Case, place: Path, copy: Path) -> dict[str, Any]:
        assert self._server.stdin
        assert self._server.stdout
        request = {
            "words": [to_bytes(word).hex() for word in case.words],
            "call": case.call,
            "cwd": str(copy),
            "env": home_of(copy),
            "writable": [to_bytes(name).hex() for name in case.writable],
            "patience": case.patience,
            "hang": HANG,
            "may_connect": any("://" in text for text in (*case.words, *(case.call or ()))),
            **{name: str(place / name) for name in ("stdout", "stderr", "violations")},
        }
        print(json.dumps(request), file=self._server.stdin, flush=True)
        return json.loads(self._server.stdout.readline())


def _faults(case: Case, answer: dict[str, Any], stdout: str, stderr: str) -> Iterator[str]:
    status = answer["status"]
    if status is None:
        yield f"no end within {HANG:.0f} s" + (" of an interrupt" if answer["interrupted"] else "")
        return
    if answer["left_over"]:
        yield "a process is left over"
    # -2: the interrupt came when Python had already taken leave
    if status not in ((0, 1, 2, 130, -2) if answer["interrupted"] else (0, 1, 2)):
        yield f"status {status}"
    if "Traceback (most recent call last)" in stderr or BUG in stderr:
        yield "traceback"
    if status in (1, 2) and "fixformer: " not in stderr and "unreadable" not in stderr:
        yield "no sentence says what is wrong"
    for name, text in (("stdout", stdout), ("stderr", stderr)):
        if found := CONTROL.search(text.replace("\r\n", "\n")):
            yield f"control character {found[0]!r} on {name}"
    if any(len(line) > 5000 for line in stderr.splitlines()):
        yield "a line of more than 5,000 characters on stderr"
    if status == 0 and "--json" in case.words and "--help" not in case.words and "-h" not in case.words:
        try:
            json.loads(stdout, parse_constant=_refuse_constant)
        except ValueError as error:
            yield f"invalid JSON on stdout: {error}"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _snapshot(site: Path, writable: list[str]) -> dict[str, tuple[Any, ...]]:
    """Every file outside the writable places, with what would tell that it was changed."""
    skipped = {os.path.normpath(site / name) for name in writable}
    found: dict[str, tuple[Any, ...]] = {}
    if os.path.normpath(site) in skipped:  # the command line says `out/..`
        return found
    for folder, folders, files in os.walk(site):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in skipped]
        for name in [*folders, *files]:
            path = os.path.join(folder, name)
            if path not in skipped:
                state = os.lstat(path)
                is_folder = stat.S_ISDIR(state.st_mode)
                found[path] = (state.st_mode,) if is_folder else (state.st_mode, state.st_size, state.st_mtime_ns)
    return found


def _changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return [f"written outside the output: {name!r}" for name in names[:3]]


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.exists() else []


def summary(outcomes: list[Outcome]) -> dict[str, Any]:
    """How many were tried of what, how they ended, and every case that was not borne."""
    return {
        "tried": len(outcomes),
        "failed": sum(bool(one.faults) for one in outcomes),
        "by_abuse": dict(sorted(Counter(one.case.abuse for one in outcomes).items())),
        "by_verb": dict(Counter(one.case.verb for one in outcomes).most_common(16)),
        "by_status": {str(status): count for status, count in Counter(one.status for one in outcomes).most_common()},
        "slowest_seconds": round(max(one.seconds for one in outcomes), 1),
        "failures": [describe(one) for one in outcomes if one.faults],
    }


def describe(outcome: Outcome) -> dict[str, Any]:
    case = outcome.case
    words = list(case.call) if case.call else [ascii(word)[1:-1] for word in case.words]
    return {"case": case.number, "abuse": case.abuse, "words": words, "done": case.done, "faults": outcome.faults}
