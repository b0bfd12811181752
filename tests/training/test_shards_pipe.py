"""Training on shards that are read in order through a pipe: every epoch accounted for, resumed to the bit."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fixformer.data.prepare.prepare import prepare
from fixformer.errors import Interrupted, SettingsConflict, UserError
from fixformer.evaluation.evaluate import evaluate
from fixformer.training.log import read_log
from fixformer.training.run import TrainResult, plan, train
from fixformer.training.trainer import Trainer
from tiny_run import TINY, Run, losses

# A run that writes down the videos of its steps; its last process may be told to die at a step of its first life.
SCRIPT = """
import json, os, signal, sys
from pathlib import Path
import torch
from fixformer.evaluation import report
from fixformer.training.trainer import Trainer
from fixformer.training.run import train

arguments, seen, step = json.loads(sys.argv[1]), [], Trainer.train_step
die_at, rank = arguments.pop("die_at", None), int(os.environ["RANK"])
if os.environ["TORCHELASTIC_RESTART_COUNT"] != "0" or rank + 1 < int(os.environ["WORLD_SIZE"]):
    die_at = None

def watched(self, batch):
    if self.position.step == die_at:
        os.kill(os.getpid(), signal.SIGKILL)
    seen.append(batch.index_B.tolist())
    return step(self, batch)

Trainer.train_step = watched
torch.set_num_threads(1)
report.can_draw = lambda: False
train(**arguments)
Path(f"{arguments['output']}-{rank}.json").write_text(json.dumps(seen))
"""


@pytest.fixture(scope="session")
def shards(motions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 training videos in shards of 5."""
    target = tmp_path_factory.mktemp("shards") / "out"
    prepare(motions, target, shards=True, shard_videos=5, workers=1)
    return target


