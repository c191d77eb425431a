"""Certificates, checked by another route.

`verify` recomputes what a certificate claims from the arrays of the problem alone: plain NumPy in
float64, one product a pattern, and SciPy's non-negative least squares for the cones. It shares no
code with operators, losses, penalties, cones, kernels or solvers, so that none of them vouches
for itself:

    objective     P = f(sum_i D_i X U_i) + g(U), for C-ReLU with V_i - W_i and g of both
    lower bound   D = max_tau -f*(tau Theta) - g*(tau M'Theta) with tau Theta dual feasible
    cones         min_j x~_j v / ||x_j|| >= 0, and ||Pi_K(c)|| = min_{gamma >= 0} ||c + X~'gamma||
    network       f(sum_i (X V_i)_+ - (X W_i)_+) + g, which knows no patterns
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import nnls

from cvxnn.arrays import to_numpy
from cvxnn.certificates import Certificate
from cvxnn.problems import ConvexProblem
from cvxnn.solvers import Solution
from cvxnn.validation import check_array

# How far a claim may be off, relative to the objective. A bound depends on projections as well.
OBJECTIVE_SLACK, BOUND_SLACK = 1e-9, 1e-7
# Distance from a cone that counts as rounding, relative to the largest weight.
FEASIBILITY, SINGLE_FEASIBILITY = 1e-8, 1e-5
# At lam = 0, what counts as M'Theta = 0, relative to ||M|| ||Theta||.
DUAL_FEASIBILITY = 1e-9


@dataclass(frozen=True)
class Verification:
    """What `verify` found.

    Attributes
    ----------
    objective, lower_bound, zero_objective, max_violation, network_objective : what a
        `Certificate` has under these names, recomputed.
    scope : the problem that they are about.
    checked : what was recomputed, and how, in words.
    differences : the claims of the certificate that were not confirmed, in words.
    """

    objective: float
    lower_bound: float
    zero_objective: float
    max_violation: float
    network_objective: float | None
    scope: str
    checked: tuple[str, ...]
    differences: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether every claim of the certificate was confirmed."""
        return not self.differences

    @property
    def relative_gap(self) -> float:
        """(objective - lower_bound) / max(objective, 1e-8 zero_objective), with 0/0 = 0."""
        gap = max(self.objective - self.lower_bound, 0.0)
        return gap / self._scale if gap > 0 else 0.0

    @property
    def _scale(self) -> float:
        return max(self.objective, 1e-8 * self.zero_objective)

    def __str__(self) -> str:
        lines = [
            f"certificate {'confirmed' if self.agrees else 'NOT confirmed'}: {self.scope}",
            f"found: objective {self.objective:.10g}, lower bound {self.lower_bound:.10g}, "
            f"relative gap {self.relative_gap:.2g}",
            *(f"checked: {text}" for text in self.checked),
            *(f"differs: {text}" for text in self.differences),
        ]
        return "\n".join(lines)


def verify(solution: Solution) -> Verification:
    """Check a solution's certificate by a route that shares no code with the one it came by.

    Objective, lower bound, distances from the cones and the value of the ReLU network are
    recomputed in float64 from the problem's data, the weights and the dual candidate. The data are
    those the problem is posed on, with column of ones and unit-norm columns where asked for.

    The certificate is confirmed if the weights are in their cones up to rounding, the objective is
    not above the claimed one by more than 1e-9 of it, and the bound that the dual candidate proves
    not below the claimed one by more than 1e-7 of the objective. At lam = 0, where rounding leaves
    no exact dual point, the bound is that of the candidate's part outside the range of M.

    Losses other than the squared one are not implemented yet. Meant for n up to a few thousand:
    the cost is that of two passes over the data in NumPy, and for C-ReLU non-negative least squares
    with a d x n matrix, at most two for each pattern and class. At lam = 0 it is a QR
    factorization of M', of p d n^2 operations, and an n x n singular value decomposition instead.
    """
    if not isinstance(solution, Solution):
        raise TypeError(f"solution must be a Solution, got {type(solution).__name__}")
    program = _program(solution.problem)
    U, single = _weights(program, solution.weights)
    lower_bound, how = _lower_bound(program, _dual(program, solution.dual))
    penalty = program.lam * _penalty(program, U)
    network_objective = None
    checked = ["objective, by one product a pattern", f"lower bound, {how}"]
    if program.cones:
        network_objective = (
            program.loss.value(_network_predictions(program, U), program.Y) + penalty
        )
        checked += ["cones, row by row", "the ReLU network's own objective, without patterns"]
    found = Verification(
        objective=program.loss.value(_predictions(program, U), program.Y) + penalty,
        lower_bound=lower_bound,
        zero_objective=program.loss.value(np.zeros_like(program.Y), program.Y),
        max_violation=_violation(program, U),
        network_objective=network_objective,
        scope=solution.problem.scope,
        checked=tuple(checked),
    )
    feasible = (SINGLE_FEASIBILITY if single else FEASIBILITY) * np.abs(U).max()
    return replace(found, differences=_differences(found, solution.certificate, feasible))


