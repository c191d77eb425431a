"""Rows in the few coordinates that they span, with what is lost by it.

Rows x_i = V z_i + e_i with columns V (d, r) that are orthonormal up to rounding. As a ReLU
magnifies nothing and ||V'u|| <= ||V|| ||u||,

    price on X  <=  ||V|| (price on Z)  +  sum_i |t_i| ||e_i||.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import qr

from cvxnn.bounds.base import row_norms_above
from cvxnn.rounding import slack, up

DEPENDENT = 1e-12  # singular values below this share of the largest one are left to the rest


class Rotation(NamedTuple):
    """Z (n, r) and V (d, r); `stretch` is no less than ||V||, `rest` (n,) no less than ||e_i||."""

    Z: np.ndarray
    V: np.ndarray
    stretch: float
    rest: np.ndarray

    def price_above(self, above: np.ndarray, Theta: np.ndarray) -> np.ndarray:
        """A bound (C,) on X from one on Z."""
        lost = up(self.rest @ np.abs(Theta), len(self.rest) + 1)
        return up(up(self.stretch * above, 1) + lost, 2)


def rotate(X: np.ndarray) -> Rotation:
    """The rows in coordinates of their span, or as they are where that has no fewer."""
    n, d = X.shape
    _, sizes, Vt = np.linalg.svd(qr(X, mode="r", check_finite=False)[0][: min(n, d)])
    rank = max(1, int(np.count_nonzero(sizes > DEPENDENT * sizes.max(initial=0.0))))
    if rank == d:
        return Rotation(X, np.eye(d), 1.0, np.zeros(n))
    V = np.ascontiguousarray(Vt[:rank].T)
    Z = X @ V
    size = np.abs(X) + np.abs(Z) @ np.abs(V).T
    rest = row_norms_above(np.abs(X - Z @ V.T) + slack(rank + 4) * size)
    excess = np.abs(V.T @ V - np.eye(rank)) + slack(d + 4) * (np.abs(V).T @ np.abs(V) + 1)
    return Rotation(Z, V, up(1.0 + float(np.sum(excess)), rank * rank + 2), up(rest, 4))
