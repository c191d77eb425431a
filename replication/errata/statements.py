"""Statements of the paper that do not hold, and formulas that were misprinted, refuted by numbers.

Every function computes what refutes the printed form, and what the corrected one gives instead.
None of them needs data.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

import cvxnn

Numbers = dict[str, float]
Rule = Callable[[float], float]


def closed_form() -> Numbers:
    """w = -pinv(A_I) A_I u for the rows I where A u < 0, against w = pinv(A) (-A u)_+; A has full
    row rank. How often each leaves {A w >= 0, A (u + w) >= 0}."""
    cases = printed = corrected = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((5, 8))
        gate, u = rng.standard_normal((2, 8))
        A = np.where(X @ gate >= 0, 1.0, -1.0)[:, None] * X
        rows = A @ u < 0
        if 0 < rows.sum() < len(A):
            cases += 1
            printed += _leaves(A, u, -np.linalg.pinv(A[rows]) @ A[rows] @ u)
            corrected += _leaves(A, u, np.linalg.pinv(A) @ np.maximum(-A @ u, 0))
    return {"cases": cases, "printed": printed, "corrected": corrected}


def _leaves(A: np.ndarray, u: np.ndarray, w: np.ndarray) -> bool:
    return bool(min((A @ w).min(), (A @ (u + w)).min()) < -1e-9)


def factor_two() -> Numbers:
    """The smallest (||v|| + ||w||)/||u|| for u = (1, 0) and the narrow cone |x_1| <= 0.1 x_2, whose
    two rows are independent."""
    X = np.array([[1.0, 0.1], [-1.0, 0.1]])
    problem = cvxnn.CGReLU(X, [1.0, 1.0], _all_on(X), lam=0.1)
    u = np.array([1.0, 0.0]).reshape(1, 2, 1)
    point = cvxnn.solve(problem, max_iter=0, warm_start=u, on_failure="ignore")
    return {"ratio": float(cvxnn.decompose(point, "min-norm").norm_ratio)}


def singular_patterns() -> Numbers:
    """The optimal value of C-ReLU on the paper's 4 x 3 example with its singular pattern alone, and
    that of the zero model, which is all that is left without the pattern."""
    X = np.array([[1.0, 0, 0], [0, 1, 0], [-1, -1, 0], [0, 0, 1]])
    problem = cvxnn.CReLU(X, [0.0, 0.0, 0.0, 1.0], _all_on(X), lam=0.01, singular="keep")
    certificate = cvxnn.solve(problem, tol=1e-6).certificate
    return {
        "kept": certificate.objective,
        "bound": certificate.lower_bound,
        "dropped": certificate.zero_objective,
    }


def _all_on(X: np.ndarray) -> cvxnn.Patterns:
    return cvxnn.Patterns.from_mask(np.ones((len(X), 1), dtype=bool))


def restart_sign() -> Numbers:
    """Iterations of R-FISTA, and restarts, with the printed test and with the corrected one."""
    right, wrong = _rfista(), _rfista(printed_restart=True)
    return {
        "iterations": right["iterations"],
        "restarts": right["restarts"],
        "iterations_printed": wrong["iterations"],
        "restarts_printed": wrong["restarts"],
    }


def step_growth() -> Numbers:
    """Where R-FISTA ends, and its last step size, with eta + (1 - alpha) eta and with alpha eta
    after a step for which the quadratic bound was loose."""
    right, wrong = _rfista(first_step=1e-3), _rfista(first_step=1e-3, growth=lambda eta: 0.75 * eta)
    return {
        "iterations": right["iterations"],
        "step": right["step"],
        "step_printed": wrong["step"],
        "excess_printed": wrong["objective"] / right["objective"] - 1,
    }


def threshold() -> Numbers:
    """The objective that proximal steps end at with the threshold lam instead of eta lam, relative
    to the optimum."""
    right, wrong = _rfista(), _rfista(threshold=lambda eta: 1.0)
    return {"excess_printed": wrong["objective"] / right["objective"] - 1}


MOST = 5000  # iterations
LAM = 0.02


def _rfista(
    *,
    printed_restart: bool = False,
    first_step: float = 1.0,
    growth: Rule = lambda eta: 1.25 * eta,
    threshold: Rule = lambda eta: eta,
) -> Numbers:
    """R-FISTA on a small group lasso, with one formula at a time as it is printed. Stops when the
    step divided by its size is below 1e-8."""
    rng = np.random.default_rng(0)
    A, y = rng.standard_normal((40, 60)) / math.sqrt(40), rng.standard_normal(40)

    def value(x: np.ndarray) -> float:
        return float(np.sum((A @ x - y) ** 2) / 2)

    x = z = np.zeros(60)
    eta, t, restarts, iterations, step = first_step, 1.0, 0, 0, np.ones(1)
    while iterations < MOST and np.linalg.norm(step) > 1e-8 * eta:
        iterations += 1
        gradient = A.T @ (A @ z - y)
        while True:
            new = _shrink(z - eta * gradient, threshold(eta) * LAM)
            step = new - z
            bregman = value(new) - value(z) - float(gradient @ step)
            if bregman <= (step @ step) / (2 * eta) * (1 + 1e-9) + 1e-15:
                break
            eta *= 0.8
        loose = step @ step >= 5 * 2 * eta * max(bregman, 1e-300)
        restart = float((new - x) @ (new - z if printed_restart else z - new)) > 0
        restarts += restart
        t, momentum = (1.0, 0.0) if restart else _momentum(t)
        x, z = new, new + momentum * (new - x)
        eta = growth(eta) if loose else eta
    groups = np.linalg.norm(x.reshape(-1, 3), axis=1)
    objective = value(x) + LAM * float(groups.sum())
    return {"iterations": iterations, "restarts": restarts, "step": eta, "objective": objective}


def _shrink(x: np.ndarray, threshold: float) -> np.ndarray:
    """Blocks of three, each shorter by `threshold`."""
    groups = x.reshape(-1, 3)
    sizes = np.linalg.norm(groups, axis=1, keepdims=True)
    return (groups * np.maximum(1 - threshold / np.maximum(sizes, 1e-300), 0)).ravel()


def _momentum(t: float) -> tuple[float, float]:
    following = (1 + math.sqrt(1 + 4 * t * t)) / 2
    return following, (t - 1) / following
