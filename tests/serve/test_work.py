"""The work on one video within limits, in a forked process as the nursery makes it; and the deployments of the docs."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixformer.cli import serve_verb
from fixformer.cli.command import Command
from fixformer.evaluation.predictor import Classifier
from fixformer.serve import work
from fixformer.serve.settings import ServeSettings
from videos import encode, moving_square

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def classifier(checkpoint: Path) -> Classifier:
    return work.load_classifier(ServeSettings(checkpoint=str(checkpoint)))


def in_a_fork(function: Callable[[], dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    """How a forked process ended, and what the function gave in it."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(theirs, json.dumps(function()).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as reader:
        data = reader.read()
    return os.waitpid(child, 0)[1], json.loads(data or b"{}")


ANSWER = """
import json, sys
from fixformer.serve import work
from fixformer.serve.settings import ServeSettings
settings = ServeSettings(checkpoint=sys.argv[1], memory_gb=float(sys.argv[2]), megapixels=12)
classifier = work.load_classifier(settings)
work.limit_resources(settings)
print(json.dumps(work.answer(json.loads(sys.argv[3]), classifier, settings, lambda message: None)))
"""


@pytest.mark.slow
def test_memory_is_limited(checkpoint: Path, tmp_path: Path) -> None:
    """In fresh processes: memory that lies free in an old one is not limited."""
    path = tmp_path / "video"
    large = np.zeros((2, 3400, 3400, 3), np.uint8)
    path.write_bytes(encode(large, codec="mjpeg", container="avi", pixel_format="yuvj420p"))
    options = {"top_k": 1, "views": None, "frames": 0, "scores": False}
    job = json.dumps({"task": "predict", "path": str(path), "name": "clip.avi", "options": options})

    def answer(memory_gb: float) -> dict[str, Any]:
        command = [sys.executable, "-c", ANSWER, str(checkpoint), str(memory_gb), job]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])

    assert "result" in answer(2)
    refused = answer(0.02)
    assert list(refused) == ["refusal"]
    assert refused["refusal"]["status"] == 422
    assert "memory" in refused["refusal"]["message"].lower(), refused
    assert str(tmp_path) not in refused["refusal"]["message"]


def test_processor_time_is_limited() -> None:
    def spin() -> dict[str, Any]:
        work.limit_resources(ServeSettings(seconds=0.2))
        while True:
            pass

    status, _ = in_a_fork(spin)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)


def test_a_bug_is_told_without_its_details(
    classifier: Classifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*arguments: object) -> dict[str, Any]:
        raise KeyError("secret")

    (tmp_path / "video").write_bytes(encode(moving_square(8)))
    monkeypatch.setitem(work.TASKS, "predict", broken)
    job = {"task": "predict", "path": str(tmp_path / "video"), "name": "clip.mp4", "options": {}}
    refusal = work.answer(job, classifier, ServeSettings(), lambda message: None)["refusal"]
    assert (refusal["status"], refusal["code"]) == (500, "bug")
    assert "secret" not in refusal["message"]
    assert "KeyError: 'secret'" in capsys.readouterr().err


def test_the_command_lines_of_the_deployments_are_understood() -> None:
    command = Command("serve", serve_verb.serve)
    defaults = {name: value.default for name, value in command.named.items()}
    docker = json.loads(re.findall(r"^ENTRYPOINT (.*)", (ROOT / "Dockerfile").read_text(), re.M)[0])
    assert docker[:2] == ["fixformer", "serve"]
    assert command.read([*docker[2:], "/model"]) == {"checkpoint": "/model", "host": "0.0.0.0"}
    unit = re.findall(r"^ExecStart=(.*)", (ROOT / "docs" / "deploy.md").read_text(), re.M)[0]
    program, verb, *words = shlex.split(unit)
    assert (Path(program).name, verb) == ("fixformer", "serve")
    assert command.read(words) == {"checkpoint": "/srv/gestures", "port": 8000, "token_file": "%d/token"}
    assert defaults["host"] == "127.0.0.1"


def test_the_options_are_the_settings() -> None:
    """With the same defaults; the checkpoint and the token's file come beside them."""
    command = Command("serve", serve_verb.serve)
    options = {name: one.default for name, one in command.named.items() if name not in ("checkpoint", "token_file")}
    settings = ServeSettings()
    assert options == {name: getattr(settings, name) for name in options}
    assert {*options, "checkpoint"} == set(vars(settings))
