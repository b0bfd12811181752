"""The result of a study, complete or so far, as JSON: scores by row and seed, means, comparisons, verdicts."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from fixformer.config.schema import coerce, load
from fixformer.errors import UserError
from fixformer.experiments.row_identity import NUMERICS
from fixformer.experiments.row_worker import Score
from fixformer.experiments.studies import Row
from fixformer.experiments.study_plan import StudyPlan, Task, row_settings
from fixformer.experiments.study_statistics import accuracy, cells_of, compare, mean_and_error
from fixformer.runtime.console import note, printable
from fixformer.runtime.files import read_json
from fixformer.runtime.machine import cpu_name
from fixformer.runtime.pools import processors

Scores = dict[str, Score]  # by the identity of the task
Entry = dict[str, Any]  # a score in a file, with its identity and what it is of


def assemble(
    plan: StudyPlan, found: Scores, failures: Mapping[str, str], others: Sequence[Entry] = ()
) -> dict[str, Any]:
    """The result of the tasks that are finished.

    Args:
        failures: why a row has no score, by its name and seed.
        others: scores of other calls, which are kept.
    """
    study, first = plan.study, plan.tasks[0]
    videos = first.index.split(first.scoring.split)
    cells = cells_of(videos)
    by_row = {row.name: [task for task in plan.tasks if task.row == row] for row in study.rows}
    return {
        "study": study.name,
        "about": study.about,
        "source": study.source,
        "note": study.note,
        "command": plan.command,
        "recipe": plan.recipe,
        "seeds": list(plan.seeds),
        "split": first.scoring.split,
        "videos": len(videos),
        # the cell of each video, in the order of `correct`; null where every video is one
        "cells": cells if len(set(cells)) < len(cells) else None,
        "train_videos": len(first.index.split("train")),
        "classes": len(first.index.labels),
        "numerics": NUMERICS,
        "machine": f"{processors()} cores of {cpu_name()}",
        "complete": all(task.identity in found for task in plan.tasks),
        "failures": dict(failures),
        "rows": [_row(plan, row, by_row, found) for row in study.rows],
        "other_scores": list(others),
    }


def _row(plan: StudyPlan, row: Row, by_row: Mapping[str, list[Task]], found: Scores) -> dict[str, Any]:
    tasks = by_row[row.name]
    done = [(task, found[task.identity]) for task in tasks if task.identity in found]
    tops = [accuracy(score.correct) for _, score in done]
    return {
        "name": row.name,
        "settings": row_settings(tasks[0]),
        "recipe": tasks[0].shown.recipe,
        "paper": row.paper,
        "claim": row.claim,
        "minutes": sum(score.minutes for _, score in done) / len(done) if done else None,
        **(mean_and_error(tops) if tops else {"mean": None, "standard_error": None}),
        "diverged": sum(score.diverged is not None for _, score in done),
        "seeds": [
            {"seed": task.seed, "identity": task.identity, "top1": top, **asdict(score)}
            for (task, score), top in zip(done, tops, strict=True)
        ],
        "comparison": _comparison(plan, row, by_row, found),
    }


def _comparison(plan: StudyPlan, row: Row, by_row: Mapping[str, list[Task]], found: Scores) -> dict[str, Any] | None:
    """The row beside the one it is compared with, over the seeds that both have."""
    other = plan.study.against(row)
    if other is None:
        return None
    first = by_row[row.name][0]
    pairs = [
        (found[one.identity], found[two.identity])
        for one, two in zip(by_row[row.name], by_row[other.name], strict=True)
        if one.identity in found and two.identity in found
    ]
    if not pairs:
        return None
    compared = compare(
        [one.correct for one, _ in pairs],
        [two.correct for _, two in pairs],
        cells=cells_of(first.index.split(first.scoring.split)),
        against=other.name,
        paper_difference=plan.study.paper_difference(row),
        minutes=sum(one.minutes + two.minutes for one, two in pairs),
    )
    return asdict(compared)


def stored_scores(files: Iterable[Path]) -> Scores:
    """The scores in result files; one that is missing or damaged has none."""
    found: Scores = {}
    for file in files:
        if not file.exists():
            continue
        try:
            found |= {entry["identity"]: _score_of(entry) for entry in _entries(file)}
        except UserError as error:
            note(printable(f"{file} is not used: {error}"))
    return found


def other_scores(file: Path, wanted: Collection[str]) -> list[Entry]:
    """What a result file holds beside the scores that are wanted; a `UserError` if it is another file."""
    return [entry for entry in _entries(file) if entry["identity"] not in wanted] if file.exists() else []


def _entries(file: Path) -> list[Entry]:
    """All scores of a file, of its rows first, each once, with the row and the command that it is of."""
    try:
        result = coerce(read_json(file), dict, "result")
        rows = [coerce(row, dict, "row") for row in coerce(result.get("rows"), list, "rows")]
        found = [
            {"row": row.get("name"), "command": result.get("command"), **coerce(entry, dict, "score")}
            for row in rows
            for entry in row["seeds"]
        ]
        found += [coerce(entry, dict, "score") for entry in coerce(result.get("other_scores", []), list, "scores")]
        for entry in found:
            coerce(entry["identity"], str, "identity")
            _score_of(entry)
    except (UserError, KeyError, TypeError) as error:
        raise UserError(f"it is no result of a study ({error})") from None
    return list({entry["identity"]: entry for entry in reversed(found)}.values())[::-1]


def _score_of(entry: Entry) -> Score:
    names = {item.name for item in fields(Score)}
    return load(Score, {name: value for name, value in entry.items() if name in names})
