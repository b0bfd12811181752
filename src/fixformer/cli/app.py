"""The command line: one verb per public function, no logic of its own.

Results go to stdout (`--json` makes them machine-readable), progress and prose to stderr.
Exit status: 0 done, 1 a user error, 2 bad usage, 130 on Ctrl-C.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Literal

from tyro.conf import Positional
from tyro.extras import SubcommandApp

from fixformer.cli.bench_verbs import bench
from fixformer.cli.data_verbs import check, prepare
from fixformer.errors import Stopped, UserError

app = SubcommandApp()


@app.command
def models(pattern: Positional[str] = "*", *, json: bool = False) -> None:
    """List the models, with their parameters.

    Args:
        pattern: show only names that match, such as "fix*".
        json: print JSON.
    """
    from fixformer.cli.printing import print_models

    print_models(pattern, as_json=json)


@app.command
def cost(
    name: Positional[str] = "fixformer_base",
    settings: Positional[tuple[str, ...]] = (),
    *,
    frames: int | None = None,
    size: int | None = None,
    table: str | None = None,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Parameters, GFLOPs and activation memory of a model, part by part.

    Args:
        name: a model, see `fixformer models`.
        settings: overrides as key=value, such as fixation=none attention=softmax.
        frames: frames of the clip.
        size: pixels of its side.
        table: "paper": the Tables 1 and 2 of the paper, counted again, in place of one model.
        out: directory for the tables and the figure of --table.
        json: print JSON.
    """
    if table:
        from fixformer.bench.paper_tables import cost_table

        cost_table(table, out, as_json=json)
        return
    from fixformer.cli.printing import print_cost
    from fixformer.models.cost import cost as cost_of
    from fixformer.models.registry import parse_settings

    print_cost(cost_of(name, frames, size, **parse_settings(settings)), as_json=json)


app.command(check)
app.command(prepare)


@app.command
def train(
    recipe: Positional[str] = "folder",
    settings: Positional[tuple[str, ...]] = (),
    *,
    data: str | None = None,
    output: str | None = None,
    init: str | None = None,
    resume: bool = False,
    fork: bool = False,
    shard: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Train a model by a recipe, and evaluate it.

    Args:
        recipe: a name of `fixformer recipes`, or a directory of class folders.
        settings: any setting of the recipe as name=value, such as epochs=10 lr=1e-3 size=64 depth=4.
        data: directory or annotation file.
        output: directory of the run; runs/RECIPE if not given.
        init: checkpoint or weight file to start from.
        resume: go on from the newest checkpoint in the output directory.
        fork: go on although the config has changed.
        shard: divide weights and optimiser state between processes (under torchrun).
        dry_run: print the resolved config, steps, predicted memory and time, and stop.
        json: print JSON.
    """
    from fixformer.config.overrides import words_to_settings
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
def recipes(name: Positional[str] = "") -> None:
    """List the recipes of `train`, or say everything about one: what it costs, what it gives, how it is started.

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
    checkpoint: Positional[str],
    settings: Positional[tuple[str, ...]] = (),
    *,
    data: str | None = None,
    views: str | None = None,
    aggregate: Literal["logits", "probabilities"] | None = None,
    split: str | None = None,
    output: str | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    device: str = "auto",
    json: bool = False,
) -> None:
    """Score a checkpoint on a data set, with the protocol of the number beside it.

    Args:
        checkpoint: a checkpoint, or the directory of a run.
        settings: of the data as name=value, such as labels=names.txt kind=csv recording_set=1.
        data: directory or annotation file; what the run was trained with if not given.
        views: CLIPSxCROPS, such as 2x3; the recipe's if not given.
        aggregate: sum the logits of the views or average their probabilities.
        split: validation if it is labelled, otherwise test.
        output: where to write evaluation.json, predictions.jsonl, pictures and report.html.
        batch_size: videos at a time.
        workers: decoding processes.
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
    checkpoint: Positional[str],
    files: Positional[tuple[str, ...]],
    *,
    views: str | None = None,
    top_k: int = 5,
    device: str = "auto",
    json: bool = False,
) -> None:
    """Classify videos with the preprocessing of the checkpoint; exit status 1 if one cannot be read.

    Args:
        checkpoint: a checkpoint, or the directory of a run.
        files: videos.
        views: CLIPSxCROPS, such as 2x3; the recipe's if not given.
        top_k: how many guesses to show.
        device: auto, cpu or cuda.
        json: print JSON.
    """
    from fixformer.cli.printing import print_prediction
    from fixformer.evaluation.predictor import load
    from fixformer.runtime.console import print_json

    if not files:
        raise UserError("no video to classify; give one or more files after the checkpoint.")
    classifier = load(checkpoint, device=device)
    predictions = []
    for found in classifier.predict_each(files, views=views, top_k=top_k):
        if isinstance(found, UserError):
            print(f"fixformer: {found}", file=sys.stderr)
            continue
        predictions.append(found.to_json())
        if not json:
            print_prediction(found)
    if json:
        print_json(predictions)
    if len(predictions) < len(files):
        raise SystemExit(1)


app.command(bench, name="bench", help="Measure speed and memory on this machine.")


def _is_main() -> bool:
    """Of all processes that torchrun started, one speaks."""
    return os.environ.get("RANK", "0") == "0"


def _print_once(result: object) -> None:
    """A result of all processes together; a table as JSON."""
    from fixformer.runtime.console import print_json

    if _is_main():
        print_json(result) if isinstance(result, dict) else print(result)


def _settings_together(words: list[str]) -> list[str]:
    """Settings of `train` and `eval` may stand on both sides of options; the parser wants them in one place."""
    verb = {"train": train, "eval": evaluate}.get(words[0] if words else "")
    if verb is None:
        return words
    switches = {f"--{name.replace('_', '-')}" for name, kind in verb.__annotations__.items() if kind is bool}
    places, options = [words[0]], []
    rest = iter(words[1:])
    for word in rest:
        if not word.startswith("-"):
            places.append(word)
            continue
        options.append(word)
        if word.startswith("--") and "=" not in word and word not in switches and not word.startswith("--no-"):
            options += islice(rest, 1)
    return places + options


def main(args: Sequence[str] | None = None) -> None:
    """Entry point of the `fixformer` command."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files and classes need not fit the terminal
    try:
        words = _settings_together(list(sys.argv[1:] if args is None else args))
        app.cli(prog="fixformer", description=_DESCRIPTION, args=words)
    except UserError as error:
        print(f"fixformer: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except Stopped as stopped:
        print(f"fixformer: {stopped}", file=sys.stderr)
        raise SystemExit(stopped.status) from None
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone, as in `fixformer models | head`
        raise SystemExit(0) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


_DESCRIPTION = "Video classification whose cost grows linearly with the length and resolution of the video."

if __name__ == "__main__":
    main()
