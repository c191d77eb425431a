"""The command line as a module, for `python -m cvxnn` and `torchrun -m cvxnn`."""

from cvxnn.cli import main

if __name__ == "__main__":
    main(prog_name="cvxnn")
