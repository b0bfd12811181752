"""Whole studies with real processes: finished rows are not repeated, stopped ones go on, to the same scores."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from fixformer.cli.app import commands, main
from fixformer.config.schema import dump
from fixformer.errors import SettingsConflict, UserError
from fixformer.experiments import ablate as module
from fixformer.experiments.ablate import ablate, dry_run
from fixformer.experiments.decode_once import decode_once
from fixformer.experiments.row_processes import RowProcess
from fixformer.experiments.row_worker import JOB_FILE, RowJob, Score, run_job, score_file
from fixformer.experiments.studies import STUDIES
from fixformer.experiments.study_plan import StudyPlan, plan_study, score_split
from fixformer.experiments.study_result import Scores, assemble, stored_scores
from fixformer.experiments.study_statistics import cells_of, compare
from fixformer.runtime.files import write_json
from fixformer.runtime.signals import NEVER_STOP

Arguments = dict[str, Any]


@pytest.fixture
def arguments(tiny: dict[str, Any], motions: Path, tmp_path: Path) -> Arguments:
    places = {"out": tmp_path / "results" / "ablate_order.json", "runs": tmp_path / "runs"}
    return {"recipe": "demo", "data": motions, "seeds": 1, "processes": 1, **places, **tiny}


@pytest.fixture
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(home: Path, job: RowJob) -> RowProcess:
        raise AssertionError(f"{home} is done again")

    monkeypatch.setattr(RowProcess, "start", fail)


def planned(arguments: Arguments, study: str = "order", **changed: Any) -> StudyPlan:
    given = {**arguments, **changed}
    named = {name: given.pop(name) for name in ("recipe", "data", "seeds", "runs")}
    for name in ("out", "processes"):
        given.pop(name)
    return plan_study(study, **named, overrides=given)


def test_every_row_has_its_first_seed_first(arguments: Arguments) -> None:
    plan = planned(arguments, seeds=3)
    order = [(task.seed, task.row.name) for task in plan.tasks]
    assert order == [(seed, row.name) for seed in range(3) for row in STUDIES["order"].rows]
    assert len({task.home for task in plan.tasks}) == 6
    assert plan.command.startswith("fixformer ablate order --recipe demo --data motions --seeds 3 frames=4 ")


def test_rows_that_are_one_run_are_trained_once(arguments: Arguments) -> None:
    plan = planned(arguments, "views", **{"eval.views": "2x3"})
    jobs = module.jobs_of(plan, {})
    assert len(plan.tasks) == 10
    assert len(jobs) == 1
    assert [scoring.views for scoring in jobs[0][1].scorings] == [f"{clips}x1" for clips in range(1, 11)]
    assert jobs[0][1].config.eval.views == "1x1"


def test_the_twin_is_the_base_with_the_rows_seed(arguments: Arguments) -> None:
    plan = planned(arguments, "modules", seeds=2)
    assert {task.twin.seed for task in plan.tasks if task.seed == 1} == {1}
    assert not {"association", "fixation", "attention"} & plan.tasks[0].twin.model_settings.keys()


def test_the_test_split_is_scored_if_there_is_one(motions: Path, arguments: Arguments) -> None:
    index = planned(arguments).tasks[0].index
    assert score_split(index) == "val"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"run.processes": 2}, "run.processes=2: a row of a study is one process of one thread"),
        ({"threads": 2}, "run.threads=2: a row of a study is one process of one thread"),
        ({"init": "x"}, "init=x cannot be given to a study"),
        ({"seed": 3}, "use --seeds"),
        ({"recipe": "auto"}, "rows would differ"),
        ({"study": "pilot"}, "have their own recipes"),
        ({"study": "pattern", "shift_space": "none", "num_heads": 3}, "row 'factorised'.*num_heads=3"),
        ({"out": "x.txt"}, "expected a file for the JSON"),
        ({"seeds": 0}, "seeds=0"),
        ({"lerning_rate": 1}, "unknown setting"),
    ],
    ids=str,
)
def test_what_cannot_be_studied_is_refused_before_anything_runs(
    arguments: Arguments, changed: dict[str, Any], words: str, no_processes: None
) -> None:
    with pytest.raises((UserError, SettingsConflict), match=words):
        ablate(**{"study": "order", **arguments, **changed})
    assert not Path(arguments["out"]).exists()


def test_dry_run_trains_nothing(arguments: Arguments, no_processes: None) -> None:
    told = dry_run("order", **{**arguments, "seeds": 3, "processes": 2})
    assert [row["row"] for row in told["rows"]] == ["association first", "fixation first"]
    assert all(row["seeds_left"] == 3 and row["minutes"] > 0 and row["memory_mb"] > 100 for row in told["rows"])
    minutes = sum(3 * row["minutes"] for row in told["rows"])
    assert told["hours"] == pytest.approx(minutes / 60 / 2)
    assert not Path(arguments["out"]).exists()


def test_the_command(arguments: Arguments, capsys: pytest.CaptureFixture[str], no_processes: None) -> None:
    shown = {name: value for name, value in arguments.items() if name not in ("stages",)}
    words = [f"{name}={value}" for name, value in shown.items()]
    main(["ablate", "order", *words, "--dry-run"])
    told = capsys.readouterr().out
    assert "fixation first" in told
    assert "estimated: " in told
    with pytest.raises(SystemExit) as stopped:
        main(["ablate", "ordr", *words])
    assert stopped.value.code == 1
    assert "did you mean order" in capsys.readouterr().err


def test_the_set_is_decoded_once_before_the_rows(arguments: Arguments, tmp_path: Path) -> None:
    """Where rows read from a cache."""
    cache = tmp_path / "cache"
    decode_once(planned(arguments).tasks, 1, NEVER_STOP)
    decode_once(planned({**arguments, "cache": str(cache)}).tasks, 1, NEVER_STOP)
    first = sorted(cache.rglob("*.bin"))
    assert first
    decode_once(planned({**arguments, "cache": str(cache)}, "modules").tasks, 1, NEVER_STOP)
    assert sorted(cache.rglob("*.bin")) == first


def test_the_help_names_every_study() -> None:
    about = next(one.about for one in commands["ablate"].parameters if one.name == "study")
    assert all(name in about for name in STUDIES)
    assert len(STUDIES) == 13


def test_a_model_that_diverges_is_a_result(arguments: Arguments, tmp_path: Path) -> None:
    """It classifies nothing, and is not trained again."""
    plan = planned({**arguments, "lr": 1e30, "optimiser": "sgd", "ema": None, "warmup_epochs": 0.0, "clip_norm": None})
    home, job = module.jobs_of(plan, {})[0]
    write_json(home / JOB_FILE, dump(job))
    run_job(home / JOB_FILE)
    score = json.loads(score_file(home, job.scorings[0]).read_text())
    assert set(score["correct"]) == {"0"}
    assert "NaN" in score["diverged"]
    assert len(module.known_scores(plan, tmp_path / "x.json")) == 1


@pytest.mark.slow
def test_a_study_from_start_to_end(arguments: Arguments, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Then it is never repeated: not from its runs, nor from its result, nor for a study that shares a row."""
    result = ablate("order", **arguments)
    out: Path = arguments["out"]
    stored = json.loads(out.read_text())
    assert stored == json.loads(json.dumps(result))
    assert stored["complete"]
    assert [len(row["seeds"]) for row in stored["rows"]] == [1, 1]
    scored = [row["seeds"][0] for row in stored["rows"]]
    assert all(len(score["correct"]) == stored["videos"] == 12 for score in scored)
    assert all("12/12 videos scored" in score["protocol_line"] and score["minutes"] > 0 for score in scored)
    assert stored["rows"][1]["comparison"]["verdict"] == "undecided at this size"
    assert "### order" in out.with_suffix(".md").read_text()
    assert out.with_suffix(".png").is_file()

    def fail(home: Path, job: RowJob) -> RowProcess:
        raise AssertionError(f"{home} is done again")

    monkeypatch.setattr(RowProcess, "start", fail)
    assert ablate("order", **arguments)["rows"] == result["rows"]
    shutil.rmtree(arguments["runs"])
    assert ablate("order", **arguments)["rows"] == result["rows"]
    assert dry_run("order", **arguments)["hours"] == 0
    other = planned(arguments, "merge")
    assert len(module.known_scores(other, out.with_name("ablate_merge.json"))) == 1


