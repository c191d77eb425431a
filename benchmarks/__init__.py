"""What cvxnn promises, measured: `python -m benchmarks` from the root of the repository.

Everything here, and every process started from here, runs on one BLAS thread: that is the
setting in which two packages can be compared on a shared machine. The variables only count if
they are set before NumPy is loaded, hence this place.
"""

import os

THREADS = 1
for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_variable] = str(THREADS)
