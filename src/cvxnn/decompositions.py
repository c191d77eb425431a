"""Cone decompositions u = v - w with v, w in K: from a gated solution to a ReLU network.

With b = (-X~u)_+ the conditions are X~w >= b and v = u + w (paper, sections 3.1 and 4.2). The fit
does not change, the norm grows from ||u|| to ||v|| + ||w||, and so does the penalty. Every method
returns a w for each non-zero block; what it leaves short of feasible is made up by moving v and w
along the interior of the cone together, which keeps v - w = u.

Two statements of the paper are not implemented as printed. Its closed form `w = -X~_I^+ X~_I u`
takes a sub-matrix's pseudo-inverse for columns of the whole one's: w leaves the cone. The right
one is `w = X~^+ (-X~u)_+`, and the norm ratio is bounded by 1 + 2 kappa(X~), not by 2.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import linprog

from cvxnn import budget
from cvxnn.arrays import Array
from cvxnn.certificates import Certificate, certify
from cvxnn.cones.cones import Cones
from cvxnn.cones.projection import ActiveRows
from cvxnn.networks import ReLUNetwork
from cvxnn.penalties import NeuronGroups, make_penalty
from cvxnn.problems import CGReLU, CReLU
from cvxnn.ranks import ALONE
from cvxnn.smooth import Point, Smooth
from cvxnn.solvers.base import StalledError
from cvxnn.solvers.results import Solution
from cvxnn.solvers.rfista import RFISTA
from cvxnn.validation import check_choice, check_integer, check_number, suggest


@dataclass(frozen=True, eq=False)
class Decomposition:
    """A feasible point of C-ReLU with the fit of a gated solution.

    Attributes
    ----------
    problem : the C-ReLU problem it belongs to.
    weights : (V, W), each (p, d, C), feasible.
    certificate : the objective at the weights, and a lower bound for C-ReLU: that of the gated
        relaxation, or a better one from the cones.
    method : the method's name.
    norm_ratio : sum(||v|| + ||w||) / sum ||u||.
    violation : the largest distance from a half-space before the blocks were moved inside.
    violation_bound : what theory promises for it (CD-A with full row rank), or None.
    block_ratios : (||v|| + ||w||) / ||u|| of every non-zero block.
    block_bounds : 1 + 2 kappa of its tight rows, an upper bound for the ratio, or None where the
        method has none.
    seconds : time of the decomposition alone.
    """

    problem: CReLU
    weights: tuple[np.ndarray, np.ndarray]
    certificate: Certificate
    method: str
    norm_ratio: float
    violation: float
    violation_bound: float | None
    block_ratios: np.ndarray
    block_bounds: np.ndarray | None
    seconds: float

    @property
    def n_active(self) -> int:
        """Non-zero blocks (pattern, sign, class): the neurons of the network."""
        return int(sum(np.any(part != 0, axis=1).sum() for part in self.weights))

    def __repr__(self) -> str:
        return (
            f"Decomposition({self.method}: {self.certificate}; norm ratio {self.norm_ratio:.4g}, "
            f"{self.n_active} active neurons, {self.seconds:.2g} s)"
        )

    def network(self) -> ReLUNetwork:
        """The ReLU network, in the units of the raw X."""
        return self.problem.network(self.weights)


@dataclass(frozen=True, eq=False)
class _Blocks:
    """The non-zero blocks of a gated solution, as rows, and what has to be reached."""

    cones: Cones
    X: np.ndarray
    u: np.ndarray  # (B, d)
    pattern: np.ndarray  # (B,)

    @property
    def signs(self) -> np.ndarray:
        return self.cones.signs[self.pattern]

    def shortage(self) -> np.ndarray:
        """b = (-X~u)_+, (B, n)."""
        return np.maximum(-(self.u @ self.X.T) * self.signs, 0.0)


@dataclass(frozen=True, eq=False)
class _Result:
    w: np.ndarray
    bounds: np.ndarray | None = None
    violation_bound: float | None = None


def decompose(gated: Solution, method: str = "min-norm", **options: object) -> Decomposition:
    """Decompose a solution of C-GReLU onto the cones of its patterns.

    Parameters
    ----------
    gated : a `Solution` of a `CGReLU` problem.
    method :
        "closed-form"     for data of full row rank; one pseudo-inverse.
        "gate"            w along the gate: immediate, but with large norms.
        "lp"              any feasible point, by linear programming (HiGHS).
        "least-distance"  the smallest ||w||.
        "min-norm"        the smallest ||v|| + ||w||, by projections (default).
        "socp"            the same through CVXPY; option `backend`.
        "approximate"     CD-A: min 1/2 ||(b - X~w)_+||^2 + rho ||w|| by R-FISTA; options `rho`
                          (1e-10), `tol` on the subgradient norm (1e-5) and `max_iter` (10000).
    """
    if not isinstance(gated, Solution) or not isinstance(gated.problem, CGReLU):
        what = f"that of a {type(gated.problem).__name__}" if isinstance(gated, Solution) else ""
        raise TypeError(
            f"gated must be the Solution of a CGReLU, got {what or type(gated).__name__}"
        )
    if gated.problem.operator.base.across.size > 1:
        raise TypeError(
            "gated is a solution on rows in several processes, and decompositions need all of them "
            "in one. With so many rows they would be of no use: the norm of the ReLU network grows "
            "with the rows, to thousands of times that of the gated one. ReLU estimators train on "
            "a sample of ShardedRows instead, and bound what that costs on all of them"
        )
    if gated.problem.operator.is_sparse:
        raise TypeError(
            "gated is a solution on sparse data, which decompositions do not handle: solve a CReLU "
            "problem, or pass X.toarray() to the CGReLU problem"
        )
    check_choice(method, "method", FUNCTIONS)
    function, defaults = FUNCTIONS[method]
    for option in options:
        if option not in defaults:
            hint = suggest(option, defaults) if defaults else "it has none"
            raise TypeError(f"method {method!r} has no option {option!r}; {hint}")
    problem = CReLU.from_gated(gated.problem)
    started = time.perf_counter()
    blocks, index = _non_zero_blocks(problem, np.asarray(gated.weights, dtype=np.float64))
    result = function(blocks, **{**defaults, **options})
    violation = _violation(blocks, result.w)
    w = _move_inside(blocks, result.w)
    seconds = time.perf_counter() - started
    weights = _assemble(problem, blocks.u + w, w, index)
    size = np.linalg.norm(blocks.u, axis=1)
    total = np.linalg.norm(blocks.u + w, axis=1) + np.linalg.norm(w, axis=1)
    certificate = certify(problem, weights, gated.dual)
    return Decomposition(
        problem=problem,
        weights=weights,
        certificate=replace(
            certificate,
            lower_bound=max(certificate.lower_bound, gated.certificate.lower_bound),
        ),
        method=method,
        norm_ratio=float(total.sum() / size.sum()) if len(size) else 1.0,
        violation=violation,
        violation_bound=result.violation_bound,
        block_ratios=total / size,
        block_bounds=result.bounds,
        seconds=seconds,
    )


def closed_form(blocks: _Blocks) -> _Result:
    """w = X~^+ (-X~u)_+ for full row rank, with X~^+ = X^+ (2D - I)."""
    singular_values = _singular_values(blocks.X)
    if not _full_row_rank(blocks.X, singular_values):
        raise ValueError(
            "method 'closed-form' needs X of full row rank (n <= d and independent rows), got "
            f"shape {blocks.X.shape}; use 'min-norm'"
        )
    w = (blocks.shortage() * blocks.signs) @ np.linalg.pinv(blocks.X).T
    bound = 1 + 2 * singular_values[0] / singular_values[-1]
    return _Result(w, np.full(len(w), bound))


def along_gate(blocks: _Blocks) -> _Result:
    """w = t g with the smallest t that works."""
    interior = blocks.cones.interior[blocks.pattern]
    slack = (interior @ blocks.X.T) * blocks.signs
    live = blocks.cones.live
    t = np.max(blocks.shortage()[:, live] / slack[:, live], axis=1, initial=0.0)
    return _Result(t[:, None] * interior)


def linear_program(blocks: _Blocks) -> _Result:
    """A feasible point, whichever HiGHS finds first."""
    w = np.zeros_like(blocks.u)
    d = w.shape[1]
    for i, (signs, b) in enumerate(zip(blocks.signs, blocks.shortage(), strict=True)):
        budget.look()
        answer = linprog(
            np.zeros(d),
            A_ub=-signs[:, None] * blocks.X,
            b_ub=-b,
            bounds=[(None, None)] * d,
            options=budget.limits_of_highs(),
        )
        if answer.x is None:
            budget.look()
            raise RuntimeError(f"HiGHS found no decomposition: {answer.message}")
        w[i] = answer.x
    return _Result(w)


def least_distance(blocks: _Blocks) -> _Result:
    """min ||w|| subject to X~w >= b."""
    w, active = blocks.cones.project(
        np.zeros_like(blocks.u), blocks.pattern, offsets=blocks.shortage()
    )
    return _Result(w, _tight_row_bounds(blocks, active))


def min_norm(blocks: _Blocks) -> _Result:
    """min ||u + w|| + ||w|| subject to X~w >= b, the objective of the SOCP.

    Replacing both norms by quadratics that touch them at the current point gives a projection of
    -t u with t = ||w|| / (||v|| + ||w||): the solution is the fixed point of t, each step of which
    lowers the objective, and warm active rows make the steps cheap. A block of K keeps w = 0, one
    of -K takes v = 0.
    """
    b = blocks.shortage()
    w, active = blocks.cones.project(np.zeros_like(blocks.u), blocks.pattern, offsets=b)
    bounds = _tight_row_bounds(blocks, active)
    opposite = blocks.cones.contains(-blocks.u, blocks.pattern, tol=0.0)
    w[opposite] = -blocks.u[opposite]
    open_ = np.flatnonzero(~opposite & b.any(axis=1))
    t = np.full(len(open_), 0.5)
    best = np.full(len(open_), np.inf)
    for _ in range(50):  # blocks that gain less than 1e-9 leave the loop
        if len(open_) == 0:
            break
        u, pattern = blocks.u[open_], blocks.pattern[open_]
        step, state = blocks.cones.project(
            -t[:, None] * u, pattern, offsets=b[open_], start=active.select(open_)
        )
        active.store(open_, state)
        first, second = np.linalg.norm(u + step, axis=1), np.linalg.norm(step, axis=1)
        w[open_] = step
        t = second / (first + second)
        going = first + second < best * (1 - 1e-9)
        best, open_, t = (first + second)[going], open_[going], t[going]
    return _Result(w, bounds)


def conic(blocks: _Blocks, backend: str) -> _Result:
    """The SOCP, block by block through CVXPY; compiled once, with parameters."""
    from cvxnn.solvers.conic import import_cvxpy

    cp = import_cvxpy()
    n, d = blocks.X.shape
    w, u = cp.Variable(d), cp.Parameter(d)
    signs, b = cp.Parameter(n), cp.Parameter(n)
    program = cp.Problem(
        cp.Minimize(cp.norm(u + w) + cp.norm(w)), [cp.multiply(signs, blocks.X @ w) >= b]
    )
    result = np.zeros_like(blocks.u)
    for i, (row, sign, short) in enumerate(
        zip(blocks.u, blocks.signs, blocks.shortage(), strict=True)
    ):
        budget.look()
        size = np.linalg.norm(
            row
        )  # cones can be scaled: solve for a unit block, whatever the units
        u.value, signs.value, b.value = row / size, sign.astype(float), short / size
        program.solve(solver=backend)
        if w.value is None:
            raise RuntimeError(f"{backend} found no decomposition: status {program.status!r}")
        result[i] = size * w.value
    _, active = blocks.cones.project(
        np.zeros_like(blocks.u), blocks.pattern, offsets=blocks.shortage()
    )
    return _Result(result, _tight_row_bounds(blocks, active))


def approximate(blocks: _Blocks, rho: float, tol: float, max_iter: int) -> _Result:
    """CD-A (paper, section 4.2), all blocks at once."""
    rho = check_number(rho, "rho", minimum=0, strict=True)
    tol = check_number(tol, "tol", minimum=0)
    max_iter = check_integer(max_iter, "max_iter", minimum=1)
    hinge = Shortage(blocks, rho)
    w: Array = np.zeros((*blocks.u.shape, 1))
    try:
        for n_iter, iterate in enumerate(RFISTA().iterates(hinge, w, "paper")):
            w = iterate.U
            assert iterate.residual is not None  # "paper" was asked for
            if iterate.residual <= tol or n_iter >= max_iter:
                break
    except StalledError:
        pass  # solved as well as rounding allows
    singular_values = _singular_values(blocks.X)
    bound = 2 * rho / singular_values[-1] if _full_row_rank(blocks.X, singular_values) else None
    return _Result(w[:, :, 0], violation_bound=bound)


class Shortage(Smooth):
    """1/2 sum_b ||(b - X~w)_+||^2 for R-FISTA, with rho sum_b ||w_b|| beside it."""

    def __init__(self, blocks: _Blocks, rho: float) -> None:
        self.X, self.signs, self.target = blocks.X, blocks.signs, blocks.shortage()
        self.penalty = make_penalty(NeuronGroups(), rho)

    affine_gradient = False
    across = ALONE

    @property
    def smooth(self) -> Shortage:
        return self

    def point(self, U: Array) -> Point:
        return Point(U, self.target - (U[:, :, 0] @ self.X.T) * self.signs)

    def gradient(self, point: Point) -> tuple[Any, np.ndarray]:
        hinge = np.maximum(point.fit, 0.0)
        return None, -((hinge * self.signs) @ self.X)[:, :, None]

    def bregman(self, new: Point, old: Point) -> float:
        h_new, h = np.maximum(new.fit, 0.0), np.maximum(old.fit, 0.0)
        return 0.5 * float(np.sum((h_new - h) ** 2) + 2 * np.sum(h * (h_new - new.fit)))


FUNCTIONS: dict[str, tuple[Callable[..., _Result], dict[str, object]]] = {
    "closed-form": (closed_form, {}),
    "gate": (along_gate, {}),
    "lp": (linear_program, {}),
    "least-distance": (least_distance, {}),
    "min-norm": (min_norm, {}),
    "socp": (conic, {"backend": "CLARABEL"}),
    "approximate": (approximate, {"rho": 1e-10, "tol": 1e-5, "max_iter": 10_000}),
}


def _non_zero_blocks(
    problem: CReLU, U: np.ndarray
) -> tuple[_Blocks, tuple[np.ndarray, np.ndarray]]:
    i, k = np.nonzero(np.any(U != 0, axis=1))
    stuck = np.unique(i[problem.cones.singular[i]])
    if len(stuck):
        raise ValueError(
            f"the cones of patterns {stuck.tolist()} are singular, K - K is not the whole space: "
            "their weights have no decomposition; sample patterns without ties, or build a CReLU "
            "problem, which replaces them"
        )
    X = np.asarray(problem.operator_double.rows())
    return _Blocks(problem.cones, X, np.ascontiguousarray(U[i, :, k]), i), (i, k)


def _assemble(
    problem: CReLU, v: np.ndarray, w: np.ndarray, index: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    p, d, C = problem.weight_shape[0] // 2, problem.weight_shape[1], problem.weight_shape[2]
    V, W = np.zeros((p, d, C)), np.zeros((p, d, C))
    V[index[0], :, index[1]], W[index[0], :, index[1]] = v, w
    return V, W


def _violation(blocks: _Blocks, w: np.ndarray) -> float:
    both = [blocks.cones.violation(part, blocks.pattern) for part in (w, blocks.u + w)]
    return float(np.max(both, initial=0.0))


def _move_inside(blocks: _Blocks, w: np.ndarray) -> np.ndarray:
    """w + t g, with v + t g beside it, for the smallest t that makes both feasible."""
    cones, pattern = blocks.cones, blocks.pattern
    interior = cones.interior[pattern]
    slack = cones.slack(interior, pattern)
    for _ in range(3):
        short = np.maximum(cones.violation(w, pattern), cones.violation(blocks.u + w, pattern))
        if not short.any():
            break
        # 1 % more than needed, so that rounding does not leave it just outside
        w = w + (1.01 * short / slack)[:, None] * interior
    return w


def _tight_row_bounds(blocks: _Blocks, active: ActiveRows) -> np.ndarray:
    """1 + 2 kappa(X~_J) with J the rows that are tight in the least-distance solution, and kappa
    over the non-zero singular values; 1 where no row is."""
    bounds = np.ones(len(blocks.u))
    for i, count in enumerate(active.count):
        if count:
            values = np.linalg.svd(blocks.X[active.rows[i, :count]], compute_uv=False)
            values = values[values > values[0] * max(blocks.X.shape) * np.finfo(float).eps]
            bounds[i] = 1 + 2 * values[0] / values[-1]
    return bounds


def _singular_values(X: np.ndarray) -> np.ndarray:
    """The singular values of X, or a single zero if X has more rows than columns and so cannot
    have full row rank."""
    n, d = X.shape
    return np.linalg.svd(X, compute_uv=False) if n <= d else np.zeros(1)


def _full_row_rank(X: np.ndarray, singular_values: np.ndarray) -> bool:
    n, d = X.shape
    threshold = singular_values[0] * max(n, d) * np.finfo(float).eps
    return n <= d and math.isfinite(threshold) and bool(singular_values[-1] > threshold)
