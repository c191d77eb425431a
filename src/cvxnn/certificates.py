"""Bounds on the optimal value: what is proven about a point, and of which problem.

For feasible weights U with predictions Z = M U and any dual candidate Theta (n, C),

    P(U) = f(Z) + g(U)   >=   optimal value   >=   D = -f*(tau Theta) - g*(tau M'Theta),

where tau scales Theta into the dual feasible set, class by class where the penalty allows it.
Cones relax the dual constraint: for C-ReLU it bounds the projections Pi_K(+-M'Theta), or any
M'Theta - X~'gamma with gamma >= 0 (`problem.dual_correlation`). At an optimum Theta = grad f(Z)
closes the gap P - D.

Both ends are computed in NumPy's float64 with a bound on every rounding error (proofs.py), wherever
the data are, so that they hold in real arithmetic for the numbers as they are stored. While a
solver runs, its iterates are bounded without that (`lower_bound_of`), which decides nothing but
when to look more closely.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cvxnn import proofs
from cvxnn.arrays import Array, Weights, array_namespace, double, like, to_numpy
from cvxnn.digits import text_above, text_below
from cvxnn.penalties import NoPenalty
from cvxnn.proofs import Multipliers
from cvxnn.validation import check_array, check_problem

if TYPE_CHECKING:
    from cvxnn.cones.projection import ActiveRows
    from cvxnn.protocols import Problem

# At lam = 0 a dual point has to satisfy M'Theta = 0; it counts if it does so to this precision.
DUAL_FEASIBILITY = 1e-9
# Distance from a cone, relative to the largest weight, that counts as rounding.
FEASIBILITY = 1e-9


@dataclass(frozen=True)
class Certificate:
    """A two-sided bound on the optimal value of a convex program.

    Attributes
    ----------
    objective : value at the weights, which are feasible, in float64; an upper bound.
    lower_bound : value of a feasible dual point; no weights have a smaller objective.
    zero_objective : loss of the zero prediction, which sets the scale of the relative gap where
        the objective itself vanishes.
    scope : the problem that is bounded, in words.
    dual_infeasibility : ||M'Theta|| / (||M|| ||Theta||) at lam = 0, where the dual constraint is
        an equation that holds to rounding only; exactly 0 otherwise. The lower bound takes it into
        account and then holds within a radius.
    max_violation : largest distance of a block from a half-space of its cone; 0 without cones.
    network_objective : value of the mapped network itself, measured on its own predictions: an
        upper bound for the non-convex problem whatever the patterns are. None without cones.
    radius : at lam = 0 the lower bound holds among weights whose block norms sum to at most this,
        each column in its own units, the power of 2 next above its largest entry. None where it
        holds among all weights.
    caveats : what is true up to rounding only, in words; empty where both bounds are proven.
    """

    objective: float
    lower_bound: float
    zero_objective: float
    scope: str
    dual_infeasibility: float = 0.0
    max_violation: float = 0.0
    network_objective: float | None = None
    radius: float | None = None
    caveats: tuple[str, ...] = ()

    @property
    def proven(self) -> bool:
        """Whether both bounds hold in real arithmetic, for the numbers as they are stored."""
        return not self.caveats

    @property
    def gap(self) -> float:
        return max(self.objective - self.lower_bound, 0.0)  # negative only where nothing is proven

    @property
    def relative_gap(self) -> float:
        """gap / max(objective, 1e-8 zero_objective), with 0/0 = 0."""
        return relative_gap(self.objective, self.lower_bound, self.zero_objective)

    def __str__(self) -> str:
        limited = ""
        if self.radius is not None:
            limited = (
                f" among weights whose block norms sum to at most {text_below(self.radius, 3)}"
            )
        rounding = f", up to rounding: {'; '.join(self.caveats)}" if self.caveats else ""
        return (
            f"{text_above(self.objective)} >= optimal value >= {text_below(self.lower_bound)} "
            f"(relative gap {text_above(self.relative_gap, 2)}) for {self.scope}{limited}{rounding}"
        )


def relative_gap(objective: float, lower_bound: float, zero_objective: float) -> float:
    gap = max(objective - lower_bound, 0.0)
    if math.isinf(gap):  # an objective that is too large for an error bound
        return 1.0
    return 0.0 if gap == 0 else gap / max(objective, 1e-8 * zero_objective)


def certify(problem: Problem, weights: ArrayLike, Theta: Array | None = None) -> Certificate:
    """Bound the optimal value of `problem` at feasible weights, in float64 with fresh products and
    a bound on every rounding error.

    `Theta` is a further dual candidate, for instance the best one of a solver's run; the
    gradient at the weights is always tried.
    """
    if hasattr(weights, "certificate"):
        raise TypeError(
            "weights must be an array, or the pair (V, W) of C-ReLU, not a solution; pass its "
            "parts: certify(problem, solution.weights, solution.dual)"
        )
    if Theta is not None:
        shape = tuple(check_problem(problem).loss.Y.shape)
        Theta = check_array(Theta, "Theta")
        if Theta.ndim == 1 and shape[1] == 1:
            Theta = Theta[:, None]
        if tuple(Theta.shape) != shape:
            raise ValueError(f"Theta must have shape {shape}, got {tuple(Theta.shape)}")
    return prove(problem, weights, Theta).certificate


def check_bounded(problem: Problem) -> None:
    """Raise where nothing could be proven."""
    if isinstance(problem.penalty, NoPenalty) and problem.operator.base.across.size > 1:
        raise ValueError("lam = 0 has no lower bound with rows in several processes")


class Proof(NamedTuple):
    """A certificate and what it rests on; see `Solution` for the parts."""

    certificate: Certificate
    weights: Array
    dual: Array
    multipliers: Multipliers | None
    output_bias: np.ndarray | None


@np.errstate(all="ignore")  # what overflows ends in a bound that says nothing
def prove(
    problem: Problem,
    weights: ArrayLike,
    Theta: Array | None = None,
    *,
    start: ActiveRows | None = None,
    enough: float = -1.0,
    precise: float = proofs.PRECISE,
    refuse: bool = True,
    bounded: bool = True,
) -> Proof:
    """The certificate of weights, and of the weights that it speaks about: those of C-ReLU are
    lifted into their cones where rounding may have left them outside.

    `start` may speed up the bound of Theta (see `problem.dual_correlation`); if that leaves a
    relative gap of at most `enough`, no other candidate is tried. Products whose error costs more
    than `precise` of the bound are made again in parts. With `refuse`, weights that are outside
    their cones by more than rounding are an error, else a caveat. Without `bounded` the lower bound
    is 0, which costs nothing: no loss is negative.
    """
    host = check_problem(problem).on_host
    proof = _prove(
        host,
        weights,
        None if Theta is None else to_numpy(Theta),
        start=start,
        enough=enough,
        precise=precise,
        refuse=refuse,
        bounded=bounded,
    )
    if host is problem:
        return proof
    back = problem.operator_double.like
    return proof._replace(weights=back(proof.weights), dual=back(proof.dual))


def _prove(
    problem: Problem,
    weights: ArrayLike,
    Theta: np.ndarray | None,
    *,
    start: ActiveRows | None,
    enough: float,
    precise: float,
    refuse: bool,
    bounded: bool,
) -> Proof:
    """The same for a problem of NumPy arrays, sparse matrices and rows in files."""
    across = problem.operator.base.across
    U = across.agree(double(problem.check_weights(weights)))
    violation, size = problem.max_violation(U), float(array_namespace(U).max(abs(U)))
    if refuse and violation > FEASIBILITY * size:
        raise ValueError(
            f"weights are outside their cones by {violation:.2g}, so their objective bounds "
            "nothing; problem.project(weights) projects them"
        )
    given, (U, caveats) = U, problem.proven_feasible(U)
    violation = violation if U is given else problem.max_violation(U)
    Z = problem.operator_double.forward(U)
    bias = across.agree(problem.loss.intercept(Z)) if problem.output_bias else None
    unproven, network_objective = proofs.obstacles(problem), None
    if unproven:
        objective = problem.loss.value(Z) + problem.penalty.value(U)
        zero_objective = problem.loss.zero_value
    else:
        objective, network_objective = proofs.objectives_above(problem, to_numpy(U), Z, bias)
        zero_objective = proofs.zero_objective_above(problem)
    objective, zero_objective = across.agree(np.array([objective, zero_objective])).tolist()
    bounds = _Bounds(problem, U, unproven, precise)
    bound = None
    if not bounded:
        bound, enough = _Bound(0.0, array_namespace(Z).zeros_like(Z)), math.inf
    elif Theta is not None:
        bound = bounds.of(double(Theta), start)
    if bound is None or relative_gap(objective, bound.value, zero_objective) > enough:
        other = bounds.of(problem.loss.gradient(Z))
        bound = other if bound is None or other.value > bound.value else bound
    certificate = Certificate(
        objective=objective,
        lower_bound=bound.value,
        zero_objective=zero_objective,
        scope=problem.scope,
        dual_infeasibility=bound.infeasibility,
        max_violation=violation,
        network_objective=network_objective,
        radius=bounds.radius if bound.value > 0 else None,
        caveats=caveats + unproven,
    )
    if certificate.proven and not certificate.lower_bound <= certificate.objective:
        raise CertificateError(problem, certificate, problem.present(U), bound.dual)
    return Proof(certificate, U, bound.dual, bound.multipliers, bias)


class CertificateError(AssertionError):
    """A proven lower bound is above a proven objective: one of the proofs is wrong. It carries
    `problem`, `certificate`, `weights` and `dual`."""

    def __init__(
        self, problem: Problem, certificate: Certificate, weights: Weights, dual: Array
    ) -> None:
        super().__init__(
            f"a lower bound of {certificate.lower_bound!r} is above the objective "
            f"{certificate.objective!r} of {problem!r}: this is a mistake in cvxnn. Please report "
            "it, with what this error carries: problem, certificate, weights and dual"
        )
        self.problem, self.certificate = problem, certificate
        self.weights, self.dual = weights, dual


def time_a_pass(problem: Problem) -> None:
    """Take the time of a product like those of a certificate, of a run whose own are on a device:
    what is kept back of its time limit depends on that."""
    host = problem.on_host
    host.operator_double.adjoint(np.zeros(tuple(host.loss.Y.shape)))


@dataclass(frozen=True, eq=False)
class _Bound:
    value: float
    dual: Array
    multipliers: Multipliers | None = None
    infeasibility: float = 0.0


class _Bounds:
    """Lower bounds of dual candidates, at given weights U."""

    def __init__(
        self, problem: Problem, U: Array, unproven: tuple[str, ...], precise: float
    ) -> None:
        self.problem, self.unproven, self.precise = problem, unproven, precise
        self.radius: float | None = None
        if isinstance(problem.penalty, NoPenalty):
            check_bounded(problem)
            self.radius = proofs.weights_radius(problem, to_numpy(U))

    def of(self, Theta: Array, start: ActiveRows | None = None) -> _Bound:
        """The bound that Theta proves, made to satisfy the equations of the dual."""
        problem, infeasibility = self.problem, 0.0
        if self.radius is not None:
            Theta, infeasibility = outside_range(problem, Theta)
            if infeasibility > DUAL_FEASIBILITY:
                return _Bound(0.0, 0 * Theta)
        else:
            Theta = problem.loss.dual_candidate(Theta)
        finite = float(np.isfinite(to_numpy(Theta)).all())
        if self.problem.operator.base.across.max(-finite) == 0:
            return _Bound(0.0, array_namespace(Theta).zeros_like(Theta))
        if self.unproven:
            correlation = problem.dual_correlation(Theta, start)
            return _Bound(dual_bound(problem, Theta, correlation), Theta, None, infeasibility)
        found = proofs.lower_bound(
            problem, to_numpy(Theta), start=start, radius=self.radius, precise=self.precise
        )
        return _Bound(found.value, like(Theta, found.dual), found.multipliers, infeasibility)


def lower_bound_of(
    problem: Problem, Theta: Array, correlation: Array | None = None
) -> tuple[float, float]:
    """The bound that a dual candidate proves, and its infeasibility (lam = 0 only)."""
    if isinstance(problem.penalty, NoPenalty):
        return unpenalised_bound(problem, Theta)
    if correlation is None:
        correlation = problem.dual_correlation(Theta)
    return dual_bound(problem, Theta, correlation), 0.0


def dual_bound(problem: Problem, Theta: Array, correlation: Array) -> float:
    """The lower bound of the best scaling of Theta; losses here are never negative."""
    limit = problem.penalty.dual_limit(correlation)
    _, value = problem.loss.best_dual(Theta, limit, problem.penalty.conjugate(correlation))
    return max(value, 0.0)


def unpenalised_bound(problem: Problem, Theta: Array) -> tuple[float, float]:
    """The bound at lam = 0 from the part of Theta outside range(M), and its infeasibility. A
    candidate that does not satisfy M'Theta = 0 to rounding proves nothing but 0."""
    outside, infeasibility = outside_range(problem, Theta)
    if infeasibility > DUAL_FEASIBILITY:
        return 0.0, 0.0
    return dual_bound(problem, outside, problem.operator_double.adjoint(outside)), infeasibility


def outside_range(problem: Problem, Theta: Array) -> tuple[Array, float]:
    """The part of Theta outside range(M), and its ||M'Theta|| / (||M|| ||Theta||)."""
    operator = problem.operator_double
    xp = array_namespace(Theta)
    outside = problem.loss.dual_candidate(problem.range_complement(double(Theta)))
    product = operator.adjoint(outside)
    size = float(xp.sqrt(xp.sum(operator.block_norms() ** 2) * xp.sum(outside**2)))
    infeasibility = float(xp.sqrt(xp.sum(product**2))) / size if size > 0 else 0.0
    return outside, infeasibility
