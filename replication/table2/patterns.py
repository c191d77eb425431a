"""The gates of Tables 2 and 6, on data whose last column is a constant.

Gates are Gaussian on all other columns. On the last one they are zero, or what switches every gate
on for the half of the training rows with the largest products. For that the authors take the
median of the products, above which a row is active; the threshold here is halfway between the last
inactive row and the first active one, which gives the same patterns and is no matter of rounding.
"""

from __future__ import annotations

import numpy as np

import cvxnn
from replication.data import gates, patterns_of


def sampled(X: np.ndarray, p: int, seed: int, *, half_active: bool) -> cvxnn.Patterns:
    """Patterns of p gates, with half of the rows active or without a bias."""
    if np.ptp(X[:, -1]) > 0:
        raise ValueError("the last column of X is not a constant")
    G = np.vstack([gates(X.shape[1] - 1, p, seed), np.zeros((1, p))])
    if half_active:
        G[-1] = -_thresholds(X @ G) / X[0, -1]
    return patterns_of(X, G)


def _thresholds(products: np.ndarray) -> np.ndarray:
    """Above which a row is active, for each column of products (n, p)."""
    median = np.median(products, axis=0)
    above = products > median
    first_active = np.where(above, products, np.inf).min(axis=0)
    last_inactive = np.where(above, -np.inf, products).max(axis=0)
    # no row is above the median where half of the rows tie for the largest product
    return np.where(np.isfinite(first_active), (first_active + last_inactive) / 2, median)


def as_released(network: cvxnn.GatedReLUNetwork, scale: float) -> cvxnn.GatedReLUNetwork:
    """The network with the gates that the released code keeps for new rows: their biases are for
    a column of ones, while that column of the data is scaled to a unit norm like all others."""
    G = network.gates.copy()
    G[-1] *= scale
    return cvxnn.GatedReLUNetwork(
        gates=G,
        gate_bias=network.gate_bias,
        W1=network.W1,
        W2=network.W2,
        strict=network.strict,
        flat_output=network.flat_output,
    )
