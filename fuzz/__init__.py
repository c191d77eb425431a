"""Random problems against the promise that bounds are true: `python -m fuzz` or `make fuzz`.

    cases    what is tried: problems drawn from a seed and a number
    exact    the program and its dual in extended precision
    conic    the same program, handed to a conic solver
    judge    whether what a solution claims is true
    trial    one problem from its number to a line of results
    shrink   small problems that fail like large ones
    report   tables of the results

One BLAS thread: the problems are small, and results should not depend on the machine's cores. The
variables only count if they are set before NumPy is loaded, hence this place.
"""

import os

for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
