"""Never lose work: whatever interrupts a run, resuming gives the weights of an uninterrupted one, bit by bit."""

import json
import os
import random
import shutil
import signal
import time
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from fixformer.errors import Interrupted, UserError
from fixformer.training.checkpoint_store import read_state
from fixformer.training.log import read_log
from fixformer.training.run import train
from tiny_run import Run

KILLS = 20


def weights(run_directory: Path) -> dict[str, bytes]:
    last = run_directory / "last"
    return {name: (last / name).read_bytes() for name in ("model.safetensors", "train.safetensors")}


def numbers(run_directory: Path) -> list[tuple[Any, ...]]:
    """The log without its times."""
    rows = read_log(run_directory / "log.jsonl")
    return [(row["kind"], row["step"], row.get("loss"), row.get("lr"), row.get("video_top1")) for row in rows]


def start_child(arguments: dict[str, Any]) -> int:
    """Train in a forked process, which has torch loaded already."""
    child = os.fork()
    if child:
        return child
    try:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 2)
        train(**arguments)
        os._exit(0)
    except BaseException:
        os._exit(1)


@pytest.mark.slow
def test_killed_at_random_moments(run: Run, settings: dict[str, Any], tmp_path: Path) -> None:
    changed = {"epochs": 8, "save.steps": 3, "stages": "2x8:4,4x16:4"}
    begin = time.perf_counter()
    left_alone = run("alone", **changed).output
    seconds = time.perf_counter() - begin
    arguments = {**settings, **changed, "output": tmp_path / "killed", "resume": True}
    chance, kills, finished = random.Random(0), 0, False
    while kills < KILLS or not finished:
        child = start_child(arguments)
        if kills < KILLS:
            time.sleep(chance.uniform(0, seconds / 4))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        kills += os.WIFSIGNALED(status)
        finished = os.WIFEXITED(status)
        assert not finished or os.WEXITSTATUS(status) == 0
        if finished and kills < KILLS:
            for path in (tmp_path / "killed").rglob("step-*/manifest.json"):
                path.write_text("{")  # all of it is damaged, so the run begins again
    assert weights(tmp_path / "killed") == weights(left_alone)
    assert numbers(tmp_path / "killed") == numbers(left_alone)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_stops(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    left_alone = run("alone").output

    from fixformer.training.trainer import Trainer

    step = Trainer.train_step

    def interrupted(self: Trainer, batch: Any) -> Any:
        if self.position.step == 11:  # the last of the second epoch: its evaluation is still to come
            os.kill(os.getpid(), number)
        return step(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_step", interrupted)
        with pytest.raises(Interrupted, match=r"step 12.*--resume") as stopped:
            run("stopped")
    assert stopped.value.status == 128 + number
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    run("stopped", resume=True)
    assert weights(tmp_path / "stopped") == weights(left_alone)
    assert numbers(tmp_path / "stopped") == numbers(left_alone)


def signal_at(patch: pytest.MonkeyPatch, place: str, call: int) -> None:
    """SIGTERM during the given call of a function."""
    module, name = place.rsplit(".", 1)
    function, calls = getattr(import_module(module), name), count(1)

    def interrupted(*arguments: Any, **named: Any) -> Any:
        if next(calls) == call:
            os.kill(os.getpid(), signal.SIGTERM)
        return function(*arguments, **named)

    patch.setattr(place, interrupted)


# 12 videos at 4 a time: passes 1 to 3 score the first epoch, passes 10 to 12 make the final evaluation of three
@pytest.mark.parametrize("batch", [1, 3, 11])
def test_a_signal_during_an_evaluation_does_not_wait_for_its_end(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    changed = {"eval.batch_size": 4, "save.minutes": 1000.0}
    left_alone = run("alone", **changed).output
    with monkeypatch.context() as patch:
        signal_at(patch, "fixformer.evaluation.scoring.view_logits", batch)
        with pytest.raises(Interrupted, match=r"scoring.*--resume"):
            run("stopped", **changed)
    run("stopped", **changed, resume=True)
    assert weights(tmp_path / "stopped") == weights(left_alone)
    assert numbers(tmp_path / "stopped") == numbers(left_alone)


def test_a_signal_while_decoding_keeps_what_is_decoded(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    with monkeypatch.context() as patch:
        signal_at(patch, "fixformer.data.loading.cache._write_shard", 1)
        with pytest.raises(Interrupted, match="decoding"):
            run(cache=str(cache), epochs=1)
    decoded = {path: path.stat().st_mtime_ns for path in cache.rglob("*.bin")}
    assert decoded
    assert not (tmp_path / "run" / "run.json").exists()
    assert run(cache=str(cache), epochs=1).steps == 6
    assert {path: path.stat().st_mtime_ns for path in decoded} == decoded


def test_workers_and_micro_batches_resume_exactly(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = {"workers": 2, "micro_batch": 2, "epochs": 2}
    left_alone = run("alone", **changed).output
    with monkeypatch.context() as patch:
        signal_at(patch, "fixformer.training.trainer.mix_batch", 9)  # in the middle of the second epoch
        with pytest.raises(Interrupted):
            run("stopped", **changed)
    run("stopped", **changed, resume=True)
    assert weights(tmp_path / "stopped") == weights(left_alone)
    assert numbers(tmp_path / "stopped") == numbers(left_alone)


def test_the_files_of_a_checkpoint_repeat_nothing(run: Run) -> None:
    newest = run(epochs=1).output / "last"
    config, state = (json.loads((newest / name).read_text()) for name in ("config.json", "train.json"))
    assert not config.keys() & (state.keys() | state["position"].keys()) - {"epoch"}  # there a fraction, here a count


def test_a_resume_that_is_refused_changes_nothing(run: Run, tmp_path: Path) -> None:
    """Damaged checkpoints are set aside only once it is clear that the run goes on."""
    run(epochs=1)
    home = tmp_path / "run"
    newest = sorted((home / "checkpoints").iterdir())[-1]
    (newest / "model.safetensors").write_bytes(b"damaged")
    before = sorted(path.name for path in home.rglob("*"))
    with pytest.raises(UserError, match=r"optim\.lr"):
        run(epochs=1, lr=0.5, resume=True)
    assert sorted(path.name for path in home.rglob("*")) == before


def test_a_damaged_checkpoint_costs_no_more_than_the_steps_since_the_one_before(run: Run, tmp_path: Path) -> None:
    left_alone = run("alone").output
    run("damaged", epochs=3)
    newest = (tmp_path / "damaged" / "last").resolve()
    (newest / "train.safetensors").write_bytes(b"")
    again = run("damaged", resume=True)
    assert weights(again.output) == weights(left_alone)
    assert (again.output / "checkpoints" / f"damaged-{newest.name}").exists()


def test_a_finished_run_is_only_evaluated_again(run: Run) -> None:
    first = run(epochs=1)
    stamp = (first.output / "last" / "model.safetensors").stat().st_mtime_ns
    again = run(epochs=1, resume=True)
    assert again.evaluation.metrics == first.evaluation.metrics
    assert (again.output / "last" / "model.safetensors").stat().st_mtime_ns == stamp


def test_a_changed_config_is_named_and_needs_consent(run: Run) -> None:
    first = run(epochs=1)
    with pytest.raises(UserError, match=r"optim\.lr: 0\.002 -> 0\.001.*--fork"):
        run(epochs=1, lr=0.001, resume=True)
    forked = run(epochs=2, lr=0.001, batch_size=6, resume=True, fork=True)
    assert forked.steps == first.steps + 4
    assert read_log(forked.output / "log.jsonl")[-2]["lr"] < 0.001


def test_settings_that_do_not_change_the_result_may_change(run: Run) -> None:
    """Without --fork, and the resumed run is still the same to the bit."""
    left_alone = run("alone", epochs=2).output
    run(epochs=2, **{"save.steps": 4, "keep": 100})
    for path in (left_alone.parent / "run" / "checkpoints").glob("step-*"):
        if path.name > "step-00000004":
            shutil.rmtree(path)
    changed = {"workers": 1, "log_steps": 3, "cache": None, "keep": 1, "eval.batch_size": 3}
    again = run(epochs=2, resume=True, **changed)
    assert weights(again.output) == weights(left_alone)
    assert again.config.data.workers == 1
    assert len(list((again.output / "checkpoints").glob("step-*"))) <= 2  # the newest and the best


def test_an_unused_directory_resumes_from_the_beginning(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(epochs=1, resume=True).steps == 6
    assert "starting from the beginning" in capsys.readouterr().err


def test_a_used_directory_is_not_overwritten(run: Run) -> None:
    result = run(epochs=1)
    before = weights(result.output)
    with pytest.raises(UserError, match=r"run already .*--resume.*--output"):
        run(epochs=1)
    assert weights(result.output) == before


def test_another_label_set_is_refused(run: Run) -> None:
    result = run(epochs=1)
    stored = json.loads((result.output / "run.json").read_text())
    stored["labels"][2] = "Juggling"
    (result.output / "run.json").write_text(json.dumps(stored))
    with pytest.raises(UserError, match=r"class 2 is 'Juggling' .*'Moving something up'.*--init"):
        run(epochs=1, resume=True, fork=True)


def test_the_same_videos_in_another_order_are_another_run(run: Run, copied_data: Path) -> None:
    """An epoch is an order of the listed videos, so a run cannot continue in the middle of one."""
    run(epochs=1, data=copied_data)
    (listing,) = (copied_data / "labels").glob("*train.json")
    listing.write_text(json.dumps(json.loads(listing.read_text())[::-1]))
    with pytest.raises(UserError, match="the list of training videos"):
        run(epochs=1, data=copied_data, resume=True)


def test_checkpoints_come_by_steps_at_the_end_of_an_epoch_too(run: Run) -> None:
    home = run(**{"save.steps": 6, "eval.every": 0, "keep": 100}).output
    steps = {path.name.rstrip("+") for path in (home / "checkpoints").glob("step-*")}
    assert steps == {"step-00000006", "step-00000012", "step-00000018"}


def test_fp16_resumes_with_its_loss_scale(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scale grows every 5 steps here; a scaler that started again would be at another scale and count."""
    monkeypatch.setattr("torch.amp.GradScaler", partial(torch.amp.GradScaler, init_scale=256.0, growth_interval=5))
    half = {"precision": "fp16", "epochs": 2}
    alone = run("alone", **half).output
    with monkeypatch.context() as patch:
        signal_at(patch, "fixformer.training.trainer.mix_batch", 8)
        with pytest.raises(Interrupted):
            run("stopped", **half)
    stopped_at = read_state(tmp_path / "stopped" / "last")["scaler"]
    assert (stopped_at["scale"], stopped_at["_growth_tracker"]) == (512.0, 3)
    run("stopped", **half, resume=True)
    assert read_state(tmp_path / "stopped" / "last")["scaler"] == read_state(alone / "last")["scaler"]
    assert weights(tmp_path / "stopped") == weights(alone)
