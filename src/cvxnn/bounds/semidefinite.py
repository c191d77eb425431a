"""A semidefinite bound of the price: any number of columns, of use where lam is large.

With (z)_+ = (z + |z|)/2 and ||u|| <= 1, for any a_i > 0, gamma_i >= 0 and |beta_i| + gamma_i <= 1,

    |z| <= (z^2/a_i + a_i) / 2                        where t_i > 0
    |z| >= beta_i z + gamma_i z^2 / ||x_i||            where t_i < 0, as |z| = |x_i u| <= ||x_i||

so that t'(X u)_+ <= k + b'u + u'Q u, with

    k = 1/4 sum_+ t_i a_i          b = 1/2 sum t_i x_i - 1/2 sum_- |t_i| beta_i x_i
    Q = 1/4 sum_+ t_i/a_i x_i x_i' - 1/2 sum_- |t_i| gamma_i/||x_i|| x_i x_i'.

On the ball this is at most k + h + mu, whenever the matrix S = [[h, -b'/2], [-b/2, mu I - Q]] is
positive semidefinite; mu is the multiplier of the ball. The best multipliers are the dual of the
relaxation in which u u' is any matrix U >= u u' of trace at most 1. A conic solver finds them, and
no more is asked of it: whatever it returns is turned into a bound in floating-point numbers. h and
mu are computed here, and the smallest eigenvalue of S is bounded by a Cholesky factorisation. If
that of A runs through, then A >= -(m + 2) 2^-53 tr(A) (Rump, Verification of positive definiteness,
BIT 46, 2006), and S >= -s means a bound of k + h + mu + 2 s.

`relaxed_dual` relaxes the whole training problem in the same way: a neuron with the weights u of
norm t is a matrix [[t, u'], [u, U]] with tr(U) <= t. Its dual point is the one for which the bound
of the price is best; it is priced like any other.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from cvxnn import budget
from cvxnn.arrays import to_numpy
from cvxnn.bounds.base import (
    SDP,
    Goal,
    Neurons,
    PriceBound,
    TimedMethod,
    design,
    row_norms_above,
)
from cvxnn.bounds.evidence import Evidence
from cvxnn.bounds.rotation import rotate
from cvxnn.protocols import Problem
from cvxnn.rounding import TINY, UNIT, slack, up

if TYPE_CHECKING:
    from cvxpy import Expression

MAX_RANK = 60
ROOM = 2.0**-40  # of a price, for a check that rounds in other places
MAX_ENTRIES = 10**7  # n rank^2, the products of columns that the solver is handed


class Multipliers(NamedTuple):
    """a (n,) > 0 where t_i > 0, beta and gamma (n,) where t_i < 0; other entries are not used."""

    a: np.ndarray
    beta: np.ndarray
    gamma: np.ndarray


@dataclass(frozen=True)
class Semidefinite(TimedMethod):
    """The semidefinite bound (`PriceMethod`), by CVXPY with Clarabel: pip install 'cvxnn[cvx]'."""

    def handles(self, X: np.ndarray, n_outputs: int) -> bool:
        n, rank = X.shape[0], min(X.shape)
        return rank <= MAX_RANK and n * rank * rank * n_outputs <= MAX_ENTRIES

    def _bound(self, X: np.ndarray, Theta: np.ndarray, goal: Goal) -> PriceBound:
        cp = import_cvxpy()
        rotation = rotate(X)
        above = np.full(Theta.shape[1], np.inf)
        multipliers = np.zeros((Theta.shape[1], 2, 3, len(X)))
        for k, theta in enumerate(Theta.T):
            sides = []
            for side, t in enumerate((theta, -theta)):
                budget.look()
                found = _solve_price(cp, rotation.Z, t, max(goal.clock.left, 0.1))
                sides.append(price_above(rotation.Z, t, found))
                multipliers[k, side] = found
            above[k] = max(sides)
        above = rotation.price_above(above, Theta) * (1 + ROOM)
        evidence = Evidence(multipliers=multipliers)
        return PriceBound(above, SDP, Neurons.none(X.shape[1]), evidence)

    def relaxed_dual(self, problem: Problem, *, max_seconds: float = math.inf) -> np.ndarray | None:
        """The dual point (n, C) of the relaxed training problem, or None where the solver has none,
        or the loss has no formula here."""
        if problem.loss_name not in _LOSSES:
            return None
        return _solve_training(import_cvxpy(), problem, max_seconds)


def installed() -> bool:
    return find_spec("cvxpy") is not None and find_spec("clarabel") is not None


def import_cvxpy() -> ModuleType:
    try:
        import cvxpy
    except ImportError as error:
        raise ImportError("semidefinite bounds need CVXPY: pip install 'cvxnn[cvx]'") from error
    return cvxpy


# -- what holds for any multipliers


@np.errstate(all="ignore")
def price_above(X: np.ndarray, t: np.ndarray, multipliers: Multipliers) -> float:
    """Above max t'(X u)_+ over ||u|| <= 1, in floating-point numbers."""
    if not (np.isfinite(X).all() and np.isfinite(t).all()):
        return math.inf
    used = (t != 0) & np.any(X != 0, axis=1)
    if not np.any(t[used] > 0):
        return 0.0  # no term is positive
    X, t = X[used], t[used]
    units = [int(np.frexp(np.max(np.abs(x)))[1]) for x in (X, t)]
    X, t = np.ldexp(X, -units[0]), np.ldexp(t, -units[1])
    a = np.ldexp(multipliers.a[used], -units[0])
    quadratic = _quadratic(X, t, Multipliers(a, multipliers.beta[used], multipliers.gamma[used]))
    value = _on_ball(*quadratic)
    if math.isnan(value):
        return math.inf
    return float(np.ldexp(value, sum(units))) * (1 + 4 * UNIT) + 4 * TINY


