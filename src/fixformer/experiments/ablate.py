"""`fixformer ablate STUDY`: train and compare the rows of one of the paper's tables.

Rows are processes of one thread, one a core. Every row gets its first seed before any gets its second. A finished row
is known by its key (`row_identity.py`) and never trained again, whichever study it was trained for: its score is found
in its directory, or in a result file beside the new one. The result is written after every row, and keeps the scores of
earlier calls that this one does not want.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from fixformer.config.schema import PositiveInt, checked, int_between, load
from fixformer.errors import UserError
from fixformer.experiments.decode_once import decode_once
from fixformer.experiments.row_processes import LOG_FILE, run_rows
from fixformer.experiments.row_worker import RowJob, Score
from fixformer.experiments.study_plan import StudyPlan, Task, estimate_rows, plan_study
from fixformer.experiments.study_report import draw_study, to_markdown
from fixformer.experiments.study_result import Entry, Scores, assemble, other_scores, stored_scores
from fixformer.experiments.study_statistics import accuracy
from fixformer.runtime.console import note, printable
from fixformer.runtime.figures import optional
from fixformer.runtime.files import check_writable, read_json, write_json, write_text
from fixformer.runtime.locks import locked
from fixformer.runtime.pools import processors
from fixformer.runtime.signals import StopRequest

Seeds = Annotated[int, int_between(1, 100)]
RUNS = Path("runs/ablate")


@checked
def ablate(
    study: str,
    *,
    recipe: str | None = None,
    data: str | Path | None = None,
    seeds: Seeds = 3,
    out: str | Path | None = None,
    runs: str | Path = RUNS,
    processes: PositiveInt | None = None,
    **overrides: Any,
) -> dict[str, Any]:
    """Train the rows of a study that are not finished, score them all on the test split and compare them in pairs.

    Args:
        study: a name of `fixformer.experiments.studies`.
        recipe: the base of all rows; by default `ablate_frozen`.
        data: directory or annotation file. Its test split is scored once for each row, after training.
        seeds: how many, from 0.
        out: the JSON file; Markdown and a figure are written beside it. By default results/ablate_STUDY.json.
        runs: directory of the runs, which all studies share.
        processes: at a time, each of one thread; by default one a core.
        overrides: any setting of the recipe, for all rows.
    """
    plan, target = prepare(study, recipe, data, seeds, out, runs, overrides)
    failures: dict[str, str] = {}
    count = processes or processors()
    with locked(runs), StopRequest() as stop:
        found, others = known_scores(plan, target), scores_to_keep(plan, target)
        jobs = jobs_of(plan, found)
        _deliver(plan, found, failures, others, target)
        note(f"{_progress(plan, found)}, {len(jobs)} runs to do; each writes {LOG_FILE} in a directory of {runs}")

        def ended(home: Path, problem: str | None) -> None:
            for task in plan.tasks:
                if task.home == home:
                    _take(task, problem, found, failures)
            _deliver(plan, found, failures, others, target)

        decode_once((task for task in plan.tasks if task.identity not in found), count, stop)
        run_rows(jobs, count, ended, stop)
        if stop:
            raise stop.interruption(f"stopped; {_progress(plan, found)}, the others are saved: run it again to go on.")
    result = _deliver(plan, found, failures, others, target)
    if found:
        with optional(str(target.with_suffix(".png"))):
            draw_study(result, target.with_suffix(".png"))
    if failures:
        name, reason = next(iter(failures.items()))
        raise UserError(
            f"{len(failures)} of {len(plan.tasks)} rows failed, first {name}: {reason.rstrip('.')}; the others are in "
            f"{target}, run it again to retry."
        )
    return result


@checked
def dry_run(
    study: str,
    *,
    recipe: str | None = None,
    data: str | Path | None = None,
    seeds: Seeds = 3,
    out: str | Path | None = None,
    runs: str | Path = RUNS,
    processes: PositiveInt | None = None,
    **overrides: Any,
) -> dict[str, Any]:
    """The rows of `ablate` with the same arguments, with estimated time and memory; trains nothing."""
    plan, target = prepare(study, recipe, data, seeds, out, runs, overrides)
    rows = list(estimate_rows(plan, known_scores(plan, target)))
    count = processes or processors()
    return {
        "study": plan.study.name,
        "command": plan.command,
        "out": str(target),
        "processes": count,
        "rows": [asdict(row) for row in rows],
        "hours": sum(row.minutes * row.seeds_left for row in rows) / 60 / count,
        "memory_mb": sum(sorted((row.memory_mb for row in rows if row.seeds_left), reverse=True)[:count]),
    }


def prepare(
    study: str,
    recipe: str | None,
    data: str | Path | None,
    seeds: int,
    out: str | Path | None,
    runs: str | Path,
    overrides: Mapping[str, Any],
) -> tuple[StudyPlan, Path]:
    """The tasks of a study and its result file."""
    target = Path(out or f"results/ablate_{study}.json")
    if target.suffix != ".json" or target.is_dir():
        raise UserError(f"--out {target}: expected a file for the JSON, such as results/ablate_{study}.json.")
    plan = plan_study(study, recipe=recipe, data=data, seeds=seeds, runs=Path(runs), overrides=overrides)
    check_writable(target.parent)
    scores_to_keep(plan, target)
    return plan, target


def known_scores(plan: StudyPlan, target: Path) -> Scores:
    """The scores of finished tasks by identity: of their directories, and of the result files beside the new one."""
    stored = stored_scores(sorted({target, *target.parent.glob("ablate_*.json")}))
    wanted = {task.identity for task in plan.tasks}
    found = {identity: score for identity, score in stored.items() if identity in wanted}
    for task in plan.tasks:
        if file := task.finished():
            found[task.identity] = load(Score, read_json(file))
    return found


def scores_to_keep(plan: StudyPlan, target: Path) -> list[Entry]:
    """The scores in the result file that this call does not want; a `UserError` if it is a file of another kind."""
    try:
        return other_scores(target, {task.identity for task in plan.tasks})
    except UserError as error:
        raise UserError(f"--out {target}: {error}; choose another file, or remove it.") from None


def jobs_of(plan: StudyPlan, found: Scores) -> list[tuple[Path, RowJob]]:
    """What is left to do, a job for each run, which several rows may share."""
    by_home: dict[Path, list[Task]] = {}
    for task in plan.tasks:
        if task.identity not in found:
            by_home.setdefault(task.home, []).append(task)
    return [
        (home, RowJob(tasks[0].config, tasks[0].twin, tuple(dict.fromkeys(task.scoring for task in tasks))))
        for home, tasks in by_home.items()
    ]


def _progress(plan: StudyPlan, found: Scores) -> str:
    """How much of the study is done, counting every seed of a row."""
    return f"{len({task.identity for task in plan.tasks} & found.keys())} of {len(plan.tasks)} scores are there"


def _take(task: Task, problem: str | None, found: Scores, failures: dict[str, str]) -> None:
    """The score of a task whose process has ended, or why there is none."""
    name = f"{task.row.name} (seed {task.seed})"
    file = task.finished()
    if file is None:
        failures[name] = problem or "it wrote no score"
        note(printable(f"{name} failed: {failures[name]}"))
        return
    found[task.identity] = score = load(Score, read_json(file))
    note(
        printable(
            f"{name}: {accuracy(score.correct):.1%} in {score.minutes:.1f} minutes"
            + (", diverged" if score.diverged else "")
        )
    )


def _deliver(
    plan: StudyPlan, found: Scores, failures: Mapping[str, str], others: Sequence[Entry], target: Path
) -> dict[str, Any]:
    """Write what is known so far."""
    result = assemble(plan, found, failures, others)
    if found or failures:
        os.makedirs(target.parent, exist_ok=True)
        write_json(target, result)
        write_text(target.with_suffix(".md"), to_markdown(result))
    return result
