"""The augmented Lagrangian method for C-ReLU (paper, section 4.3), R-FISTA inside.

    L_delta(v, gamma) = F(v) + delta/2 sum_b ||(gamma_b/delta - X~_b v_b)_+||^2
    v     <- argmin_v L_delta(v, gamma)              R-FISTA, started at the last v
    gamma <- (gamma - delta X~ v)_+

over all blocks b (pattern, sign, class). Where the code departs from the printed paper:

- `delta` is the paper's, for a Lagrangian divided by nC as its code has it: 100/(nC) here;
- of the two windows the paper prints, the one of its default parameters, [0.001, 0.01], is the
  default, for the sum of squares of the violations;
- a certified relative gap is the default stop. When the published stop is met the inner tolerance
  goes on falling, since the published ones leave gaps of percents;
- the paper stops at c_gap <= 0.001, a sum of squares, the authors' code at c_gap <= 1e-6. The
  former is `stop="paper"`, the latter `AL(gap_tol=1e-6)` with it. That code also divides delta by
  n alone: `delta=100 * C` here;
- the published tolerances and window are for unit columns and targets of +-1. Under the default
  stop they are scaled to the data, so that units do not matter; `stop="paper"` is literal.

Only non-zero blocks differ from what the multipliers say at v = 0, so the constraint terms are
evaluated for those alone; X~'gamma is formed once for each update.

On a device, subproblems and multipliers are there. Points are copied off it to be made feasible,
once a subproblem and every SHOW_EVERY of its iterations.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cvxnn import budget, panels
from cvxnn.arrays import (
    Array,
    array_namespace,
    astype,
    is_sparse,
    on_device,
    with_rows_set,
    zeros,
)
from cvxnn.cones.projection import ActiveRows
from cvxnn.kernels import native
from cvxnn.penalties import Penalty
from cvxnn.problems import CReLU
from cvxnn.protocols import Problem
from cvxnn.smooth import Point, Smooth
from cvxnn.solvers.base import Iterate, StalledError, Working
from cvxnn.solvers.rfista import RFISTA, squared_norm
from cvxnn.validation import check_integer, check_number

_BLOCK = 2**17  # products of blocks and rows held at a time: 1 MB, near the processor
_DEVICE_BLOCK = 2**26  # the same on a device, which works on large pieces
SHOW_EVERY = 150  # inner iterations between two feasible points


class ALState(NamedTuple):
    """What a warm start needs beside the weights."""

    multipliers: Array  # (2pC, n), >= 0
    delta: float
    step_size: float | None


class Scale(NamedTuple):
    """The units of gradients and of squared violations; both are 1 for unit columns and targets
    of +-1, for which the published tolerances were chosen."""

    gradient: float
    violation: float

    @classmethod
    def of(cls, problem: CReLU) -> Scale:
        target = math.sqrt(2 * problem.loss.zero_value) or 1.0
        X = problem.operator.rows()
        entries = X.data if is_sparse(X) else X
        column = math.sqrt(squared_norm(entries) / X.shape[1]) or 1.0
        return cls(target * column, target**2)


@dataclass(frozen=True)
class AL:
    """Settings of the augmented Lagrangian method; the defaults are the paper's.

    Attributes
    ----------
    delta : first penalty strength.
    window : while the constraint gap of the first subproblem is above it, delta doubles; below it,
        delta and the tolerance are halved. None keeps delta fixed.
    window_tol : tolerance (subgradient norm) of the subproblem during the search.
    inner_tol : tolerance of the subproblems afterwards.
    max_inner : R-FISTA iterations for one subproblem.
    gap_tol : the constraint gap at which the published rule is met, beside a subgradient of `tol`;
        None is `tol` for both, as printed. Given, subproblems are treated as the authors' code
        does: they end where the rule is met, and whenever twice the gap is below the square of
        their tolerance, that square is halved.
    tighten : factor on the inner tolerance once the published stop is met, for certified gaps.
    inner : settings of R-FISTA.
    """

    name: ClassVar[str] = "al"
    default_max_iter: ClassVar[dict[str, int]] = {"gap": 200_000, "paper": 10_000}
    patience: ClassVar[int] = 50_000  # an outer iteration alone may take max_inner
    any_device: ClassVar[bool] = True

    delta: float = 100.0
    window: tuple[float, float] | None = (1e-3, 1e-2)
    window_tol: float = 10**-1.5
    inner_tol: float = 1e-3
    max_inner: int = 1000
    gap_tol: float | None = None
    tighten: float = 0.5
    inner: RFISTA = field(default_factory=RFISTA)

    def __post_init__(self) -> None:
        for name in ("delta", "window_tol", "inner_tol"):
            check_number(getattr(self, name), name, minimum=0, strict=True)
        check_number(
            self.tighten, "tighten", minimum=0, strict=True, maximum=1, strict_maximum=True
        )
        check_integer(self.max_inner, "max_inner", minimum=1)
        if self.gap_tol is not None:
            check_number(self.gap_tol, "gap_tol", minimum=0, strict=True)
        if self.window is not None:
            low, high = (check_number(edge, "window", minimum=0) for edge in self.window)
            if low >= high:
                raise ValueError(f"window must be an interval (low, high), got {self.window}")
        elif self.window_tol != AL.window_tol:
            raise ValueError("window_tol is given, but window=None does not read it")
        if not isinstance(self.inner, RFISTA):
            raise TypeError(f"inner must be an RFISTA, got {type(self.inner).__name__}")

    def further_bytes(self, problem: CReLU) -> int:
        """The multipliers of all rows for all blocks, and a step of them."""
        n, C = problem.loss.Y.shape
        return 2 * problem.operator.dtype.itemsize * len(problem.patterns) * 2 * C * n

    def handles(self, problem: Problem) -> bool:
        return problem.kind == "C-ReLU"

    def iterates(
        self,
        problem: CReLU,
        start: Array,
        stop: str = "gap",
        state: ALState | None = None,
        tol: float = 0.0,
    ) -> Iterator[Iterate | Working]:
        n, C = problem.loss.Y.shape
        run = _Outer(problem, self, tol if stop == "paper" else None)
        scale = Scale.of(problem) if stop == "gap" else Scale(1.0, 1.0)
        yield replace(run.first(start), state=state)
        U, eta = start, None
        if state is not None:
            gamma, delta, eta = state
            gamma = problem.operator.like(gamma)
        else:
            gamma = zeros(problem.operator.rows(), (len(problem.pattern_of_block), n))
            delta = self.delta / (n * C)
            if self.window is not None:
                U, delta, eta = yield from self._find_delta(run, U, gamma, delta, scale)

        unit = 1.0 if self.gap_tol is None else tol / self.gap_tol  # of gaps, beside subgradients
        tol = self.inner_tol * scale.gradient
        smallest = 1e-9 * tol  # below this, residuals are rounding
        while True:
            lagrangian = Lagrangian(problem, gamma, delta)
            U, residual, eta, n_inner = yield from run.minimise(lagrangian, U, tol, eta)
            gamma = lagrangian.updated_multipliers(U)
            gap = lagrangian.constraint_gap(U)
            yield replace(
                run.shown(lagrangian, U, n_inner),
                residual=max(residual, unit * gap) if stop == "paper" else None,
                step_size=eta,
                state=ALState(gamma, delta, eta),
            )
            if stop == "paper" and self.gap_tol is not None and 2 * gap < tol**2:
                tol *= math.sqrt(0.5)
            enough = max(tol / scale.gradient, 1e-12) * scale.violation
            if stop == "gap" and residual <= tol and gap <= enough:
                tol *= self.tighten
                if tol < smallest:
                    raise StalledError("the subproblems are solved to rounding")

    def _find_delta(
        self, run: _Outer, U: Array, gamma: Array, delta: float, scale: Scale
    ) -> Generator[Iterate | Working, None, tuple[Array, float, float | None]]:
        """The windowing heuristic: a penalty for which violations are neither large nor gone."""
        assert self.window is not None
        low, high = (edge * scale.violation for edge in self.window)
        tol, eta = self.window_tol * scale.gradient, None
        smallest = 1e-5 * tol
        for _ in range(60):  # doublings and halvings, which span any units
            lagrangian = Lagrangian(run.problem, gamma, delta)
            U, _, eta, n_inner = yield from run.minimise(lagrangian, U, tol, eta)
            yield run.shown(lagrangian, U, n_inner)
            gap = lagrangian.constraint_gap(U)
            if gap > high:
                delta = 2 * delta
            elif gap < low and tol > smallest:  # a zero model never enters the window
                delta, tol = delta / 2, tol / 2
            else:
                break
        return U, delta, eta


class _Outer:
    """What the outer iterations share: feasible points from warm active rows."""

    def __init__(self, problem: CReLU, settings: AL, stop_tol: float | None) -> None:
        self.problem, self.settings = problem, settings
        self.stop_tol = stop_tol  # of the published rule, if that is what ends the run
        self.active: ActiveRows | None = None

    def first(self, start: Array) -> Iterate:
        """The start made feasible. It may be optimal, the zero model above lambda_max or a warm
        start; where a few projections show that zero is not, the rest is saved."""
        problem = self.problem
        feasible, self.active = problem.make_feasible(start)
        fit = self._fit(feasible)
        Theta = problem.loss.gradient(fit)
        if not np.any(feasible):
            G = problem.operator_double.adjoint(Theta)
            if problem.exceeds_dual_limit(G):
                return Iterate(feasible, fit, Theta, G)  # G itself is a valid, loose correlation
        return Iterate(feasible, fit, Theta, problem.dual_correlation(Theta))

    def _fit(self, feasible: np.ndarray) -> Array:
        """The predictions of weights in NumPy, which is where the cones are."""
        operator = self.problem.operator
        return operator.forward(feasible if operator.in_numpy else operator.like(feasible))

    def minimise(
        self, lagrangian: Lagrangian, U: Array, tol: float, eta: float | None
    ) -> Generator[Iterate | Working, None, tuple[Array, float, float | None, int]]:
        """R-FISTA on the subproblem, to a min-norm subgradient of at most `tol`. Now and then its
        point is made feasible and shown, so that a run can end, or be ended, on the way."""
        residual, n_unreported = math.inf, 0
        iterates = self.settings.inner.iterates(lagrangian, U, "paper", eta)
        try:
            for n_inner, iterate in enumerate(iterates, start=1):
                assert iterate.residual is not None  # "paper" was asked for
                U, residual, eta = iterate.U, iterate.residual, iterate.step_size
                n_unreported += 1
                if residual <= tol or n_inner >= self.settings.max_inner:
                    break
                if self._ends_the_run(lagrangian, U, residual):
                    break
                if n_inner % SHOW_EVERY:
                    yield Working(n_unreported)
                else:
                    shown = self.feasible_iterate(
                        U, iterate.Theta, iterate.correlation, n_unreported
                    )
                    yield replace(shown, state=ALState(lagrangian.gamma, lagrangian.delta, eta))
                    n_unreported = 0
        except StalledError:
            pass  # solved as well as rounding allows; an update of the multipliers may still help
        return U, residual, eta, n_unreported

    def _ends_the_run(self, lagrangian: Lagrangian, U: Array, residual: float) -> bool:
        """Whether a point meets the rule of the authors' code, which tests it at all of them."""
        if self.stop_tol is None or self.settings.gap_tol is None or residual > self.stop_tol:
            return False
        return lagrangian.constraint_gap(U) <= self.settings.gap_tol

    def shown(self, lagrangian: Lagrangian, U: Array, n_inner: int) -> Iterate:
        """U made feasible, with the dual point of the multipliers that follow from it."""
        return self.feasible_iterate(U, *lagrangian.gradient(lagrangian.point(U)), n_inner)

    def feasible_iterate(
        self, U: Array, Theta: Array, correlation: Array | None, n_inner: int
    ) -> Iterate:
        feasible, self.active = self.problem.make_feasible(U, self.active)
        return Iterate(feasible, self._fit(feasible), Theta, correlation, n_inner=n_inner)


