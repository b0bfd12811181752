"""The verb `ablate`."""

from typing import Annotated, Any

from fixformer.cli.arguments import DataSet, NewDirectory, Number, RunSettings
from fixformer.config.schema import Expect
from fixformer.runtime.console import print_json, show

NewFile = Annotated[str, "FILE", Expect("a path", bool)]


def ablate(
    study: Annotated[str, "STUDY"],
    settings: RunSettings = (),
    *,
    recipe: Annotated[str, "RECIPE"] | None = None,
    data: DataSet | None = None,
    seeds: Number = 3,
    out: NewFile | None = None,
    runs: NewDirectory = "runs/ablate",
    processes: Number | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Train the rows of one of the paper's tables and compare them, with intervals over seeds and over test videos.

    Rows are processes, one a core. A finished row is never trained again; an interrupted study goes on when it is run
    again.

    Args:
        study: modules, fixation, merge, kernel, pattern, variants, order, shift, application, attention, views, beyond
            or pilot.
        settings: settings of the recipe for all rows, as name=value.
        recipe: the base of the rows; ablate_frozen if not given.
        data: the data set. Its test split, or else its validation split, is scored once for every row.
        seeds: how many; every row gets its first before any gets its second.
        out: the JSON file, with Markdown and a figure beside it; by default results/ablate_STUDY.json.
        runs: directory of the runs, which all studies share.
        processes: at a time, each of one thread; by default one a core.
        dry_run: only print the rows, and the estimated time and memory.
        json: print JSON.
    """
    from fixformer.config.schema import words_to_settings
    from fixformer.experiments import ablate as studies
    from fixformer.experiments.study_report import to_markdown

    arguments: dict[str, Any] = {
        **{"recipe": recipe, "data": data, "seeds": seeds, "out": out, "runs": runs, "processes": processes},
        **words_to_settings(settings),
    }
    if dry_run:
        planned = studies.dry_run(study, **arguments)
        if json:
            print_json(planned)
        else:
            _print_plan(planned)
        return
    result = studies.ablate(study, **arguments)
    print_json(result) if json else show(to_markdown(result).rstrip())


def _print_plan(planned: dict[str, Any]) -> None:
    """The rows with their cost, and that of the whole."""
    from rich.table import Table

    from fixformer.runtime.console import console

    table = Table("row", "settings", "seeds to do", "minutes each", "memory GB", "params M", box=None)
    for row in planned["rows"]:
        settings = " ".join(f"{name.rpartition('.')[2]}={value}" for name, value in row["settings"].items())
        sizes = (f"{row['minutes']:.1f}", f"{row['memory_mb'] / 1024:.1f}", f"{row['params'] / 1e6:.2f}")
        table.add_row(row["row"], settings, str(row["seeds_left"]), *sizes)
    console().print(table)
    show(
        f"estimated: {planned['hours']:.1f} hours with {planned['processes']} processes, "
        f"{planned['memory_mb'] / 1024:.1f} GB for them, result in {planned['out']}"
    )