def _quadratic(
    X: np.ndarray, t: np.ndarray, multipliers: Multipliers
) -> tuple[float, np.ndarray, np.ndarray, float]:
    """k from above, b (d,), Q (d, d), and a bound of the error in the matrix S that they make."""
    (n, d), norms = X.shape, row_norms_above(X)
    plus = t > 0
    size = np.abs(t)
    a = np.where(plus, np.clip(multipliers.a, 2.0**-60 * norms, norms), 1.0)
    a = np.where(a > TINY, a, 1.0)
    gamma = np.where(plus, 0.0, np.clip(np.nan_to_num(multipliers.gamma), 0.0, 1.0))
    most = (1 - gamma) * (1 - 4 * UNIT)
    beta = np.where(plus, 0.0, np.clip(np.nan_to_num(multipliers.beta), -most, most))
    k = up(0.25 * float(np.sum(size[plus] * a[plus])), n + 2)
    linear = 0.5 * t - 0.5 * size * beta
    weight = np.where(plus, 0.25 * size / a, -0.5 * size * gamma / norms)
    b, Q = X.T @ linear, (X.T * weight) @ X
    Q = (Q + Q.T) / 2
    error_b = slack(n + 8) * (np.abs(X).T @ (0.5 * size + 0.5 * size * np.abs(beta)))
    error_Q = slack(n + 8) * ((np.abs(X).T * np.abs(weight)) @ np.abs(X))
    error = np.sqrt(np.sum(error_b**2) / 2 + np.sum(error_Q**2))
    return k, b, Q, up(float(error), n + 2 * d * d + 8) + n * 2.0**-500


def _on_ball(k: float, b: np.ndarray, Q: np.ndarray, error: float) -> float:
    """Above k + b'u + u'Q u on the unit ball."""
    h, mu = _least_shift(b, Q)
    S = np.block([[np.full((1, 1), h), -b[None] / 2], [-b[:, None] / 2, mu * np.eye(len(b)) - Q]])
    m, size = len(S), float(np.sum(np.abs(S)))
    shift = 4 * slack(m + 2) * size + TINY
    for _ in range(60):
        A = S + shift * np.eye(m)
        if _factors(A):
            # S in place of the real one, A in place of S + shift, and the factors
            lost = up(shift + error + slack(m + 4) * (size + m * shift), m * m + 4) + m * TINY
            return up(k + h + max(mu, 0.0) + 2 * lost, 5)
        shift = 4 * shift
    return math.inf


