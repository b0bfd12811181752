"""`train` on a CPU starts processes where that is faster: when, and that nobody notices anything but the speed."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from fixformer.config import TrainConfig
from fixformer.config.overrides import apply_overrides
from fixformer.config.recipes import get_recipe
from fixformer.data.listing import Index, load_index
from fixformer.errors import SettingsConflict, UserError
from fixformer.models.registry import model_setting_types
from fixformer.training import processes as processes_module
from fixformer.training.log import read_log
from fixformer.training.processes import Crew, decide
from tiny_run import Run, loss_trace

LONG = 1000.0  # seconds of work


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(processes_module, "processors", lambda: 4)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)


@pytest.fixture(scope="session")
def index(motions: Path) -> Index:
    return load_index(motions)


def config(recipe: str = "demo", **given: Any) -> TrainConfig:
    return apply_overrides(get_recipe(recipe), {"device": "cpu", "data.path": "videos", **given}, model_setting_types)


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize(
    ("given", "count", "words"),
    [
        ({}, 4, "4 processes of 1 thread: faster than 4 threads, .*otherwise processes=1"),
        ({"batch_size": 6}, 3, "3 processes"),
        ({"batch_size": 6, "mixup": 0.2}, 3, "3 processes"),  # a pair on each of them
        ({"batch_size": 10, "mixup": 0.2}, 1, "batch_size=10 cannot be divided"),
        ({"batch_size": 7}, 1, "batch_size=7 cannot be divided"),
        ({"stages": "8x16:7@8,8x32:7@6"}, 2, "2 processes"),
        ({"micro_batch": 3}, 4, "4 processes"),
        ({"model": "tsm_r50", "model_settings": {}}, 1, "tsm_r50 normalises batches"),
        ({"attention": "performer"}, 4, "4 processes"),
        ({"attention": "performer", "micro_batch": 2}, 1, "performer draws its projection once"),
        ({"threads": 2}, 1, "^$"),
        ({"compile": True}, 1, "^$"),
        ({"processes": 1}, 1, "^$"),
        ({"processes": 2}, 2, "2 processes of 2 threads, as asked for"),
        ({"processes": 2, "threads": 1}, 2, "2 processes of 1 thread, as asked for"),
    ],
)
def test_the_choice(given: dict[str, Any], count: int, words: str, index: Index) -> None:
    settings = given.pop("model_settings", None)
    wanted = config(**given)
    if settings is not None:
        wanted = TrainConfig(**{**vars(wanted), "model_settings": settings})
    found = decide(wanted, index, LONG)
    assert found.processes == count
    assert re.search(words, found.why)


@pytest.mark.usefixtures("four_cores")
def test_a_short_run_does_not_pay_for_their_start(index: Index) -> None:
    assert decide(config(), index, 30).processes == 1
    assert decide(config(epochs=2), index).processes == 1
    assert decide(config(epochs=100_000), index).processes == 4


@pytest.mark.usefixtures("four_cores")
def test_memory_for_all_of_them(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes_module, "free_memory", lambda: 1 << 30)
    found = decide(config(), index, LONG)
    assert found.processes == 1
    assert re.search(r"4 need about .* GB of memory and 1\.1 GB are free", found.why)


@pytest.mark.usefixtures("four_cores")
def test_what_the_user_has_set_about_threads_stands(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert decide(config(), index, LONG).processes == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert decide(config(), index, LONG).processes == 1


@pytest.mark.usefixtures("four_cores")
def test_torchrun_has_started_them(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert decide(config(), index, LONG).processes == 1
    assert decide(config(processes=2), index).processes == 1
    with pytest.raises(SettingsConflict, match="processes=3 under torchrun, which has started 2"):
        decide(config(processes=3), index)


def test_a_batch_that_cannot_be_divided_as_asked(run: Run, tmp_path: Path) -> None:
    with pytest.raises(SettingsConflict, match=r"batch_size=4 .* 3 processes"):
        run(processes=3, mixup=0.0)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_same_run(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    """Dropout, mixing and augmentation included; in this very process, which is left as it was."""
    alone = run("alone", epochs=2)
    before = (torch.get_num_threads(), dict(os.environ))
    capfd.readouterr()
    two = run("two", epochs=2, processes=2, workers=1)  # loaders, too, which both processes start
    printed = capfd.readouterr().err
    assert loss_trace(two.output) == pytest.approx(loss_trace(alone.output), rel=1e-5)
    assert two.evaluation.confusion == alone.evaluation.confusion
    assert two.evaluation.protocol.scored == 12
    assert printed.count("2 processes of 1 thread") == 1
    assert printed.count("step 12/12") == 2  # the last step and its evaluation, by one process
    assert (torch.get_num_threads(), dict(os.environ)) == before
    weights = load_file(two.output / "last" / "model.safetensors")
    for name, value in load_file(alone.output / "last" / "model.safetensors").items():
        assert torch.allclose(weights[name], value, atol=1e-4)


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize("given", [{"frames": 65536, "size": 4096}, {"embed_dim": 65536, "num_heads": 1}])
def test_an_absurd_size_is_left_to_the_run(given: dict[str, Any], index: Index) -> None:
    assert decide(config(**given), index).processes == 1


def test_so_many_do_not_fit(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr("fixformer.runtime.memory.free_memory", lambda: 1 << 30)
    with pytest.raises(UserError, match=r"processes=64 .* of memory"):
        decide(config(processes=64, batch_size=64), index)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_damaged_video_is_named_whoever_reads_it(run: Run, copied_data: Path, seed: int) -> None:
    path = Path(load_index(copied_data).split("train")[0].path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UserError, match=path.name):
        run(data=copied_data, cache=None, processes=2, seed=seed)


@pytest.mark.slow
def test_processes_with_other_lists_do_not_train_together(copied_data: Path, tmp_path: Path) -> None:
    """A video that goes while they start would shift the batches of one of them."""
    settings = {"data.path": str(copied_data), "processes": 2, "output": str(tmp_path / "run"), "data.cache": None}
    given = config(**settings)
    index = load_index(copied_data)
    with Crew() as crew:
        crew.prepare(given, index)
        shorter = replace(index, samples=index.samples[1:])
        with (
            pytest.raises(UserError, match="list of videos has changed"),
            crew.seat(given, shorter, resume=False, fork=False),
        ):
            pass


@pytest.mark.slow
def test_measured_shares_are_possible(copied_data: Path) -> None:
    """Also where the parts of a batch are larger than what a process has of it."""
    with Crew() as crew:
        given = config(**{"data.path": str(copied_data), "processes": 2, "batch_size": 4, "micro_batch": 4})
        crew.prepare(given, load_index(copied_data))
        assert crew.measure(given, 12).whole > 0


@pytest.mark.slow
def test_a_mistake_that_the_processes_meet_is_one_error(run: Run) -> None:
    run(epochs=1)
    with pytest.raises(UserError, match=r"already contains a run.*--resume"):
        run(epochs=1, processes=2)
    assert run(epochs=1, processes=2, resume=True).steps == 6


def command(settings: dict[str, Any], home: Path, *more: str) -> list[str]:
    plain = {**settings, "output": home, "processes": 2, "epochs": 400, "save.steps": 5, "eval.every": 0}
    recipe = plain.pop("recipe")
    words = [f"{name}={value}" for name, value in plain.items() if value != () and name not in ("data", "output")]
    places = ["--data", str(plain["data"]), "--output", str(home)]
    return [sys.executable, "-m", "fixformer", "train", recipe, *places, *words, *more]


@pytest.fixture
def start(settings: dict[str, Any], tmp_path: Path) -> Callable[..., "subprocess.Popen[str]"]:
    """A long run by the command line, of which some checkpoints exist."""

    def begin(*more: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            command(settings, tmp_path / "run", *more), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("run/checkpoints/step-*5")) and time.monotonic() < deadline:
            time.sleep(0.1)
            assert process.poll() is None, process.stderr and process.stderr.read()
        return process

    return begin


def worker_of(parent: int) -> int:
    """The process that it has started; a run with workers=0 has no others."""
    (found,) = (int(word) for word in Path(f"/proc/{parent}/task/{parent}/children").read_text().split())
    return found


def wait_for_end(process: int) -> None:
    deadline = time.monotonic() + 20
    while Path(f"/proc/{process}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{process}").exists()


def errors(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("fixformer: ")]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_stops_all(
    start: Callable[..., "subprocess.Popen[str]"], tmp_path: Path, number: int, status: int
) -> None:
    process = start()
    worker = worker_of(process.pid)
    process.send_signal(number)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == status
    (message,) = errors(printed)
    assert (stopped := re.search(r"stopped and saved at step (\d+); resume with --resume", message))
    assert (tmp_path / "run" / "last").resolve().name == f"step-{int(stopped[1]):08}"
    assert not Path(f"/proc/{worker}").exists()


@pytest.mark.slow
def test_a_killed_worker_is_one_sentence_and_the_run_goes_on(
    start: Callable[..., "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    process = start()
    os.kill(worker_of(process.pid), signal.SIGKILL)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 1
    (message,) = errors(printed)
    assert re.search(r"a process of this run was killed \(SIGKILL\).*--resume", message)
    assert "Traceback" not in printed
    home = tmp_path / "run"
    reached = max(row["step"] for row in read_log(home / "log.jsonl"))
    again = start("--resume")
    deadline = time.monotonic() + 120
    while max(row["step"] for row in read_log(home / "log.jsonl")) <= reached and time.monotonic() < deadline:
        time.sleep(0.1)
    again.send_signal(signal.SIGTERM)
    assert again.wait(60) == 143


@pytest.mark.slow
def test_no_process_outlives_a_killed_command(start: Callable[..., "subprocess.Popen[str]"]) -> None:
    process = start()
    worker = worker_of(process.pid)
    process.kill()
    process.communicate()
    wait_for_end(worker)


@pytest.mark.slow
def test_a_script_without_a_main_guard(settings: dict[str, Any], tmp_path: Path) -> None:
    plain = {**settings, "data": str(settings["data"]), "output": str(tmp_path / "run"), "epochs": 1, "processes": 2}
    script = tmp_path / "script.py"
    script.write_text(f"import fixformer\nprint('once')\nfixformer.train(**{plain!r})\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout == "once\n"
    assert (tmp_path / "run" / "evaluation" / "evaluation.json").is_file()
