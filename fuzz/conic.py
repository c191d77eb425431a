"""Weights from a conic solver (Clarabel through CVXPY), for the value that they attain.

What they attain is computed elsewhere, exactly, so that nothing here has to be trusted but that the
weights are in their cones, and `judge` looks at that too. X and Y are scaled, since interior
points end where numbers are large or small.
"""

from __future__ import annotations

import warnings
from typing import Any

import cvxpy as cp
import numpy as np
from scipy.optimize import linprog

from fuzz.exact import Program, in_cones, neurons


def attained(program: Program) -> tuple[np.ndarray, list[float] | None] | None:
    """Weights, in their cones, and an output bias; None if the solver has none."""
    _, d, p, C = program.shape
    scale_x = float(np.abs(program.X).max()) or 1.0
    Y, centre, scale_y = _standardised(program)
    X, lam = program.X / scale_x, program.lam / scale_x
    M = (program.mask[:, :, None] * X[:, None, :]).reshape(len(X), p * d)
    signs = np.where(program.mask, 1.0, -1.0)
    parts = [[cp.Variable((p, d)) for _ in range(C)] for _ in range(1 + program.cones)]
    U = [cp.vstack([part[k] for part in parts]) for k in range(C)]
    effective = [part - parts[1][k] if program.cones else part for k, part in enumerate(parts[0])]
    Z = cp.vstack([M @ cp.reshape(u, (p * d,), order="C") for u in effective]).T
    bias = cp.Variable((1, C)) if program.output_bias else None
    if bias is not None:
        Z = Z + np.ones((len(X), 1)) @ bias
    cones = [cp.multiply(signs, X @ u.T) >= 0 for part in parts for u in part if program.cones]
    penalty = lam * _penalty(program.penalty, U) * (scale_y if program.penalty == "l2" else 1.0)
    if program.penalty == "l2":
        penalty = penalty / scale_x
    # in units of scale_y^2 for squares, so penalties that are norms are divided by scale_y
    objective = _loss(program, Z, Y, scale_y) + penalty / scale_y
    task = cp.Problem(cp.Minimize(objective), cones)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            task.solve(solver="CLARABEL")
    except (cp.error.SolverError, ValueError):
        return None
    if any(u.value is None for u in U):
        return None
    weights = np.stack([u.value for u in U], axis=2) * (scale_y / scale_x)
    if program.cones:
        weights = _into_cones(program, weights)
    b = None if bias is None else (centre + scale_y * bias.value[0]).tolist()
    return (weights, b) if np.all(np.isfinite(weights)) else None


def _standardised(program: Program) -> tuple[np.ndarray, np.ndarray, float]:
    if program.loss not in ("squared", "huber"):
        return program.Y, np.zeros(program.Y.shape[1]), 1.0
    centre = program.Y.mean(axis=0) * program.output_bias
    Y = program.Y - centre
    scale = float(np.abs(Y).max()) or 1.0
    return Y / scale, centre, scale


def _loss(program: Program, Z: Any, Y: np.ndarray, scale: float) -> Any:
    w = np.broadcast_to(program.w[:, None], Y.shape)
    if program.loss == "squared":
        return cp.sum(cp.multiply(w, cp.square(Z - Y))) / 2
    if program.loss == "huber":
        return cp.sum(cp.multiply(w, cp.huber(Z - Y, program.delta / scale))) / 2
    if program.loss == "logistic":
        return cp.sum(cp.multiply(w, cp.logistic(cp.multiply(-Y, Z))))
    mass = Y.sum(axis=1)
    return cp.sum(cp.multiply(program.w * mass, cp.log_sum_exp(Z, axis=1))) - cp.sum(
        cp.multiply(w * Y, Z)
    )


def _penalty(name: str, U: list[Any]) -> Any:
    """g / lam."""
    if name == "neuron":
        return sum(cp.sum(cp.norm(u, axis=1)) for u in U)
    if name == "feature":
        return cp.sum(cp.norm(cp.vstack(U), axis=0))
    if name == "l1":
        return sum(cp.sum(cp.abs(u)) for u in U)
    return sum(cp.sum_squares(u) for u in U) / 2 if name == "l2" else cp.Constant(0.0)


def _into_cones(program: Program, U: np.ndarray) -> np.ndarray:
    """Blocks outside their cones moved towards an inner point, as far as needed, or dropped."""
    p, U = program.shape[2], U.copy()
    for step in (1.0, 1.5):
        outside = np.argwhere(~in_cones(program, neurons(program, U)))
        for i, k in outside:
            U[i, :, k] = _moved_inside(program, i % p, U[i, :, k], step)
    for i, k in np.argwhere(~in_cones(program, neurons(program, U))):
        U[i, :, k] = 0.0
    return U


def _moved_inside(program: Program, i: int, u: np.ndarray, step: float) -> np.ndarray:
    A = np.where(program.mask[:, [i]], program.X, -program.X)
    A = A[np.any(A != 0, axis=1)]
    A = A / np.abs(A).max(axis=1, keepdims=True)
    d = A.shape[1]
    found = linprog(
        np.r_[np.zeros(d), -1.0],
        A_ub=np.c_[-A, np.ones(len(A))],
        b_ub=np.zeros(len(A)),
        bounds=[(-1.0, 1.0)] * d + [(0.0, 1.0)],
    )
    if not found.success or found.x[-1] <= 1e-12:
        return np.zeros(d)
    inner, depth = found.x[:-1], found.x[-1]
    rounding = 1e-15 * d * np.abs(u).max()
    return u + step * (max(float(np.max(-(A @ u))), 0.0) + rounding) * 2 / depth * inner
