"""The command line: one command per public function, without logic of its own.

Results go to stdout (`--json` makes them machine-readable), progress and messages to stderr.
Exit status: 0 success, 1 user error, 2 bad usage, 130 on Ctrl-C. An error is one sentence; `--traceback` shows where in
the program it came from. What is no user's error and no failure of the machine is a bug: a traceback, then a line that
says where to send it, and status 1.
"""

import os
import select
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from io import TextIOWrapper, UnsupportedOperation
from types import TracebackType
from typing import Annotated, Any, Literal

from fixformer import __version__
from fixformer.cli import (
    bench_verbs,
    corpus_verbs,
    data_verbs,
    export_verb,
    plan_verb,
    serve_verb,
    study_verbs,
    use_verbs,
    watch_verbs,
)
from fixformer.cli.arguments import (
    Checkpoint,
    DataSet,
    DataSettings,
    Device,
    Directory,
    Minutes,
    Model,
    ModelOverrides,
    NewDirectory,
    Number,
    Pixels,
    RunSettings,
    Views,
)
from fixformer.cli.commands import Commands, before_files
from fixformer.errors import Interrupted, SettingsConflict, UsageError, UserError, explain
from fixformer.runtime.console import note, print_error, printable, show

commands = Commands(
    "Video classification whose cost grows linearly with the length and resolution of the video.",
    groups={"bench": "Measure speed and memory on this machine."},
)

# Also in pyproject.toml, where the page of a package index shows it.
ISSUES = "https://github.com/fixformer/fixformer/issues"

# How long a process other than the main one waits to be terminated before it prints its error. The main process may
# be slower by some seconds to start and to meet the same error.
ERROR_DELAY = 10.0


@commands.add("models")
def models(pattern: Annotated[str, "PATTERN"] = "*", *, json: bool = False) -> None:
    """List the models with their numbers of parameters.

    Args:
        pattern: show only matching names, such as "fix*".
        json: print JSON.
    """
    from fixformer.cli.printing import print_models

    print_models(pattern, as_json=json)


@commands.add("cost")
def cost(
    name: Model = "fixformer_base",
    settings: ModelOverrides = (),
    *,
    frames: Number | None = None,
    size: Pixels | None = None,
    table: Literal["paper"] | None = None,
    out: Directory | None = None,
    json: bool = False,
) -> None:
    """Show parameters, GFLOPs and activation memory of a model, part by part.

    Args:
        name: a model, see `fixformer models`.
        settings: settings of the model as name=value, such as fixation=none attention=softmax.
        frames: frames per clip; by default the model's.
        size: height and width in pixels; by default the model's.
        table: recompute Tables 1 and 2 of the paper instead.
        out: directory for the tables and the figure of --table.
        json: print JSON.
    """
    if table:
        from fixformer.cli.print_bench import print_paper_tables

        print_paper_tables(out, as_json=json)
        return
    if out:
        raise SettingsConflict(f"--out {out} is for the tables of --table paper; give both or neither.")
    from fixformer.cli.printing import print_cost
    from fixformer.models.cost import cost as cost_of
    from fixformer.models.registry import parse_settings

    print_cost(cost_of(name, frames, size, **parse_settings(name, settings)), as_json=json)


commands.add("plan")(plan_verb.plan)
commands.add("check")(data_verbs.check)
commands.add("prepare")(data_verbs.prepare)