@pytest.mark.slow
def test_a_row_that_fails_leaves_the_others(arguments: Arguments, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here its directory is a file."""
    first = planned(arguments).tasks[0]
    ran: list[Path] = []

    def broken(home: Path, job: RowJob) -> RowProcess:
        ran.append(home)
        if home == first.home:
            job = RowJob(job.config, job.twin, tuple())
        return start(home, job)

    start: Callable[[Path, RowJob], RowProcess] = RowProcess.start
    monkeypatch.setattr(RowProcess, "start", broken)
    with pytest.raises(UserError, match=r"1 of 2 rows failed, first association first \(seed 0\): it wrote no score"):
        ablate("order", **arguments)
    stored = json.loads(arguments["out"].read_text())
    assert [len(row["seeds"]) for row in stored["rows"]] == [0, 1]
    assert not stored["complete"]
    assert list(stored["failures"]) == ["association first (seed 0)"]


def command(arguments: Arguments) -> list[str]:
    words = [f"{name}={value}" for name, value in arguments.items() if name != "stages"]
    return [sys.executable, "-m", "fixformer", "ablate", "order", *words]


LONGER = {"epochs": 16, "save.steps": 4}


@pytest.fixture(scope="module")
def left_alone(tiny: dict[str, Any], motions: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What every row of a longer study classifies correctly."""
    home = tmp_path_factory.mktemp("alone")
    places = {"out": home / "ablate_order.json", "runs": home / "runs"}
    return right_videos(ablate("order", recipe="demo", data=motions, seeds=1, **places, **{**tiny, **LONGER}))


def right_videos(result: dict[str, Any]) -> list[str]:
    return [score["correct"] for row in result["rows"] for score in row["seeds"]]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_stopped_and_called_again(
    arguments: Arguments, left_alone: list[str], tmp_path: Path, number: signal.Signals
) -> None:
    """In the middle of its first row. The scores are those of a study that was left alone."""
    arguments = {**arguments, **LONGER}
    process = subprocess.Popen(command(arguments), stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while not list(arguments["runs"].glob("*/run/checkpoints/step-*/manifest.json")):
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    _, told = process.communicate(timeout=120)
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 128 + number
        assert "run it again to go on" in told
    assert not children_of_rows(arguments["runs"])
    assert not list(arguments["runs"].glob("*/score-*.json"))
    again = ablate("order", **arguments)
    assert again["complete"]
    assert right_videos(again) == left_alone
    assert any("resuming from" in file.read_text() for file in arguments["runs"].glob("*/log.txt"))


def children_of_rows(runs: Path) -> list[str]:
    """The processes of rows that are still there, a moment after the one that started them has ended."""
    deadline = time.monotonic() + 20
    while True:
        listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
        left = [line for line in listed if str(runs) in line and "row_worker" in line]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.2)


def test_a_damaged_result_has_no_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, text in enumerate(("{", "[]", '{"rows": 3}', '{"rows": [{"seeds": [{"identity": 3}]}]}')):
        (tmp_path / f"{number}.json").write_text(text)
    assert stored_scores(sorted(tmp_path.glob("*.json"))) == {}
    assert capsys.readouterr().err.count("is not used") == 4


def scored(plan: StudyPlan) -> Scores:
    """Invented scores of all tasks, each of its own."""
    return {
        task.identity: Score(f"{number:012b}", 1.0, None, "protocol", "commit")
        for number, task in enumerate(plan.tasks)
    }


def written(plan: StudyPlan, target: Path, found: Scores | None = None) -> dict[str, Any]:
    """What a call leaves behind that trains these rows, or finds what the file has."""
    known = module.known_scores(plan, target) if found is None else found
    return module._deliver(plan, known, {}, module.scores_to_keep(plan, target), target)


def test_a_smaller_call_keeps_the_scores_of_a_larger_one(arguments: Arguments) -> None:
    """And one with other settings; the next call that wants them finds them."""
    target: Path = arguments["out"]
    large, small, other = planned(arguments, seeds=3), planned(arguments), planned(arguments, lr=0.001)
    everything = scored(large)
    written(large, target, everything)
    result = written(small, target)
    assert [len(row["seeds"]) for row in result["rows"]] == [1, 1]
    assert len(result["other_scores"]) == 4
    assert {entry["row"] for entry in result["other_scores"]} == {row.name for row in large.study.rows}
    assert {entry["command"] for entry in result["other_scores"]} == {large.command}
    assert stored_scores([target]) == everything
    everything |= scored(other)
    assert len(written(other, target, scored(other))["other_scores"]) == 6
    assert stored_scores([target]) == everything
    result = written(large, target)
    assert result["complete"]
    assert len(result["other_scores"]) == 2
    assert stored_scores([target]) == everything


def test_a_file_that_is_no_result_is_not_overwritten(arguments: Arguments, no_processes: None) -> None:
    target: Path = arguments["out"]
    target.parent.mkdir()
    target.write_text('{"runs": []}')
    with pytest.raises(UserError, match=r"it is no result of a study .*; choose another file, or remove it"):
        ablate("order", **arguments)
    assert target.read_text() == '{"runs": []}'


def test_videos_that_were_made_again_have_no_scores(arguments: Arguments, copied_data: Path) -> None:
    """Under the same names: neither those of other training videos, nor those of other scored ones."""
    target: Path = arguments["out"]
    plan = planned(arguments, data=copied_data)
    written(plan, target, scored(plan))
    assert len(module.known_scores(planned(arguments, data=copied_data), target)) == 2
    for split in ("val", "train"):
        video = Path(plan.tasks[0].index.split(split)[0].path)
        intact = video.read_bytes()
        video.write_bytes(intact + b"x")
        assert not module.known_scores(planned(arguments, data=copied_data), target)
        video.write_bytes(intact)
    assert len(module.known_scores(planned(arguments, data=copied_data), target)) == 2


def test_the_result_tells_which_videos_belong_together(arguments: Arguments) -> None:
    """With the cells and the letters of each row, the intervals can be computed again."""
    plan = planned(arguments)
    assert written(plan, arguments["out"], scored(plan))["cells"] is None
    index = plan.tasks[0].index
    grouped = replace(index, samples=[replace(one, label=one.label % 2, group="a") for one in index.samples])
    plan = replace(plan, tasks=[replace(task, index=grouped) for task in plan.tasks])
    result = assemble(plan, scored(plan), {})
    assert result["cells"] == cells_of(grouped.split("val"))
    assert set(result["cells"]) == {0, 1}
    letters = [[row["seeds"][0]["correct"]] for row in reversed(result["rows"])]
    again = compare(*letters, cells=result["cells"], against="association first", paper_difference=-0.82, minutes=2)
    assert asdict(again) == result["rows"][1]["comparison"]
