"""From a study's name and a command line to its tasks: every row with every seed, checked before any is trained."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fixformer.config import TrainConfig
from fixformer.data.listing import UNLABELLED, Index
from fixformer.errors import SettingsConflict, UserError
from fixformer.experiments.row_identity import (
    Contents,
    Scoring,
    resolve_row,
    row_key,
    scoring_key,
    split_contents,
    training_config,
)
from fixformer.experiments.row_worker import RUN, Score, score_file
from fixformer.experiments.studies import Row, Study, find_study
from fixformer.training.initialise import check_stage_sizes
from fixformer.training.plan import Plan, make_plan
from fixformer.training.request import AUTO, load_checked_index, resolve_config

# Minutes a row on one core, so that a whole study is an evening's work.
DEFAULT_RECIPE = "ablate_frozen"
# Every row starts fresh, or they would not start alike.
REFUSED = {"seed": "--seeds", "output": "--out", "init": "nothing: all rows start from the same fresh weights"}


@dataclass(frozen=True)
class Task:
    """One row with one seed.

    Args:
        config: that is trained.
        twin: whose initial weights it shares: the base itself, with the row's seed.
        shown: the complete config of the row, with its views.
        home: directory of everything that is written for it, by its key; rows with one key are one run.
        identity: of the trained weights and of the scoring; a finished task is known by it.
    """

    row: Row
    seed: int
    config: TrainConfig
    twin: TrainConfig
    shown: TrainConfig
    scoring: Scoring
    home: Path
    identity: str
    index: Index

    def finished(self) -> Path | None:
        """The file of its score, if there is one."""
        file = score_file(self.home, self.scoring)
        return file if file.is_file() else None


@dataclass(frozen=True)
class StudyPlan:
    """All tasks of a study, in their order: every row with the first seed, then with the second."""

    study: Study
    recipe: str
    data: str
    seeds: tuple[int, ...]
    overrides: dict[str, Any]
    tasks: list[Task]

    @property
    def command(self) -> str:
        """The command line that repeats it, with the data by its name."""
        recipe = f" --recipe {self.recipe}" if self.recipe else ""
        settings = "".join(f" {shlex.quote(f'{name}={value}')}" for name, value in self.overrides.items())
        data = shlex.quote(Path(self.data).name)
        return f"fixformer ablate {self.study.name}{recipe} --data {data} --seeds {len(self.seeds)}{settings}"


def plan_study(
    name: str,
    *,
    recipe: str | None,
    data: str | Path | None,
    seeds: int,
    runs: Path,
    overrides: Mapping[str, Any],
) -> StudyPlan:
    """The tasks of a study; a `UserError` for whatever would stop one of them later."""
    study = find_study(name)
    has_own = any(row.recipe for row in study.rows)
    if has_own and recipe:
        raise SettingsConflict(f"--recipe {recipe}: the rows of study {name} have their own recipes; leave it out.")
    for setting, instead in REFUSED.items():
        if setting in overrides:
            raise UserError(f"{setting}={overrides[setting]} cannot be given to a study; use {instead}.")
    chosen = recipe or DEFAULT_RECIPE
    names = dict.fromkeys(row.recipe or chosen for row in study.rows)
    bases = {one: resolve_config(one, data=data, output=runs, **overrides) for one in names}
    if any(base.recipe == AUTO for base in bases.values()):  # also what a data set in its place means
        raise SettingsConflict(f"--recipe {recipe} chooses by the machine, so rows would differ; give another recipe.")
    for base in bases.values():
        _check_one_process(base)
    indexes = {one: load_checked_index(base) for one, base in bases.items()}
    contents = {one: split_contents(indexes[one], score_split(indexes[one]), base.data) for one, base in bases.items()}
    tasks = []
    for seed in range(seeds):
        for row in study.rows:
            one = row.recipe or chosen
            tasks.append(_task(row, seed, bases[one], indexes[one], contents[one], runs))
    for task in tasks[: len(study.rows)]:
        try:
            check_stage_sizes(task.config, len(task.index.labels))
        except UserError as error:
            raise UserError(f"row {task.row.name!r}: {error}") from None
    path = next(iter(bases.values())).data.path
    return StudyPlan(study, "" if has_own else chosen, path, tuple(range(seeds)), dict(overrides), tasks)


def _check_one_process(base: TrainConfig) -> None:
    """Rows run side by side, and their minutes are compared: a row that takes more cores is refused, not cut down."""
    for name, value in (("processes", base.run.processes), ("threads", base.run.threads)):
        if value is not None and value > 1:
            raise SettingsConflict(
                f"run.{name}={value}: a row of a study is one process of one thread; leave it out, and give "
                "--processes to say how many rows are trained at a time."
            )


def _task(row: Row, seed: int, base: TrainConfig, index: Index, contents: Contents, runs: Path) -> Task:
    shown = resolve_row(replace(base, seed=seed), row)
    scoring = Scoring(score_split(index), shown.eval.views, shown.eval.aggregate)
    try:
        config = training_config(shown, index)
        twin = training_config(resolve_row(replace(base, seed=seed), Row("")), index)
        key = row_key(config, twin, index, contents)
    except UserError as error:
        raise UserError(f"row {row.name!r}: {error}") from None
    home = runs / key
    return Task(
        row=row,
        seed=seed,
        config=replace(config, output=str(home / RUN)),
        twin=twin,
        shown=shown,
        scoring=scoring,
        home=home,
        identity=f"{key}/{scoring_key(scoring, index, contents)}",
        index=index,
    )


def score_split(index: Index) -> str:
    """The test split, which nothing was tuned on; the one that runs are scored on if the set has no other."""
    has_test = any(sample.label != UNLABELLED for sample in index.split("test"))
    return "test" if has_test else index.eval_split


@dataclass(frozen=True)
class RowEstimate:
    """What one row takes in one process with one seed; None where it is finished or another row's run."""

    row: str
    settings: dict[str, Any]
    seeds_left: int
    minutes: float
    memory_mb: float
    params: int


def estimate_rows(plan: StudyPlan, known: Mapping[str, Score]) -> Iterator[RowEstimate]:
    """Time and memory of each row. A run that several rows share is counted with the first of them."""
    counted: set[Path] = set()
    for row in plan.study.rows:
        tasks = [task for task in plan.tasks if task.row == row]
        left = [task for task in tasks if task.identity not in known and task.home not in counted]
        counted |= {task.home for task in left}
        estimate: Plan = make_plan(tasks[0].shown, tasks[0].index)
        yield RowEstimate(
            row=row.name,
            settings=row_settings(tasks[0]),
            seeds_left=len(left),
            minutes=60 * estimate.hours,
            memory_mb=estimate.memory_mb + estimate.host_mb,
            params=estimate.params,
        )


def row_settings(task: Task) -> dict[str, Any]:
    """The settings of a row as they are, proportions resolved."""
    found = {}
    for name in task.row.settings:
        value: Any = task.shown
        for part in name.split("."):
            value = getattr(value, part, None)
        found[name] = task.row.settings[name] if value is None else value
    return found