@pytest.fixture(scope="session")
def piped(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Arguments of a tiny run for which only the index lies here; the shards come through a pipe."""
    index = tmp_path_factory.mktemp("index")
    shutil.copy(shards / "index.json", index)
    where = {"data": index, "location": f"pipe:cat {shards}/{{shard}}", "kind": "auto", "cache": None}
    return {**TINY, "recipe": "demo", "epochs": 2, "workers": 2, **where}


@pytest.fixture
def run_piped(piped: dict[str, Any], tmp_path: Path) -> Run:
    def start(name: str = "run", **changed: Any) -> TrainResult:
        return train(**{**piped, "output": tmp_path / name, **changed})

    return start


def weights(run_directory: Path) -> bytes:
    last = run_directory / "last"
    return b"".join((last / name).read_bytes() for name in ("model.safetensors", "train.safetensors"))


def torchrun(folder: Path, processes: int, **arguments: Any) -> list[list[list[int]]]:
    """The videos of every step of the last life, by process."""
    (folder / "script.py").write_text(SCRIPT)
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in arguments.items()}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "1"]
    command = [*launcher, "--nproc-per-node", str(processes), str(folder / "script.py"), json.dumps(plain)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(Path(f"{plain['output']}-{rank}.json").read_text()) for rank in range(processes)]


def record_batches(monkeypatch: pytest.MonkeyPatch, *, stop_at: int | None = None) -> list[list[int]]:
    """The videos of every step; at one step the process is asked to end."""
    seen: list[list[int]] = []
    step = Trainer.train_step

    def watched(self: Trainer, batch: Any) -> Any:
        if self.position.step == stop_at:
            signal.raise_signal(signal.SIGTERM)
        seen.append(batch.index_B.tolist())
        return step(self, batch)

    monkeypatch.setattr(Trainer, "train_step", watched)
    return seen


@pytest.mark.parametrize("workers", [0, 2])
def test_stopped_in_the_middle_of_an_epoch(
    run_piped: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    with monkeypatch.context() as patch:
        whole = record_batches(patch)
        left_alone = run_piped("alone", workers=workers)
    assert left_alone.steps == len(whole) == 12
    for epoch in (whole[:6], whole[6:]):
        assert sorted(video for batch in epoch for video in batch) == list(range(24))
    assert whole[:6] != whole[6:]

    with monkeypatch.context() as patch:
        first = record_batches(patch, stop_at=8)
        with pytest.raises(Interrupted):
            run_piped("stopped", workers=workers)
    with monkeypatch.context() as patch:
        rest = record_batches(patch)
        again = run_piped("stopped", workers=workers, resume=True)
    assert first + rest == whole
    assert len(first) == 9
    assert weights(again.output) == weights(left_alone.output)
    assert losses(read_log(again.output / "log.jsonl")) == losses(read_log(left_alone.output / "log.jsonl"))


@pytest.mark.slow
def test_a_killed_process_goes_on(run_piped: Run, piped: dict[str, Any], tmp_path: Path) -> None:
    left_alone = run_piped("alone")
    torchrun(tmp_path, 1, **{**piped, "output": tmp_path / "killed", "save.steps": 2, "die_at": 9})
    assert weights(tmp_path / "killed") == weights(left_alone.output)


@pytest.mark.slow
def test_two_processes_share_every_epoch(piped: dict[str, Any], tmp_path: Path) -> None:
    """Of 24 videos in batches of 10, each at most once; the test videos exactly once; a kill changes nothing."""
    arguments = {**piped, "batch_size": 10, "mixup": 0.0, "save.steps": 1}
    by_rank = torchrun(tmp_path, 2, **arguments, output=tmp_path / "whole")
    assert [len(batches) for batches in by_rank] == [4, 4]
    for epoch in range(2):
        videos = [video for batches in by_rank for batch in batches[2 * epoch :][:2] for video in batch]
        assert len(set(videos)) == len(videos) == 20
    stored = json.loads((tmp_path / "whole/evaluation/evaluation.json").read_text())
    assert stored["protocol"]["scored"] == 12
    rows = [json.loads(row) for row in (tmp_path / "whole/evaluation/predictions.jsonl").read_text().splitlines()]
    assert len({row["path"] for row in rows}) == len(rows) == 12
    resumed = torchrun(tmp_path, 2, **arguments, output=tmp_path / "killed", die_at=3)
    assert [len(batches) for batches in resumed] == [1, 1]
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")


def test_scores_are_those_of_local_shards(run_piped: Run, shards: Path) -> None:
    result = run_piped(epochs=1)
    local = evaluate(result.output, data=shards, kind="auto", workers=0)
    assert local.metrics == result.evaluation.metrics
    assert len(local.videos) == len(result.evaluation.videos) == 12


def test_how_an_epoch_is_divided_belongs_to_the_run(run_piped: Run, shards: Path) -> None:
    run_piped(epochs=1)
    with pytest.raises(UserError, match=r"1 processes of 2 workers -> 1 processes of 3 workers.*--fork"):
        run_piped(epochs=1, workers=3, resume=True)
    with pytest.raises(UserError, match=r"data\.location.*--fork"):
        run_piped(epochs=1, location=str(shards), resume=True)


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_streamed_run_is_not_resumed_from_files(run_piped: Run, shards: Path, is_lost: bool) -> None:
    """A checkpoint does not say from where it was streamed, but that it was."""
    home = run_piped(epochs=1).output
    if is_lost:
        (home / "run.json").unlink()
    with pytest.raises(UserError, match=r"1 processes of 2 workers -> none.*--fork"):
        run_piped(epochs=1, data=shards, location=None, resume=True)
    assert run_piped(epochs=1, resume=True).steps == 6


def test_a_plan_of_piped_shards(piped: dict[str, Any], tmp_path: Path) -> None:
    made = plan(**piped, output=tmp_path / "run")
    assert (made.steps, made.train_videos, made.test_videos) == (12, 24, 12)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pipe_with_the_wrong_shard_is_one_sentence(run_piped: Run, shards: Path, workers: int) -> None:
    with pytest.raises(UserError, match=r"^pipe:sh .* # train-00000\d\.tar' .* \d+ bytes at byte \d+;") as raised:
        run_piped(location=f"pipe:sh -c 'cat {shards}/val-000000.tar # {{shard}}'", workers=workers)
    assert "Traceback" not in str(raised.value)


@pytest.mark.slow
def test_unreadable_videos(run_piped: Run, piped: dict[str, Any], shards: Path, tmp_path: Path) -> None:
    """In training an error with its name; in testing a listed failure."""
    damaged = tmp_path / "damaged"
    shutil.copytree(shards, damaged)
    entries = json.loads((damaged / "index.json").read_text())["samples"]
    tested = next(entry for entry in entries if entry["split"] == "val")
    spoil(damaged, tested)
    result = run_piped(epochs=1, location=f"pipe:cat {damaged}/{{shard}}")
    assert [failure.path for failure in result.evaluation.failures] == [
        f"{piped['data']}/{tested['shard']}::{tested['offset']}+{tested['size']}"
    ]
    assert len(result.evaluation.videos) == 11
    spoil(damaged, entries[0])
    with pytest.raises(UserError, match=rf"{entries[0]['shard']}.*\({entries[0]['id']}\)"):
        run_piped("error", epochs=1, location=f"pipe:cat {damaged}/{{shard}}")


def spoil(folder: Path, entry: dict[str, Any]) -> None:
    with (folder / entry["shard"]).open("r+b") as file:
        file.seek(entry["offset"])
        file.write(bytes(entry["size"]))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"cache": "auto"}, ["location=", "cache='auto'"]),
        ({"unreadable_train": "replace"}, ["location=", "unreadable_train='replace'"]),
        ({"location": "pipe:cat all.tar"}, ["location='pipe:cat all.tar'", "{shard}"]),
        ({"location": "https://host/set"}, ["location='https://host/set'", "{shard}"]),
        ({"location": "pipe:cat {shard} | zcat"}, ["location='pipe:cat {shard} | zcat'", "sh -c"]),
        ({"location": "pipe:cat '{shard}"}, ["location=", "pipe:COMMAND"]),
        ({"location": "ftp://host/{shard}"}, ["location='ftp://host/{shard}'", "s3"]),
        ({"location": ""}, ["location=''"]),
        ({"location": "no/such/folder"}, ["location='no/such/folder'", "directory"]),
    ],
)
def test_locations_without_meaning(run_piped: Run, tmp_path: Path, changed: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UserError) as raised:
        run_piped(**changed)
    assert all(word in str(raised.value) for word in words), raised.value
    assert not (tmp_path / "run").exists()


def test_a_location_needs_shards(run: Run, motions: Path) -> None:
    with pytest.raises(SettingsConflict, match=r"location='pipe:cat x/\{shard\}'.*--shards"):
        run(location="pipe:cat x/{shard}", cache=None)


def test_missing_training_videos_are_counted(
    run: Run, motions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "set"
    shutil.copytree(motions, data)
    listed = json.loads(next(data.rglob("*train.json")).read_text())
    gone = [next(data.rglob(f"{row['id']}.webm")) for row in listed if row["template"] == listed[0]["template"]][:1]
    for path in gone:
        path.unlink()
    run(data=data, epochs=1)
    assert f"1 of 24 listed training videos are missing, first {gone[0].stem}" in capsys.readouterr().err
