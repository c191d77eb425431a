"""A bound over all patterns for weights of C-ReLU, by the method that suits the data.

    one input, or rows in a plane      all cells (one_input.py)
    few columns                        a tree of cones (branching.py)
    more columns, large lam            a semidefinite relaxation (semidefinite.py), with CVXPY
    otherwise                          nothing is known of patterns that the program does not have

The upper end is the objective of the network. It needs no patterns, so it holds in either case.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from cvxnn import budget, proofs
from cvxnn.arrays import double, to_numpy
from cvxnn.bounds.base import GIVEN, Bound, PriceBound, PriceMethod, bound_of_price, design
from cvxnn.bounds.branching import Branching
from cvxnn.bounds.enumeration import Enumeration
from cvxnn.bounds.one_input import OneInput
from cvxnn.bounds.rotation import rotate
from cvxnn.bounds.semidefinite import MAX_RANK, Semidefinite, installed
from cvxnn.certificates import prove
from cvxnn.problems import CReLU
from cvxnn.problems.strengths import lambda_max
from cvxnn.protocols import Problem
from cvxnn.validation import check_choice, check_number, check_problem, check_whole, offers

MAX_TRIALS = 5  # of a method, with dual points that are scaled down
BRANCHING_RANK = 7  # beyond it, trees of cones grow too large to be of use
MAX_COLUMNS = 1000  # of which the rank is looked at
LARGE_LAM = 0.15  # of lambda_max over the given patterns, from where the relaxation is of use

NAMES = ("auto", "exact", "branching", "semidefinite", "enumeration", "none")


def bound_over_all_patterns(
    problem: Problem,
    weights: ArrayLike,
    dual: ArrayLike | None = None,
    method: str | PriceMethod = "auto",
    *,
    tol: float = 1e-6,
    max_seconds: float = 60.0,
) -> Bound:
    """Bound the training problem of the ReLU network itself, over all networks of any width.

    Parameters
    ----------
    problem : C-ReLU with lam > 0, on NumPy data.
    weights : of the problem, as in `Solution.weights`; the network that they stand for is the
        upper end.
    dual : (n, C), a dual point such as `Solution.dual`; by default the gradient of the loss at
        the weights.
    method : how the price of the dual point is bounded: "auto" or one of "exact" (rows in a plane),
        "branching", "semidefinite", "enumeration" and "none", or an object that satisfies
        `PriceMethod`.
    tol : a price within this share of lam is good enough.
    max_seconds : after which the method should end.

    Where nothing is proven about all patterns, with "none", by a choice of "auto", or because time
    was too short, the bound is that of the certificate, and `scope` says so.
    """
    check_number(tol, "tol", minimum=0)
    check_number(max_seconds, "max_seconds", minimum=0)
    problem = _check(problem)
    clock = budget.Budget(max_seconds)
    U = to_numpy(double(problem.check_weights(weights)))
    Theta = _dual_point(problem, U, dual)
    chosen = method_of(problem, method)
    if chosen is None:
        return _over_given_patterns(problem, U, Theta)
    relaxed_dual = getattr(chosen, "relaxed_dual", None)
    if relaxed_dual is not None:  # a method that has a better dual point for its own bound
        relaxed = relaxed_dual(problem, max_seconds=clock.left / 2)
        Theta = Theta if relaxed is None else _doubles(problem, relaxed)
    Theta, found = _price(problem, chosen, Theta, tol, clock)
    if not np.isfinite(found.above).any():  # then 0 is all that is known
        return _over_given_patterns(problem, U, Theta)
    bias = problem.loss.intercept(problem.network_predictions(U)) if problem.output_bias else None
    return Bound(
        objective=proofs.network_objective_above(problem, U, bias),
        lower_bound=bound_of_price(problem, Theta, found.above),
        zero_objective=proofs.zero_objective_above(problem),
        scope=found.scope,
        proven=True,
        dual=Theta,
        price=found.above,
        evidence=found.evidence,
        neurons=found.neurons,
    )


def _price(
    problem: CReLU, method: PriceMethod, Theta: np.ndarray, tol: float, clock: budget.Budget
) -> tuple[np.ndarray, PriceBound]:
    """A dual point, and what is proven of its price. A method ends early once it has met a price
    above lam. Then the point is scaled down by that price, as the bound would scale it, and
    the method tries again, in search of a proof."""
    X = design(problem)
    best: tuple[float, np.ndarray, PriceBound] | None = None
    for _ in range(MAX_TRIALS):
        seconds = max(clock.left, 0.0)
        found = method.bound(X, Theta, problem.lam, tol=tol, max_seconds=seconds)
        value = bound_of_price(problem, Theta, found.above)
        if best is None or value > best[0]:
            best = value, Theta, found
        met = np.full(Theta.shape[1], problem.lam)
        np.maximum.at(met, found.neurons.classes, np.abs(found.neurons.prices))
        if np.all(found.above <= (1 + tol) * met) or np.all(met <= problem.lam) or clock.left <= 0:
            break
        if getattr(problem.loss, "coupled", False):
            met = np.full_like(met, met.max())
        Theta = _doubles(problem, Theta * (problem.lam / met))
    assert best is not None
    return best[1], best[2]


def choose_method(problem: CReLU) -> PriceMethod | None:
    """The method of "auto", or None where none is of use."""
    return _choice(problem)[0]


def why_no_method(problem: CReLU) -> str:
    """What there would have to be for "auto" to have a method; empty where it has one."""
    return _choice(problem)[1]


def _choice(problem: CReLU) -> tuple[PriceMethod | None, str]:
    X, C = design(problem), problem.loss.Y.shape[1]
    if OneInput().handles(X, C):
        return OneInput(), ""
    if min(X.shape) > MAX_COLUMNS:
        return None, f"proofs take up to {MAX_COLUMNS:,} rows or columns"
    rank = rotate(X).Z.shape[1]
    if rank <= BRANCHING_RANK:
        return Branching(), ""
    wide = f"rows span {rank} dimensions, where trees of cones go up to {BRANCHING_RANK}"
    if rank > MAX_RANK or not Semidefinite().handles(X, C):
        return None, wide
    weak = LARGE_LAM * lambda_max(problem) / problem.lam
    if weak > 1:
        return None, f"{wide}, and the penalty is {weak:.1f} times too weak for a relaxation"
    if not installed():
        return None, f"{wide}, and a relaxation needs CVXPY: pip install 'cvxnn[cvx]'"
    return Semidefinite(), ""


def method_of(problem: CReLU, method: str | PriceMethod) -> PriceMethod | None:
    """That of a name, or the object itself; None where nothing is to be proven."""
    if not isinstance(method, str):
        return method
    name = check_choice(method, "method", NAMES)
    if name == "auto":
        return choose_method(problem)
    if name == "none":
        return None
    methods: dict[str, PriceMethod] = {
        "exact": OneInput(),
        "branching": Branching(),
        "semidefinite": Semidefinite(),
        "enumeration": Enumeration(),
    }
    chosen = methods[name]
    if not chosen.handles(design(problem), problem.loss.Y.shape[1]):
        n, d = design(problem).shape
        raise ValueError(
            f"{name!r} cannot prove anything about {n} rows of {d} columns: use 'auto'"
        )
    return chosen


def _check(problem: Problem) -> CReLU:
    """Refuse what nothing can be proven about over all patterns."""
    check_whole(check_problem(problem), "bound_over_all_patterns")
    if not isinstance(problem, CReLU):
        raise TypeError(f"bounds over all patterns are for C-ReLU, got {problem.kind}")
    if problem.lam == 0:
        raise ValueError("lam must be positive: without a penalty, no price is small enough")
    if not offers(problem.penalty, "neuron_norms"):
        raise ValueError(f"the penalty must be 'neuron', got {problem.penalty_name!r}")
    why = proofs.obstacles(problem)
    if why:
        raise ValueError(f"nothing can be proven: {'; '.join(why)}")
    return problem


def _dual_point(problem: CReLU, U: np.ndarray, dual: ArrayLike | None) -> np.ndarray:
    """Of the given dual point, else of the gradient at the weights."""
    if dual is None:
        dual = problem.loss.gradient(problem.network_predictions(U))
    Theta = to_numpy(double(np.asarray(dual)))
    Theta = Theta[:, None] if Theta.ndim == 1 else Theta
    shape = tuple(problem.loss.Y.shape)
    if Theta.shape != shape or not np.isfinite(Theta).all():
        raise ValueError(f"dual must hold finite numbers of shape {shape}, got {Theta.shape}")
    return _doubles(problem, Theta)


def _doubles(problem: CReLU, Theta: np.ndarray) -> np.ndarray:
    """Doubles next to Theta that stand for a point which satisfies the equations of the dual."""
    try:
        return problem.loss.dual_point(problem.loss.dual_candidate(Theta))[0]
    except OverflowError:  # a sum beyond the largest double
        return np.zeros_like(Theta)


def _over_given_patterns(problem: CReLU, U: np.ndarray, Theta: np.ndarray) -> Bound:
    proof = prove(problem, U, Theta)
    certificate = proof.certificate
    return Bound(
        objective=certificate.objective,
        lower_bound=certificate.lower_bound,
        zero_objective=certificate.zero_objective,
        scope=GIVEN,
        proven=certificate.proven,
        dual=to_numpy(proof.dual),
    )
