"""The command line: one command per public function, without logic of its own.

Results go to stdout (`--json` makes them machine-readable), progress and messages to stderr.
Exit status: 0 success, 1 user error, 2 bad usage, 130 on Ctrl-C.
"""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from io import TextIOWrapper
from itertools import islice
from typing import Annotated, Literal

from tyro.conf import Positional, arg
from tyro.extras import SubcommandApp

from fixformer.cli.arguments import Checkpoint, Number, PathOption, SettingWords, Text
from fixformer.cli.bench_verbs import bench
from fixformer.cli.data_verbs import check, prepare
from fixformer.errors import Interrupted, UserError

app = SubcommandApp()

# How long a process other than the main one waits to be terminated before it prints its error. The main process may
# be slower by some seconds to start and to meet the same error.
ERROR_DELAY = 10.0


@app.command
def models(pattern: Positional[Annotated[str, arg(metavar="[PATTERN]")]] = "*", *, json: bool = False) -> None:
    """List the models with their numbers of parameters.

    Args:
        pattern: show only matching names, such as "fix*".
        json: print JSON.
    """
    from fixformer.cli.printing import print_models

    print_models(pattern, as_json=json)


@app.command
def cost(
    name: Positional[Annotated[str, arg(metavar="[MODEL]")]] = "fixformer_base",
    settings: SettingWords = (),
    *,
    frames: Number = None,
    size: Number = None,
    table: Text = None,
    out: PathOption = None,
    json: bool = False,
) -> None:
    """Show parameters, GFLOPs and activation memory of a model, part by part.

    Args:
        name: a model, see `fixformer models`.
        settings: settings of the model as name=value, such as fixation=none attention=softmax.
        frames: frames per clip; by default the model's.
        size: height and width in pixels; by default the model's.
        table: "paper" recomputes Tables 1 and 2 of the paper instead.
        out: directory for the tables and the figure of --table.
        json: print JSON.
    """
    if table:
        from fixformer.cli.print_bench import print_paper_tables

        print_paper_tables(table, out, as_json=json)
        return
    from fixformer.cli.printing import print_cost
    from fixformer.models.cost import cost as cost_of
    from fixformer.models.registry import parse_settings

    print_cost(cost_of(name, frames, size, **parse_settings(name, settings)), as_json=json)


app.command(check)
app.command(prepare)


