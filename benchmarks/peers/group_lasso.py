"""C-GReLU as packages for the group lasso see it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def solve_classes(
    X: np.ndarray,
    Y: np.ndarray,
    gates: np.ndarray,
    lam: float,
    solve: Callable[[np.ndarray, np.ndarray, float], tuple[np.ndarray, ...]],
) -> tuple[np.ndarray, ...]:
    """The squared loss separates: 1/(2nC) ||Z - Y||^2 + lam sum ||u|| is 1/C times the sum over
    the classes of 1/(2n) ||z - y||^2 + C lam sum ||u||. `solve(mask, y, C lam)` gives arrays for
    one class; they are stacked along a last axis."""
    mask = X @ gates > 0
    found = [solve(mask, y, Y.shape[1] * lam) for y in np.ascontiguousarray(Y.T)]
    return tuple(np.stack(arrays, axis=-1) for arrays in zip(*found, strict=True))


def expanded_matrix(X: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """[D_1 X ... D_p X], column by column in memory, as these packages want it."""
    (n, d), p = X.shape, mask.shape[1]
    M = np.empty((n, p * d), order="F")
    for i in range(p):
        np.multiply(X, mask[:, i, None], out=M[:, i * d : (i + 1) * d])
    return M
