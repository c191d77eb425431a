"""One judge for all packages: objectives, violations and subgradients in float64 NumPy.

Written from the formula, with no code of any package that is judged.
"""

from __future__ import annotations

import numpy as np


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