def _factors(A: np.ndarray) -> bool:
    if not np.isfinite(A).all():
        return False
    try:
        np.linalg.cholesky(A)
    except np.linalg.LinAlgError:
        return False
    return True


def _least_shift(b: np.ndarray, Q: np.ndarray) -> tuple[float, float]:
    """The h = b'(mu I - Q)^-1 b / 4 and mu >= 0 with the least sum, as computed."""
    if not (np.isfinite(b).all() and np.isfinite(Q).all()):
        return math.inf, math.inf
    eigenvalues, vectors = np.linalg.eigh(Q)
    squares = (vectors.T @ b) ** 2 / 4
    low = max(float(eigenvalues[-1]), 0.0)
    reach = float(np.sqrt(np.sum(squares))) + 1e-12 * low + TINY

    def total(shift: float) -> float:
        return low + shift + float(np.sum(squares / (low + shift - eigenvalues)))

    # the minimum is where sum squares / (mu - eigenvalue)^2 = 1, at most `reach` from `low`
    found = minimize_scalar(
        lambda log: total(math.exp(log)),
        bounds=(math.log(reach) - 40, math.log(reach) + 1),
        method="bounded",
        options={"xatol": 1e-12},
    )
    mu = low + math.exp(found.x)
    return float(np.sum(squares / (mu - eigenvalues))), mu


# -- where multipliers come from


def _solve_price(cp: ModuleType, X: np.ndarray, t: np.ndarray, seconds: float) -> Multipliers:
    """The multipliers that a conic solver finds; simple ones where it fails. Rows have unit norm
    there, and sum |t_i| ||x_i|| = 1."""
    norms = row_norms_above(X)
    unit = X / np.where(norms > 0, norms, 1.0)[:, None]
    size = np.abs(t) * norms
    plus, minus = np.flatnonzero((t > 0) & (size > 0)), np.flatnonzero((t < 0) & (size > 0))
    found = Multipliers(norms / math.sqrt(X.shape[1]), np.zeros(len(X)), np.zeros(len(X)))
    total = float(size.sum())
    if len(plus) == 0 or not 0 < total < math.inf:
        return found
    w, d = size / total, X.shape[1]
    p, q = cp.Variable(len(plus)), cp.Variable(len(plus))  # q >= 1/p
    constraints = [cp.SOC(p + q, cp.vstack([np.full(len(plus), 2.0), p - q]), axis=0)]
    S, h, mu = cp.Variable((d + 1, d + 1), PSD=True), cp.Variable(), cp.Variable(nonneg=True)
    b = unit.T @ (np.sign(t) * w) / 2
    Q: Any = (_products(unit[plus]) * (w[plus] / 4)) @ p
    beta = gamma = None
    if len(minus):
        beta, gamma = cp.Variable(len(minus)), cp.Variable(len(minus), nonneg=True)
        constraints += [beta + gamma <= 1, gamma - beta <= 1]
        b = b - (unit[minus].T * (w[minus] / 2)) @ beta
        Q = Q - (_products(unit[minus]) * (w[minus] / 2)) @ gamma
    rows, columns = np.triu_indices(d)
    diagonal = (rows == columns).astype(float)
    constraints += [S[0, 0] == h, S[0, 1:] == -b / 2, S[1:, 1:][rows, columns] == mu * diagonal - Q]
    program = cp.Problem(cp.Minimize(w[plus] @ q / 4 + h + mu), constraints)
    if not _solve(cp, program, seconds) or p.value is None:
        return found
    a, both = found.a, (found.beta, found.gamma)
    a[plus] = norms[plus] / np.maximum(p.value, 1.0)
    for values, variable in zip(both, (beta, gamma), strict=True):
        if variable is not None:
            values[minus] = variable.value
    return found