@app.command
def train(
    recipe: Positional[Annotated[str, arg(metavar="[RECIPE]")]] = "folder",
    settings: SettingWords = (),
    *,
    data: Text = None,
    output: Text = None,
    init: Text = None,
    resume: bool = False,
    fork: bool = False,
    shard: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Train a model with a recipe and evaluate it.

    Args:
        recipe: a recipe, see `fixformer recipes`, or a directory of class folders.
        settings: settings of the recipe as name=value, such as epochs=10 lr=1e-3 size=64 depth=4.
        data: directory or annotation file.
        output: directory of the run; by default runs/RECIPE.
        init: checkpoint or weight file with initial weights.
        resume: continue from the newest checkpoint in the output directory.
        fork: resume although the config has changed.
        shard: divide weights and optimiser state between processes (FSDP, under torchrun).
        dry_run: only print the resolved config, the steps and the estimated memory and time.
        json: print JSON.
    """
    from fixformer.config.schema import words_to_settings
    from fixformer.training.run import plan
    from fixformer.training.run import train as run

    overrides = words_to_settings(settings)
    if dry_run:
        planned = plan(recipe, data=data, output=output, init=init, shard=shard, **overrides)
        _print_once(planned.to_json() if json else planned)
        return
    result = run(recipe, data=data, output=output, init=init, resume=resume, fork=fork, shard=shard, **overrides)
    _print_once(result.to_json() if json else result.evaluation)


@app.command
def recipes(name: Positional[Annotated[str, arg(metavar="[RECIPE]", help_behavior_hint="")]] = "") -> None:
    """List the recipes of `train`, or describe one: its cost, its expected accuracy and its command.

    Args:
        name: a recipe.
    """
    from fixformer.config.recipes import RECIPES, describe_recipe

    if name:
        print(describe_recipe(name))
        return
    for known in RECIPES:
        summary = describe_recipe(known).partition("\n\n")[0].replace("\n", " ")
        print(f"{known:16}{summary}")


@app.command(name="eval")
def evaluate(
    checkpoint: Checkpoint,
    settings: SettingWords = (),
    *,
    data: Text = None,
    views: Text = None,
    aggregate: Annotated[Literal["logits", "probabilities"] | None, arg(help_behavior_hint="")] = None,
    split: Text = None,
    output: Text = None,
    batch_size: Number = None,
    workers: Number = None,
    device: str = "auto",
    json: bool = False,
) -> None:
    """Evaluate a checkpoint on a data set; the accuracy is printed with its protocol.

    Args:
        checkpoint: a checkpoint, or the directory of a run.
        settings: settings of the data as name=value, such as labels=names.txt kind=csv recording_set=1.
        data: directory or annotation file; by default the data of the run.
        views: CLIPSxCROPS, such as 2x3; by default the recipe's.
        aggregate: sum the logits of the views or average their probabilities; by default the recipe's.
        split: by default validation if it has labels, otherwise test.
        output: directory for evaluation.json, predictions.jsonl, charts and report.html.
        batch_size: videos per batch; by default the recipe's.
        workers: decoding processes; by default the recipe's.
        device: auto, cpu or cuda.
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


@app.command
def predict(
    checkpoint: Checkpoint,
    files: Positional[Annotated[tuple[str, ...], arg(metavar="VIDEO [VIDEO ...]")]],
    *,
    views: Text = None,
    top_k: int = 5,
    device: str = "auto",
    json: bool = False,
) -> None:
    """Classify videos with a checkpoint; exit status 1 if one cannot be read.

    Args:
        checkpoint: a checkpoint, or the directory of a run.
        files: video files.
        views: CLIPSxCROPS, such as 2x3; by default the recipe's.
        top_k: number of classes to show.
        device: auto, cpu or cuda.
        json: print JSON.
    """
    from fixformer.cli.printing import print_prediction
    from fixformer.evaluation.predictor import load
    from fixformer.runtime.console import print_json
    from fixformer.runtime.progress import progress

    if not files:
        raise UserError("no video files given; list them after the checkpoint.")
    classifier = load(checkpoint, device=device)
    rows, failed = [], 0
    with progress("classifying videos") if json else nullcontext() as report:
        for found in classifier.predict_each(files, views=views, top_k=top_k):
            rows.append(found.to_json())
            if isinstance(found, UserError):
                failed += 1
                _print_error(found)
            elif not json:
                print_prediction(found)
                sys.stdout.flush()  # one after the other, also through a pipe
            if report:
                report(len(rows), len(files))
    if json:
        print_json(rows)
    if failed:
        raise SystemExit(1)


app.command(bench, name="bench", help="Measure speed and memory on this machine.")


def _is_main() -> bool:
    """Whether this is the only process, or the main one of those torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def _print_once(result: object) -> None:
    """Print the common result of all processes; a dict as JSON."""
    from fixformer.runtime.console import print_json

    if _is_main():
        print_json(result) if isinstance(result, dict) else print(result)


def _print_error(message: object) -> None:
    print(f"fixformer: {message}", file=sys.stderr, flush=True)


def _print_user_error(error: UserError) -> None:
    """Print an error once, although under torchrun every process may meet it.

    When the main process prints its error and exits, torchrun terminates the others. So the others wait for that, and
    one that is still alive afterwards has an error of its own. The waits differ, so that of several such processes on
    one machine only the first prints.
    """
    if not _is_main():
        time.sleep(ERROR_DELAY + int(os.environ.get("LOCAL_RANK", "0")))
    _print_error(error)


def _settings_first(words: list[str]) -> list[str]:
    """Move the name=value settings of `train` and `eval` before the options, where the parser expects them."""
    command = {"train": train, "eval": evaluate}.get(words[0] if words else "")
    if command is None:
        return words
    switches = {f"--{name.replace('_', '-')}" for name, kind in command.__annotations__.items() if kind is bool}
    positional, options = [words[0]], []
    rest = iter(words[1:])
    for word in rest:
        if not word.startswith("-"):
            positional.append(word)
            continue
        options.append(word)
        if word.startswith("--") and "=" not in word and word not in switches and not word.startswith("--no-"):
            options += islice(rest, 1)
    return positional + options


def main(args: Sequence[str] | None = None) -> None:
    """Entry point of the `fixformer` command."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # the terminal may not encode names of files and classes
    try:
        words = _settings_first(list(sys.argv[1:] if args is None else args))
        app.cli(prog="fixformer", description=_DESCRIPTION, args=words)
    except UserError as error:
        _print_user_error(error)
        raise SystemExit(1) from None
    except Interrupted as interrupted:  # raised by all processes at the same step
        if _is_main():
            _print_error(interrupted)
        raise SystemExit(interrupted.status) from None
    except BrokenPipeError:
        sys.stderr.close()  # the pipe was closed by its reader, as in `fixformer models | head`
        raise SystemExit(0) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


_DESCRIPTION = "Video classification whose cost grows linearly with the length and resolution of the video."

if __name__ == "__main__":
    main()