def _differences(found: Verification, claim: Certificate, feasible: float) -> tuple[str, ...]:
    """What is not as the certificate has it. A claim that is weaker than the truth is true; one
    that is NaN is not, since comparisons with it fail."""
    slack, bound_slack = OBJECTIVE_SLACK * found._scale, BOUND_SLACK * found._scale
    expected = {
        "objective": found.objective <= claim.objective + slack,
        "lower_bound": found.lower_bound >= claim.lower_bound - bound_slack,
        "zero_objective": abs(found.zero_objective - claim.zero_objective)
        <= OBJECTIVE_SLACK * found.zero_objective,
        "max_violation": found.max_violation <= feasible,
    }
    if found.network_objective is not None and claim.network_objective is not None:
        expected["network_objective"] = found.network_objective <= claim.network_objective + slack
    differences = [
        f"{name}: claimed {getattr(claim, name):.10g}, found {getattr(found, name):.10g}"
        + _MEANING.get(name, "")
        for name, holds in expected.items()
        if not holds
    ]
    if found.lower_bound > found.objective + bound_slack:
        differences.append("the lower bound found is above the objective found: one bounds nothing")
    if claim.scope != found.scope:
        differences.append(f"scope: claimed {claim.scope!r}, found {found.scope!r}")
    return tuple(differences)


_MEANING = {
    "lower_bound": ", which is what the dual candidate proves",
    "max_violation": ": outside the cones an objective bounds nothing",
}


@dataclass(frozen=True)
class _Loss:
    """value(Z, Y) is f(Z) for targets Y. dual(Theta, Y, limit, quadratic) is the tau that maximises
    -f*(tau Theta) - tau^2 quadratic for |tau| <= limit, and the maximum; tau is one number a class,
    or one for all where `limit` has one entry."""

    value: Callable[[np.ndarray, np.ndarray], float]
    dual: Callable[..., tuple[np.ndarray, float]]


def _squared_value(Z: np.ndarray, Y: np.ndarray) -> float:
    return float(np.sum((Z - Y) ** 2)) / (2 * Y.size)


def _squared_dual(
    Theta: np.ndarray, Y: np.ndarray, limit: np.ndarray, quadratic: np.ndarray | float = 0.0
) -> tuple[np.ndarray, float]:
    """-f*(Theta) = -<Theta, Y> - nC/2 ||Theta||^2: a parabola in tau."""
    axis = None if len(limit) == 1 else 0
    slope = np.atleast_1d(-np.sum(Theta * Y, axis=axis))
    curvature = Y.size * np.atleast_1d(np.sum(Theta**2, axis=axis)) + 2 * quadratic
    vertex = np.divide(slope, curvature, out=np.zeros_like(slope), where=curvature > 0)
    tau = np.clip(vertex, -limit, limit)
    return tau, float(np.sum(tau * slope - tau**2 * curvature / 2))


_LOSSES = {"SquaredLoss": _Loss(_squared_value, _squared_dual)}

# The norms of the groups that a penalty sums, by class where groups do not couple classes.
_GROUP_NORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "neuron": lambda U: np.linalg.norm(U, axis=1),
    "feature": lambda U: np.linalg.norm(U, axis=(0, 2))[:, None],
    "l1": lambda U: np.abs(U).reshape(-1, U.shape[2]),
}