def _solve_training(cp: ModuleType, problem: Problem, seconds: float) -> np.ndarray | None:
    """grad f at the predictions of the relaxed training problem."""
    Z = rotate(design(problem)).Z
    norms = row_norms_above(Z)
    top = float(norms.max()) or 1.0
    Z, norms = Z / top, norms / top
    Y = to_numpy(problem.loss.Y).astype(np.float64)
    zero = problem.loss.zero_value or 1.0
    constraints: list[Any] = []
    fits, penalty = [], 0.0
    for _ in range(Y.shape[1]):
        parts = [_relaxed_neurons(cp, Z, norms, constraints) for _ in range(2)]
        fits.append(parts[0][0] - parts[1][0])
        penalty = penalty + parts[0][1] + parts[1][1]
    if problem.output_bias:
        bias = cp.Variable(Y.shape[1])
        fits = [fit + bias[k] for k, fit in enumerate(fits)]
    w = to_numpy(problem.loss.row_weight)[:, 0] / zero
    f = _LOSSES[problem.loss_name](cp, w, fits, Y, **problem.loss.settings)
    program = cp.Problem(cp.Minimize(f + problem.lam / top / zero * penalty), constraints)
    if not _solve(cp, program, seconds) or any(fit.value is None for fit in fits):
        return None
    predictions = np.stack([np.asarray(fit.value).reshape(-1) for fit in fits], axis=1)
    Theta = to_numpy(problem.loss.gradient(predictions))
    return Theta if np.isfinite(Theta).all() else None


def _relaxed_neurons(
    cp: ModuleType, X: np.ndarray, norms: np.ndarray, constraints: list[Any]
) -> tuple[Expression, Expression]:
    """Fit (n,) and penalty of all neurons of one sign, [[t, u'], [u, U]] with tr(U) <= t."""
    n, d = X.shape
    W, v = cp.Variable((d + 1, d + 1), PSD=True), cp.Variable(n)
    t, u, U = W[0, 0], W[0, 1:], W[1:, 1:]
    rows, columns = np.triu_indices(d)
    squares = (_products(X) * np.where(rows == columns, 1.0, 2.0)[:, None]).T @ U[rows, columns]
    linear = X @ u
    over = np.where(norms > 0, norms, 1.0)
    each = t * np.ones(n)
    constraints += [
        cp.trace(U) <= t,
        v >= linear,
        v >= -linear,
        v >= cp.multiply(squares, 1 / over),
        cp.SOC(squares + each, cp.vstack([2 * v, squares - each]), axis=0),
    ]
    return (linear + v) / 2, t


def _products(X: np.ndarray) -> np.ndarray:
    """Products of columns, those on and above the diagonal: (d (d + 1) / 2, n)."""
    rows, columns = np.triu_indices(X.shape[1])
    return np.ascontiguousarray((X[:, rows] * X[:, columns]).T)


def _solve(cp: ModuleType, program: Any, seconds: float) -> bool:
    settings = {} if math.isinf(seconds) else {"time_limit": max(seconds, 0.1)}
    try:
        with warnings.catch_warnings():
            # what the solver says of its accuracy does not matter: the bound is made here
            warnings.filterwarnings("ignore", message="Solution may be inaccurate")
            program.solve(solver="CLARABEL", **settings)
    except cp.error.SolverError:
        return False
    return True


def _squared(cp: ModuleType, w: np.ndarray, fits: list[Any], Y: np.ndarray) -> Any:
    root = np.sqrt(w)
    return (
        sum(cp.sum_squares(cp.multiply(root, fit - y)) for fit, y in zip(fits, Y.T, strict=True))
        / 2
    )


def _huber(cp: ModuleType, w: np.ndarray, fits: list[Any], Y: np.ndarray, delta: float) -> Any:
    return sum(w @ cp.huber(fit - y, delta) for fit, y in zip(fits, Y.T, strict=True)) / 2


def _logistic(cp: ModuleType, w: np.ndarray, fits: list[Any], Y: np.ndarray) -> Any:
    return sum(w @ cp.logistic(cp.multiply(-y, fit)) for fit, y in zip(fits, Y.T, strict=True))


def _softmax(cp: ModuleType, w: np.ndarray, fits: list[Any], Y: np.ndarray) -> Any:
    Z = cp.vstack(fits).T
    return w @ (cp.log_sum_exp(Z, axis=1) - cp.sum(cp.multiply(Y, Z), axis=1))


_LOSSES: dict[str, Callable[..., Any]] = {
    "squared": _squared,
    "huber": _huber,
    "logistic": _logistic,
    "softmax": _softmax,
}
