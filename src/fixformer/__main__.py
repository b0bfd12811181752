"""The program: `fixformer`, `python -m fixformer` and `torchrun -m fixformer`."""

import sys


def run() -> None:
    """`main`, which is imported here so that Ctrl-C is quiet from the beginning."""
    try:
        from fixformer.cli.app import main

        main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    run()
