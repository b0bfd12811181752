"""`python -m fixformer`, and `torchrun -m fixformer`."""

from fixformer.cli.app import main

if __name__ == "__main__":
    main()