@dataclass(frozen=True)
class _Program:
    """A problem as plain arrays."""

    X: np.ndarray  # (n, d)
    row_norms: np.ndarray  # (n, 1), 1 for zero rows, which constrain nothing
    mask: np.ndarray  # (n, p)
    Y: np.ndarray  # (n, C)
    lam: float
    penalty: str
    loss: _Loss
    cones: bool


def _program(problem: ConvexProblem) -> _Program:
    loss = type(problem.loss).__name__
    penalty = problem.penalty_name if problem.lam > 0 else "none"
    if loss not in _LOSSES:
        raise NotImplementedError(f"verify does not know the loss {loss}")
    if penalty not in (*_GROUP_NORMS, "l2", "none"):
        raise NotImplementedError(f"verify does not know the penalty {penalty!r}")
    X = to_numpy(problem.operator.X).astype(np.float64)
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return _Program(
        X=X,
        row_norms=np.where(norms > 0, norms, 1.0),
        mask=problem.patterns.mask,
        Y=to_numpy(problem.loss.Y).astype(np.float64),
        lam=problem.lam,
        penalty=penalty,
        loss=_LOSSES[loss],
        cones=problem.kind == "C-ReLU",
    )


def _weights(program: _Program, weights: Any) -> tuple[np.ndarray, bool]:
    """Blocks (p, d, C), for C-ReLU (2p, d, C) with those of V first; whether they are float32."""
    parts = weights if program.cones and isinstance(weights, (tuple, list)) else [weights]
    U = np.concatenate([to_numpy(check_array(part, "weights")) for part in parts])
    p = program.mask.shape[1] * (2 if program.cones else 1)
    shape = (p, program.X.shape[1], program.Y.shape[1])
    if U.shape != shape:
        raise ValueError(f"weights must have shape {shape} in all, got {U.shape}")
    return U.astype(np.float64), U.dtype == np.float32


def _dual(program: _Program, dual: Any) -> np.ndarray:
    Theta = to_numpy(check_array(dual, "dual")).astype(np.float64)
    if Theta.shape != program.Y.shape:
        raise ValueError(f"dual must have shape {program.Y.shape}, got {Theta.shape}")
    return Theta


def _blocks(program: _Program, U: np.ndarray) -> Iterator[tuple[float, np.ndarray, np.ndarray]]:
    """Sign, pattern (n, 1) and pre-activations X u (n, C) of each block that is not zero."""
    p = program.mask.shape[1]
    for i in np.flatnonzero(np.any(U != 0, axis=(1, 2))):
        yield 1.0 if i < p else -1.0, program.mask[:, [i % p]], program.X @ U[i]


def _predictions(program: _Program, U: np.ndarray) -> np.ndarray:
    Z = np.zeros_like(program.Y)
    for sign, on, product in _blocks(program, U):
        Z += sign * on * product
    return Z


def _network_predictions(program: _Program, U: np.ndarray) -> np.ndarray:
    Z = np.zeros_like(program.Y)
    for sign, _, product in _blocks(program, U):
        Z += sign * np.maximum(product, 0.0)
    return Z


def _violation(program: _Program, U: np.ndarray) -> float:
    """The largest distance of a block from a half-space of its cone."""
    if not program.cones:
        return 0.0
    distances = [
        np.max(np.where(on, -product, product) / program.row_norms, initial=0.0)
        for _, on, product in _blocks(program, U)
    ]
    return float(max(distances, default=0.0))


def _penalty(program: _Program, U: np.ndarray) -> float:
    """g(U) / lam."""
    if program.penalty == "none":
        return 0.0
    if program.penalty == "l2":
        return float(np.sum(U**2)) / 2
    return float(np.sum(_GROUP_NORMS[program.penalty](U)))


