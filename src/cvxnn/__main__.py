"""The command line as a module, for `python -m cvxnn` and `torchrun -m cvxnn`."""

from cvxnn.cli import main
from cvxnn.cli.processes import leave, several

if __name__ == "__main__":
    try:
        main(prog_name="cvxnn")
    except SystemExit as ended:
        if several():
            leave(ended)
        raise