class Lagrangian(Smooth):
    """f(M U) + delta/2 sum_b ||(gamma_b/delta - X~_b u_b)_+||^2, the smooth part of L_delta; with
    the penalty beside it, this is what R-FISTA minimises."""

    gamma: Any
    X: Any

    def __init__(self, problem: CReLU, gamma: Array, delta: float) -> None:
        super().__init__(problem.operator, problem.loss)
        self.problem, self.gamma, self.delta = problem, gamma, delta
        X = problem.operator.rows()
        self.X = np.ascontiguousarray(X) if isinstance(X, np.ndarray) else X
        self.xp = array_namespace(X)
        self.signs, self.pattern = problem.sides
        plain = problem.operator.in_numpy and self.X.dtype == gamma.dtype == np.float64
        self.compiled = plain and native.library() is not None
        self.pull = self._pull(gamma)

    affine_gradient = False  # hinges

    @property
    def smooth(self) -> Lagrangian:
        return self

    @property
    def penalty(self) -> Penalty:
        return self.problem.penalty

    def gradient(self, point: Point) -> tuple[Array, Array]:
        """At zero blocks the constraint terms pull by X~'gamma, at others by X~'(gamma - delta
        X~ u)_+, which is also the next multiplier: the gradient is a dual correlation."""
        Theta = self.loss.gradient(point.fit)
        G = self.operator.adjoint(Theta)
        rows = self.problem.flat(point.U)
        active, chosen = _non_zero(rows)
        pull = with_rows_set(self.pull, active, chosen, self._hinge_pull(rows, active))
        return Theta, G - self.problem.unflat(pull)

    def bregman(self, new: Point, old: Point) -> float:
        """With a = gamma/delta - X~u and h = a_+ the hinge's divergence is
        delta/2 ((h' - h)^2 + 2 h (h' - a')), a sum of non-negative terms."""
        rows_new, rows_old = self.problem.flat(new.U), self.problem.flat(old.U)
        active, _ = _non_zero(rows_new, rows_old)
        divergence = self._hinge_divergence(rows_new, rows_old, active)
        return super().bregman(new, old) + self.delta / 2 * divergence

    def constraint_gap(self, U: Array) -> float:
        """sum_b ||(X~_b u_b)_-||^2, the paper's measure of infeasibility."""
        rows = self.problem.flat(U)
        active, _ = _non_zero(rows)
        return squared_norm(_positive(-self._signed_products(rows, active)))

    def updated_multipliers(self, U: Array) -> Array:
        """(gamma - delta X~ u)_+"""
        rows = self.problem.flat(U)
        active, chosen = _non_zero(rows)
        hinge = self.delta * _positive(self._slack(rows, active))
        return with_rows_set(self.gamma, active, chosen, hinge)

    def _hinge_pull(self, rows: Any, active: Array) -> Array:
        """X~'(gamma - delta X~ u)_+ of the active blocks: (k, d)."""
        pull = [zeros(self.X, (0, self.X.shape[1]))]
        for part in self._parts(active):
            chosen = active[part]
            if self.compiled:
                coefficients = native.hinge_coefficients(
                    rows[chosen] @ self.X.T, *self._hinge_terms(chosen)
                )
            else:
                hinge = _positive(self._slack(rows, chosen))
                coefficients = self.delta * hinge * self._signs_of(chosen)
            pull.append(astype(coefficients @ self.X, self.X.dtype))
        return self.xp.concat(pull, axis=0)

    def _hinge_divergence(self, new: Any, old: Any, active: Array) -> float:
        total = 0.0
        for part in self._parts(active):
            chosen = active[part]
            if self.compiled:
                after, before = new[chosen] @ self.X.T, old[chosen] @ self.X.T
                total += native.hinge_divergence(after, before, *self._hinge_terms(chosen))
                continue
            slack_new = self._slack(new, chosen)
            hinge_new, hinge = _positive(slack_new), _positive(self._slack(old, chosen))
            along = float(self.xp.sum(hinge * (hinge_new - slack_new)))
            total += squared_norm(hinge_new - hinge) + 2 * along
        return total

    def _hinge_terms(self, chosen: Any) -> tuple[Any, Any, Any, Any, float]:
        return self.signs, chosen, self.pattern, self.gamma, self.delta

    def _parts(self, active: Array) -> Iterator[slice]:
        """Slices of the active blocks whose products with all rows fit into the cache."""
        size = _BLOCK if on_device(self.X) in ("", "cpu") else _DEVICE_BLOCK
        return budget.pieces(active.shape[0], size // self.X.shape[0])

    def _signed_products(self, rows: Any, active: Array) -> Array:
        """X~_b u_b for the active blocks: (k, n)."""
        rows = self.xp.take(rows, active, axis=0)
        if not self.operator.in_numpy:
            rows = astype(rows, self.X.dtype)  # products are in the precision of the data
        return panels.multiply(rows, self.X.T) * self._signs_of(active)

    def _signs_of(self, active: Array) -> Array:
        """+-1 for all rows of the active blocks: (k, n)."""
        signs = self.xp.take(self.signs, self.xp.take(self.pattern, active, axis=0), axis=0)
        return signs if self.operator.in_numpy else astype(signs, self.X.dtype)

    def _slack(self, rows: Any, active: Array) -> Array:
        gamma = self.xp.take(self.gamma, active, axis=0)
        return gamma / self.delta - self._signed_products(rows, active)

    def _pull(self, gamma: Array) -> Array:
        """X~'gamma for all blocks, zero where gamma is: (2pC, d)."""
        active, chosen = _non_zero(gamma)
        used = self.xp.take(gamma, active, axis=0) * self._signs_of(active)
        pull = zeros(self.X, (gamma.shape[0], self.X.shape[1]))
        return with_rows_set(pull, active, chosen, panels.multiply(used, self.X))


def _non_zero(*rows: Array) -> tuple[Any, Any]:
    """The blocks that are non-zero in any of the given weights: their numbers, and booleans."""
    xp = array_namespace(rows[0])
    chosen = xp.any(rows[0] != 0, axis=1)
    for part in rows[1:]:
        chosen = chosen | xp.any(part != 0, axis=1)
    return xp.nonzero(chosen)[0], chosen


def _positive(x: Array) -> Array:
    xp = array_namespace(x)
    return xp.maximum(x, xp.zeros_like(x))
