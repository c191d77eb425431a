"""Systems of faces in single precision: products, and factors that precondition them.

The Gram matrix and its factor take half the time of those in double precision, and serve later
systems of the same output, which differ little near the end. Iterations correct both.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cvxnn import panels
from cvxnn.solvers.newton.preconditioners import Preconditioner, factor_shifted

WORTHWHILE = 500  # equations from which on factors take longer than iterations
KEPT_ITERATIONS = 20  # with the factor of an earlier system; a new one takes as long as about 40
NEW_ITERATIONS = 8  # with its own factor, where two are usual; more mean an ill-conditioned system
PRECISE = 1e-3  # residual at most: rough steps would make more of them


class SingleFaces:
    """I + C'C for columns C (R, n) in single precision; `inverse` is a preconditioner, which may
    be that of an earlier system."""

    exact: ClassVar[bool] = False

    def __init__(self, columns: np.ndarray, preconditioner: Preconditioner | None) -> None:
        self.columns = columns.astype(np.float32)
        self.preconditioner = preconditioner

    def renew(self) -> None:
        """Factor this system; raises LinAlgError where single precision does not suffice."""
        C = self.columns
        R, n = C.shape
        self.preconditioner = None  # before the next one is made: it may be large
        K = panels.gram(C if n > R else C.T)
        K.flat[:: len(K) + 1] += 1
        factor = factor_shifted(K)
        if n > R:
            self.preconditioner = Preconditioner(factor, np.ones(n, dtype=np.float32), C)
        else:
            self.preconditioner = Preconditioner(factor)

    def product(self, x: np.ndarray) -> np.ndarray:
        return self.columns.T @ (self.columns @ x.astype(np.float32))

    def inverse(self, r: np.ndarray) -> np.ndarray:
        assert self.preconditioner is not None
        return self.preconditioner(r)

    def dense_inverse(self) -> np.ndarray:
        return self.inverse(np.eye(self.columns.shape[1]))
