"""Two processes under torchrun: the losses and scores of one, and a restart when one is killed."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from fixformer.data.listing import load_index
from fixformer.evaluation.evaluate import evaluate
from tiny_run import Run, loss_trace

LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
WORKER = Path(__file__).with_name("torchrun_worker.py")


def torchrun(arguments: dict[str, Any], *options: str) -> dict[str, float]:
    """The final metrics of a run on two processes."""
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in arguments.items()}
    command = [*LAUNCHER, *options, str(WORKER), json.dumps(plain)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_two_processes_have_the_losses_of_one(run: Run, settings: dict[str, Any], tmp_path: Path) -> None:
    """Dropout, mixing and augmentation included; the videos of the evaluation are divided, each scored once."""
    alone = run("alone", epochs=2)
    metrics = torchrun({**settings, "epochs": 2, "output": tmp_path / "two"})
    assert loss_trace(tmp_path / "two") == pytest.approx(loss_trace(alone.output), rel=1e-5)
    assert len(loss_trace(alone.output)) == 12
    assert metrics["video_top1"] == alone.evaluation.metrics.video_top1
    assert metrics["clip_top5"] == alone.evaluation.metrics.clip_top5
    stored = json.loads((tmp_path / "two" / "evaluation" / "evaluation.json").read_text())
    assert stored["protocol"]["scored"] == 12
    assert stored["confusion"] == alone.evaluation.confusion


@pytest.mark.slow
def test_one_killed_process_costs_nothing_but_time(settings: dict[str, Any], tmp_path: Path) -> None:
    common = {**settings, "epochs": 2, "save.steps": 2}
    torchrun({**common, "output": tmp_path / "whole"})
    torchrun({**common, "output": tmp_path / "killed", "die_at": 7}, "--max-restarts", "1")
    assert loss_trace(tmp_path / "killed") == loss_trace(tmp_path / "whole")
    files = [load_file(tmp_path / name / "last" / "model.safetensors") for name in ("whole", "killed")]
    assert all(value.equal(files[1][name]) for name, value in files[0].items())


@pytest.mark.slow
@pytest.mark.parametrize("is_early", [True, False])
def test_a_mistake_is_printed_once(settings: dict[str, Any], tmp_path: Path, is_early: bool) -> None:
    """Before the processes know each other, and after, when only the main one meets it."""
    words = ["dmeo"] if is_early else ["demo", "workers=0", "cache=none"]
    (tmp_path / "run" / "checkpoints" / "step-00000001").mkdir(parents=True)
    command = ["-m", "fixformer", "train", *words, "--data", str(settings["data"]), "--output", str(tmp_path / "run")]
    done = subprocess.run([*LAUNCHER, *command], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    mistake = "'dmeo'" if is_early else "--resume"
    assert [line.count(mistake) for line in done.stderr.splitlines() if line.startswith("fixformer: ")] == [1]


@pytest.mark.slow
def test_a_number_of_videos_that_cannot_be_divided(settings: dict[str, Any], copied_data: Path, tmp_path: Path) -> None:
    """A sharded model needs all processes at every pass, also the one whose share of the videos is shorter."""
    Path(load_index(copied_data).split("val")[0].path).unlink()
    common = {**settings, "data": copied_data, "epochs": 1, "eval.batch_size": 2}
    home = tmp_path / "sharded"
    metrics = torchrun({**common, "output": home, "shard": True})
    alone = evaluate(home, data=copied_data)
    assert alone.protocol.scored == 11
    assert metrics == pytest.approx(asdict(alone.metrics))
    command = ["-m", "fixformer", "eval", str(home), "--data", str(copied_data), "--json"]
    done = subprocess.run([*LAUNCHER, *command], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["metrics"] == pytest.approx(asdict(alone.metrics))


@pytest.mark.slow
def test_a_sharded_run_is_the_same_run_and_goes_on_unsharded(
    run: Run, settings: dict[str, Any], tmp_path: Path
) -> None:
    alone = run("alone", epochs=2)
    torchrun({**settings, "epochs": 2, "output": tmp_path / "sharded", "shard": True, "die_at": 9, "save.steps": 4},
             "--max-restarts", "1")  # fmt: skip
    assert loss_trace(tmp_path / "sharded") == pytest.approx(loss_trace(alone.output), rel=1e-4)
    whole = load_file(tmp_path / "sharded" / "last" / "model.safetensors")
    for name, value in load_file(alone.output / "last" / "model.safetensors").items():
        assert whole[name].shape == value.shape
        assert (whole[name] - value).abs().max() < 1e-4
