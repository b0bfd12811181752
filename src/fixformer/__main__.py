"""The program: `fixformer`, `python -m fixformer` and `torchrun -m fixformer`."""

import sys

from fixformer.runtime.openmp import limit_spinning


def run() -> None:
    """`main`, which is imported here so that Ctrl-C is quiet from the beginning."""
    limit_spinning()  # before torch is loaded; workers and other children inherit it
    try:
        from fixformer.cli.app import main

        main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    run()
