"""The paper's tables and figures, measured again: `python -m replication` from the root of the
repository. A folder holds one of them."""

import benchmarks  # one BLAS thread, set before NumPy is loaded

__all__ = ["benchmarks"]
