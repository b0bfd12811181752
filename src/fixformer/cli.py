"""The command line: one verb per public function, no logic of its own.

Results go to stdout (`--json` makes them machine-readable), progress and prose to stderr.
Exit status: 0 done, 1 a user error, 2 bad usage, 130 on Ctrl-C.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from tyro.conf import Positional
from tyro.extras import SubcommandApp

from fixformer.errors import UserError

app = SubcommandApp()
bench = SubcommandApp()


@app.command
def models(pattern: Positional[str] = "*", *, json: bool = False) -> None:
    """List the models, with their parameters.

    Args:
        pattern: show only names that match, such as "fix*".
        json: print JSON.
    """
    from fixformer.bench.show import print_models

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
    from fixformer.bench.cost import cost as cost_of
    from fixformer.bench.show import print_cost
    from fixformer.models.registry import parse_settings

    print_cost(cost_of(name, frames, size, **parse_settings(settings)), as_json=json)


@bench.command(name="model")
def bench_model(
    name: Positional[str] = "fixformer_base",
    *,
    frames: tuple[int, ...] = (16, 32, 64, 96),
    sizes: tuple[int, ...] = (224, 336, 448),
    threads: int = 2,
    rounds: int = 2,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Time and memory of a model, its softmax twin and plain matrix products, side by side.

    Args:
        name: a model, see `fixformer models`.
        frames: numbers of frames.
        sizes: sides in pixels; every frame count is run at every size.
        threads: processor threads.
        rounds: how often the whole table is run.
        out: where to write the JSON; a PNG is drawn beside it.
        json: print JSON.
    """
    from fixformer.bench import model as bench
    from fixformer.bench.show import print_json
    from fixformer.files import write_json

    result = bench.bench_model(name, frames, sizes, threads, rounds)
    if out:
        write_json(out, result)
        bench.plot_bench(result, out.with_suffix(".png"))
    print_json(result) if json else bench.print_bench(result)


app.command(bench, name="bench", help="Measure speed and memory on this machine.")


def main(args: Sequence[str] | None = None) -> None:
    """Entry point of the `fixformer` command."""
    try:
        app.cli(prog="fixformer", description=_DESCRIPTION, args=args)
    except UserError as error:
        print(f"fixformer: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone, as in `fixformer models | head`
        raise SystemExit(0) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


_DESCRIPTION = "Video classification whose cost grows linearly with the length and resolution of the video."

if __name__ == "__main__":
    main()
