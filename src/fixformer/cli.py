"""The command line: one verb per public function, no logic of its own.

Results go to stdout (`--json` makes them machine-readable), progress and prose to stderr.
Exit status: 0 done, 1 a user error, 2 bad usage, 130 on Ctrl-C.
"""

import sys
from collections.abc import Sequence

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
    name: Positional[str],
    settings: Positional[tuple[str, ...]] = (),
    *,
    frames: int | None = None,
    size: int | None = None,
    json: bool = False,
) -> None:
    """Parameters, GFLOPs and activation memory of a model, part by part.

    Args:
        name: a model, see `fixformer models`.
        settings: overrides as key=value, such as fixation=none attention=softmax.
        frames: frames of the clip.
        size: pixels of its side.
        json: print JSON.
    """
    from fixformer.bench.cost import cost as cost_of
    from fixformer.bench.show import print_cost
    from fixformer.models.registry import parse_settings

    print_cost(cost_of(name, frames, size, **parse_settings(settings)), as_json=json)


app.command(bench, name="bench", help="Measure speed and memory on this machine.")


def main(args: Sequence[str] | None = None) -> None:
    """Entry point of the `fixformer` command."""
    try:
        app.cli(prog="fixformer", description=_DESCRIPTION, args=args)
    except UserError as error:
        print(f"fixformer: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


_DESCRIPTION = "Video classification whose cost grows linearly with the length and resolution of the video."

if __name__ == "__main__":
    main()