@commands.add("train")
def train(
    recipe: Annotated[str, "RECIPE"] = "folder",
    settings: RunSettings = (),
    *,
    data: DataSet | None = None,
    output: NewDirectory | None = None,
    init: Checkpoint | None = None,
    resume: bool = False,
    fork: bool = False,
    shard: bool = False,
    minutes: Minutes | None = None,
    folds: Number | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Train a model with a recipe, or with what suits your own videos, and evaluate it.

    Args:
        recipe: a data set in any layout that `fixformer check` accepts, for which everything that is not given is
            chosen and explained, or a recipe, see `fixformer recipes`.
        settings: settings of the recipe as name=value, such as epochs=10 lr=1e-3 size=64 depth=4.
        data: the data set, a directory or an annotation file.
        output: directory of the run; by default runs/RECIPE.
        init: checkpoint or weight file with initial weights.
        resume: continue from the newest checkpoint in the output directory.
        fork: resume although the config has changed.
        shard: divide weights and optimiser state between processes (FSDP, under torchrun).
        minutes: that training on a data set without a recipe should take; 15 if not given. With folds, each of them.
        folds: train and score so many times, each time holding out another part, by group where groups are known.
        dry_run: only print the resolved config, the steps and the estimated memory and time.
        json: print JSON.
    """
    from fixformer.config.schema import words_to_settings
    from fixformer.training.run import plan
    from fixformer.training.run import train as run

    overrides = words_to_settings(settings)
    if dry_run:
        planned = plan(recipe, data=data, output=output, init=init, shard=shard, minutes=minutes, **overrides)
        _print_once(planned.to_json() if json else planned)
        return
    options: dict[str, Any] = {
        "data": data,
        "output": output,
        "init": init,
        "resume": resume,
        "fork": fork,
        "minutes": minutes,
        **overrides,
    }
    if folds is not None:
        from fixformer.training.cross_validation import cross_validate

        if shard:
            raise SettingsConflict(f"--shard needs torchrun, under which --folds {folds} cannot run; leave one out.")
        all_folds = cross_validate(recipe, folds=folds, **options)
        _print_once(all_folds.to_json() if json else all_folds)
        return
    result = run(recipe, shard=shard, **options)
    _print_once(result.to_json() if json else result)
    if not json and _is_main():
        for line in result.next_steps():
            note(printable(line))


@commands.add("recipes")
def recipes(name: Annotated[str, "RECIPE"] = "") -> None:
    """List the recipes of `train`, or describe one: its cost, its expected accuracy and its command.

    Args:
        name: a recipe.
    """
    from fixformer.config.recipes import RECIPES, describe_recipe

    if name:
        show(describe_recipe(name))
        return
    for known in RECIPES:
        summary = describe_recipe(known).partition("\n\n")[0].replace("\n", " ")
        show(f"{known:16}{summary}")


@commands.add("eval")
def evaluate(
    checkpoint: Checkpoint,
    settings: DataSettings = (),
    *,
    data: DataSet | None = None,
    views: Views | None = None,
    aggregate: Literal["logits", "probabilities"] | None = None,
    split: Annotated[str, "SPLIT"] | None = None,
    output: NewDirectory | None = None,
    batch_size: Number | None = None,
    workers: Number | None = None,
    device: Device = "auto",
    json: bool = False,
) -> None:
    """Evaluate a checkpoint on a data set; the accuracy is printed with its protocol.

    Args:
        checkpoint: a checkpoint, or the directory of a run.
        settings: settings of the data as name=value, such as labels=names.txt kind=csv recording_set=1.
        data: directory or annotation file; by default the data of the run.
        views: views of each video, such as 2x3; by default the recipe's.
        aggregate: sum the logits of the views or average their probabilities; by default the recipe's.
        split: by default validation if it has labels, otherwise test.
        output: directory for evaluation.json, predictions.jsonl, charts and report.html.
        batch_size: videos per batch; by default the recipe's.
        workers: decoding processes; by default the recipe's.
        device: auto, cpu, cuda or cuda:NUMBER.
        json: print JSON.
    """
    from fixformer.config.overrides import words_to_data_settings
    from fixformer.evaluation.evaluate import evaluate as run
    from fixformer.runtime.progress import progress

    data_settings = words_to_data_settings(settings)
    with progress("scoring videos") if _is_main() else nullcontext() as report:
        result = run(
            checkpoint,
            data=data,
            views=views,
            aggregate=aggregate,
            split=split,
            output=output,
            batch_size=batch_size,
            workers=workers,
            device=device,
            progress=report,
            **data_settings,
        )
    _print_once(result.to_json() if json else result)


commands.add("predict")(use_verbs.predict)
commands.add("timeline")(watch_verbs.timeline)
commands.add("explain")(watch_verbs.explain)
commands.add("export")(export_verb.export)
commands.add("doctor")(use_verbs.doctor)
commands.add("label")(corpus_verbs.label)
commands.add("serve")(serve_verb.serve)
commands.add("ablate")(study_verbs.ablate)
commands.add("bench model")(bench_verbs.bench_model)
commands.add("bench grid")(bench_verbs.bench_grid)
commands.add("bench attention")(bench_verbs.bench_attention)
commands.add("bench chunked")(bench_verbs.bench_chunked)
commands.add("bench data")(bench_verbs.bench_data)
commands.add("bench train")(bench_verbs.bench_train)
commands.add("bench busy")(bench_verbs.bench_busy)
commands.add("bench compile")(bench_verbs.bench_compile)
commands.add("bench parts")(bench_verbs.bench_parts)


def _is_main() -> bool:
    """Whether this is the only process, or the main one of those torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def _print_once(result: object) -> None:
    """Print the common result of all processes; a dict as JSON."""
    from fixformer.runtime.console import print_json

    if _is_main():
        print_json(result) if isinstance(result, dict) else show(str(result))


def _print_error_once(error: object) -> None:
    """Print an error once, although under torchrun every process may meet it.

    When the main process prints its error and exits, torchrun terminates the others. So the others wait for that, and
    one that is still alive afterwards has an error of its own. The waits differ, so that of several such processes on
    one machine only the first prints.
    """
    if not _is_main():
        time.sleep(ERROR_DELAY + int(os.environ.get("LOCAL_RANK", "0")))
    print_error(error)


def _prepare_streams() -> None:
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed by the caller, as in `fixformer models >&-`
            setattr(sys, stream, open(os.devnull, "w"))  # noqa: SIM115 (until the program ends)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # the terminal may not encode names of files and classes


def _report_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What Python does with an error that nobody caught: here it is one that we did not think of."""
    sys.__excepthook__(kind, error, trace)
    print_error(f"this is a bug in fixformer {__version__}; please send the lines above to {ISSUES}.")


def main(args: Sequence[str] | None = None) -> None:
    """Entry point of the `fixformer` command."""
    _prepare_streams()
    words = list(sys.argv[1:] if args is None else args)
    own = before_files(words)
    kept = [word for word in own if word != "--traceback"]
    shows_traceback = len(kept) < len(own)
    if args is None:
        sys.excepthook = _report_bug
        if not shows_traceback:
            sys.unraisablehook = lambda complaint: None  # libraries complain when they clean up after an error
            warnings.filterwarnings("ignore", "This DataLoader will create")  # `affordable_workers` has its own limit
    try:
        status = _attempt([*kept, *words[len(own) :]], shows_traceback)
    finally:
        problem = _flush_output()
    if isinstance(problem, OSError) and not isinstance(problem, BrokenPipeError):
        print_error(explain(problem))
        status = status or 1
    if status:
        raise SystemExit(status)


def _attempt(words: list[str], shows_traceback: bool) -> int:
    """Run a command; print its error, if it has one a user can do something about, and return the exit status."""
    try:
        _run(words)
    except Interrupted as interrupted:  # raised by all processes at the same step
        if _is_main():
            print_error(interrupted)
        return interrupted.status
    except KeyboardInterrupt:
        return 130
    except (UserError, OSError, MemoryError, OverflowError, ImportError, RuntimeError) as error:
        sentence = explain(error)
        if sentence is None:
            raise
        if isinstance(error, BrokenPipeError) and _reader_is_gone():
            return 0  # the reader of the results has seen enough, as in `fixformer models | head`
        if shows_traceback:
            traceback.print_exception(error)
        _print_error_once(sentence)
        return 2 if isinstance(error, UsageError) else 1
    return 0


def _reader_is_gone() -> bool:
    """Whether stdout is a pipe that nobody reads any more; there are other pipes, which must not break silently."""
    with suppress(UnsupportedOperation):  # stdout is no file
        watch = select.poll()
        watch.register(sys.stdout.fileno(), 0)
        return any(flags & (select.POLLERR | select.POLLHUP) for _, flags in watch.poll(0))
    return False


def _flush_output() -> OSError | None:
    """Write what is left of the results, or return why that is not possible; then nothing more is written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter fails again when it ends
        return error
    return None


def _run(words: list[str]) -> None:
    if words[:1] in (["--version"], ["version"]):
        show(f"fixformer {__version__}")
    else:
        commands.run(words)


if __name__ == "__main__":
    main()