def _lower_bound(program: _Program, Theta: np.ndarray) -> tuple[float, str]:
    """The bound of the best scaling of Theta, or 0, which no value is below; and how it came."""
    limit: np.ndarray = np.full(Theta.shape[1], np.inf)
    quadratic: np.ndarray | float = 0.0
    if program.penalty == "none":
        Theta, feasible = _outside_range(program, Theta)
        how = "of the dual candidate's part outside the range of M, where M'Theta = 0 to 1e-9"
        if not feasible:
            return 0.0, "0: the dual candidate has no part outside the range of M"
    elif program.penalty == "l2":
        quadratic = np.sum(_correlation(program, Theta) ** 2, axis=(0, 1)) / (2 * program.lam)
        how = "of the best multiple of the dual candidate"
    elif program.cones:
        limit, how = _cone_limit(program, Theta)
    else:
        norms = _GROUP_NORMS[program.penalty](_correlation(program, Theta)).max(axis=0)
        limit = np.divide(program.lam, norms, out=np.full_like(norms, np.inf), where=norms > 0)
        how = "of the best dual feasible multiple of the dual candidate"
    _, bound = program.loss.dual(Theta, program.Y, limit, quadratic)
    return max(bound, 0.0), how


def _correlation(program: _Program, Theta: np.ndarray) -> np.ndarray:
    """M'Theta: X'D_i Theta for each pattern, (p, d, C)."""
    return np.stack([program.X.T @ (on[:, None] * Theta) for on in program.mask.T])


def _cone_limit(program: _Program, Theta: np.ndarray) -> tuple[np.ndarray, str]:
    """How far each class may be scaled: lam over the largest ||Pi_K(+-X'D_i Theta)||. Longest
    first, and only those that would shorten the best multiple, since the others do not matter."""
    C, G = Theta.shape[1], _correlation(program, Theta)
    tau, _ = program.loss.dual(Theta, program.Y, np.full(C, np.inf))
    largest = np.divide(program.lam, abs(tau), out=np.full(C, np.inf), where=tau != 0)
    norms = np.linalg.norm(G, axis=1)
    solved = failed = 0
    for k in range(C):
        for i in np.argsort(-norms[:, k]):
            if norms[i, k] <= largest[k]:
                break
            for c in (G[i, :, k], -G[i, :, k]):
                projected = _projected_norm(program, i, c)
                solved, failed = solved + 1, failed + (projected is None)
                largest[k] = max(largest[k], norms[i, k] if projected is None else projected)
    how = "of the best dual feasible multiple of the dual candidate"
    how += f", by {solved} non-negative least squares"
    if failed:
        how += f"; {failed} of them gave up and count unprojected, so it may be too low"
    return program.lam / largest, how


def _projected_norm(program: _Program, i: int, c: np.ndarray) -> float | None:
    """||Pi_K(c)|| for pattern i, from above by whatever gamma >= 0 is found; None if none is."""
    rows = np.where(program.mask[:, [i]], program.X, -program.X) / program.row_norms
    try:
        gamma, _ = nnls(rows.T, -c, maxiter=30 * len(rows))
    except RuntimeError:
        return None
    return float(np.linalg.norm(c + rows.T @ np.maximum(gamma, 0.0)))


def _outside_range(program: _Program, Theta: np.ndarray) -> tuple[np.ndarray, bool]:
    """The part of Theta outside range(M), and whether M'Theta = 0 holds there. M M' = R'R, with R
    from QR factorizations of pieces of M', has the range of M without squaring its condition."""
    X, mask = program.X, program.mask
    n, step = len(X), max(1, len(X) // X.shape[1])
    R: Any = np.zeros((0, n))
    for start in range(0, mask.shape[1], step):
        piece = mask.T[start : start + step, None, :] * X.T
        R = np.linalg.qr(np.vstack([R, piece.reshape(-1, n)]), mode="r")
    _, values, vectors = np.linalg.svd(R, full_matrices=False)
    rounding = max(n, mask.shape[1] * X.shape[1]) * np.finfo(np.float64).eps * values[0]
    basis = vectors[values > rounding]
    for _ in range(2):  # once leaves a rounding error of the size of Theta, not of the part
        Theta = Theta - basis.T @ (basis @ Theta)
    error = np.linalg.norm(_correlation(program, Theta))
    size = np.linalg.norm(values) * np.linalg.norm(Theta)
    return Theta, bool(error <= DUAL_FEASIBILITY * size)
