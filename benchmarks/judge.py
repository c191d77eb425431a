"""One judge for all packages: objectives, bounds, violations and subgradients in float64 NumPy.

Written from the formula, with no code of any package that is judged. Projections onto cones are
non-negative least squares by SciPy.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from scipy.optimize import nnls

# Distance from a half-space, relative to the point, that counts as rounding.
ROUNDING = 1e-12
MAX_CUTS = 100


def predictions(X: np.ndarray, mask: np.ndarray, U: np.ndarray) -> np.ndarray:
    """sum_i D_i X U_i for X (n, d), mask (n, p), U (p, d, C)."""
    return np.stack([(mask * (X @ U_k.T)).sum(axis=1) for U_k in np.moveaxis(U, 2, 0)], axis=1)


def penalty(name: str, U: np.ndarray) -> float:
    """The penalty of U (p, d, C) at lam = 1."""
    if name == "neuron":
        return float(np.linalg.norm(U, axis=1).sum())
    if name == "feature":
        return float(np.sqrt((U**2).sum(axis=(0, 2))).sum())
    if name == "l1":
        return float(np.abs(U).sum())
    if name == "l2":
        return float((U**2).sum()) / 2
    if name == "none":
        return 0.0
    raise ValueError(f"unknown penalty {name!r}")


def objective(
    X: np.ndarray, mask: np.ndarray, Y: np.ndarray, U: np.ndarray, lam: float, name: str = "neuron"
) -> float:
    """1/(2nC) ||sum_i D_i X U_i - Y||^2 + lam penalty(U)."""
    residual = predictions(X, mask, U) - Y
    return float((residual**2).sum()) / (2 * Y.size) + lam * penalty(name, U)


def subgradient_norm(
    X: np.ndarray, mask: np.ndarray, Y: np.ndarray, U: np.ndarray, lam: float
) -> float:
    """The norm of the smallest subgradient for the neuron-wise penalty: zero at an optimum."""
    residual = predictions(X, mask, U) - Y
    gradient = np.stack([(mask * r[:, None]).T @ X for r in residual.T], axis=2) / Y.size
    norms = np.linalg.norm(U, axis=1, keepdims=True)
    sizes = np.linalg.norm(gradient, axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        active = gradient + lam * U / norms
        inactive = gradient * np.maximum(1 - lam / sizes, 0)
    inactive = np.where(sizes > 0, inactive, 0.0)
    return float(np.linalg.norm(np.where(norms > 0, active, inactive)))


def relu_objective(
    X: np.ndarray, mask: np.ndarray, Y: np.ndarray, V: np.ndarray, W: np.ndarray, lam: float
) -> float:
    """1/(2nC) ||sum_i D_i X (V_i - W_i) - Y||^2 + lam (penalty(V) + penalty(W))."""
    residual = predictions(X, mask, V - W) - Y
    norms = penalty("neuron", V) + penalty("neuron", W)
    return float((residual**2).sum()) / (2 * Y.size) + lam * norms


def cone_violation(X: np.ndarray, mask: np.ndarray, *parts: np.ndarray) -> float:
    """The largest distance of a block (pattern, class) of any part (p, d, C) from one of the
    half-spaces (2D_i - I) X v >= 0; rows of X that are zero bind nothing."""
    lengths = np.linalg.norm(X, axis=1)
    rows, signs = lengths > 0, np.where(mask, 1.0, -1.0)
    worst = 0.0
    for part in parts:
        for U_k in np.moveaxis(part, 2, 0):
            distances = signs[rows] * (X[rows] @ U_k.T) / lengths[rows, None]
            worst = max(worst, -float(distances.min()))
    return worst


def network_objective(
    X: np.ndarray, Y: np.ndarray, W1: np.ndarray, W2: np.ndarray, lam: float
) -> float:
    """The ReLU network's own objective, W1 (m, d) and W2 (m, C):
    1/(2nC) ||(X W1')_+ W2 - Y||^2 + lam/2 sum_j (||W1_j||^2 + ||W2_j||_1^2)."""
    residual = np.maximum(X @ W1.T, 0.0) @ W2 - Y
    decay = float((W1**2).sum() + (np.abs(W2).sum(axis=1) ** 2).sum())
    return float((residual**2).sum()) / (2 * Y.size) + lam / 2 * decay


def relative_gap(objective: float, lower_bound: float) -> float:
    return max(objective - lower_bound, 0.0) / objective


def gated_bound(
    X: np.ndarray, mask: np.ndarray, Y: np.ndarray, Theta: np.ndarray, lam: float
) -> float:
    """A lower bound of the gated problem with the neuron penalty, from any Theta (n, C): scaled,
    class by class, so that ||X'D_i Theta_c|| <= lam for all i."""
    norms = np.linalg.norm(correlations(X, mask, Theta), axis=1)
    return _dual_value(Y, Theta, norms.max(axis=0), lam)


def relu_bound(
    X: np.ndarray, mask: np.ndarray, Y: np.ndarray, Theta: np.ndarray, lam: float
) -> float:
    """The same for the ReLU problem, where only the part of +-X'D_i Theta_c in the cone counts."""
    blocks = correlations(X, mask, Theta)
    largest = [lam] * Theta.shape[1]  # a norm below lam decides nothing
    for block, rows in zip(blocks, _cones(X, mask), strict=True):
        for c, sign in itertools.product(range(len(largest)), (1.0, -1.0)):
            if np.linalg.norm(block[:, c]) > largest[c]:
                part = project(sign * block[:, c], rows, small=largest[c])
                largest[c] = max(largest[c], float(np.linalg.norm(part)))
    return _dual_value(Y, Theta, np.array(largest), lam)


def gradient(X: np.ndarray, mask: np.ndarray, Y: np.ndarray, U: np.ndarray) -> np.ndarray:
    """Of the loss with respect to the predictions: at an optimum, the dual point."""
    return (predictions(X, mask, U) - Y) / Y.size


def correlations(X: np.ndarray, mask: np.ndarray, Theta: np.ndarray) -> np.ndarray:
    """X'D_i Theta for all i: (p, d, C)."""
    columns = mask.T.astype(np.float64)
    return np.stack([columns @ (X * theta[:, None]) for theta in Theta.T], axis=2)


def into_cones(X: np.ndarray, mask: np.ndarray, part: np.ndarray) -> np.ndarray:
    """The nearest weights (p, d, C) that satisfy (2D_i - I) X v >= 0."""
    moved = part.copy()
    for i, rows in enumerate(_cones(X, mask)):
        for c in range(part.shape[2]):
            if part[i, :, c].any():
                moved[i, :, c] = project(part[i, :, c], rows)
    return moved


def project(x: np.ndarray, rows: np.ndarray, small: float = 0.0) -> np.ndarray:
    """The projection of x onto the cone {v : rows v >= 0}, for rows of unit length.

    It is x + rows'gamma with the gamma >= 0 that makes it shortest. Few rows count, so they are
    added as they turn out to be violated; every step gives an upper bound on the length, and with
    one of at most `small` it ends."""
    chosen = np.empty(0, dtype=int)
    point, size = x, np.linalg.norm(x)
    for _ in range(MAX_CUTS):
        slack = rows @ point
        violated = np.flatnonzero(slack < -ROUNDING * size)
        if not len(violated) or np.linalg.norm(point) <= small:
            break
        worst = violated[np.argsort(slack[violated])[: 2 * len(x)]]
        chosen = np.union1d(chosen, worst)
        gamma, _ = nnls(rows[chosen].T, -x)
        point = x + gamma @ rows[chosen]
        chosen = chosen[gamma > 0]
    return point


def _cones(X: np.ndarray, mask: np.ndarray) -> Iterator[np.ndarray]:
    """For each pattern the rows (2D_i - I) X in unit length; those that are zero bind nothing."""
    lengths = np.linalg.norm(X, axis=1)
    binding = lengths > 0
    unit = X[binding] / lengths[binding, None]
    for column in mask[binding].T:
        yield np.where(column, 1.0, -1.0)[:, None] * unit


def _dual_value(Y: np.ndarray, Theta: np.ndarray, norms: np.ndarray, lam: float) -> float:
    """max -f*(tau Theta), f* = s/2 ||.||^2 + <., Y> with s = n C, over tau_c norms_c <= lam."""
    squares, products = (Theta**2).sum(axis=0), (Theta * Y).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        best = np.where(squares > 0, -products / (Y.size * squares), 0.0)
        tau = np.clip(best, 0.0, np.where(norms > 0, lam / norms, np.inf))
    return float(-(Y.size / 2 * tau**2 * squares + tau * products).sum())
