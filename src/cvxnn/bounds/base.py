"""What is proven about all patterns, and what a method that bounds prices hands over."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from cvxnn.arrays import blocks, to_numpy
from cvxnn.bounds import saving
from cvxnn.bounds.evidence import NAMES, Evidence
from cvxnn.budget import Budget
from cvxnn.certificates import Certificate, relative_gap
from cvxnn.digits import text_above, text_below
from cvxnn.losses import Loss
from cvxnn.modelfile import ModelFileError
from cvxnn.proofs import MARGIN
from cvxnn.protocols import Problem
from cvxnn.rounding import SQUARES, TINY, Ball, depth, down, slack, tree_sum, up
from cvxnn.validation import check_flag, check_number

GIVEN = "given patterns"
EXACT = "all patterns (exact)"
SDP = "all patterns (SDP)"
_NUMBERS = ("objective", "lower_bound", "zero_objective")
MAX_ENTRIES = 10**8  # of sparse data that are made dense
_BLOCK = 2**22  # products of rows and neurons held at a time


def proven_scope(excess: float) -> str:
    """The scope of a price that is known to be at most (1 + excess) lam."""
    return f"all patterns (proven, price <= (1 + {text_above(max(excess, 0.0), 2)}) lam)"


class Neurons(NamedTuple):
    """Directions with a high price, the highest first: where patterns that pay can be found.

    directions : (k, d), unit vectors in the coordinates of X.
    classes : (k,), the column of Theta.
    prices : (k,), Theta_k'(X u)_+ as computed, with its sign.
    """

    directions: np.ndarray
    classes: np.ndarray
    prices: np.ndarray

    @classmethod
    def none(cls, d: int) -> Neurons:
        return cls(np.zeros((0, d)), np.zeros(0, dtype=np.intp), np.zeros(0))


class PriceBound(NamedTuple):
    """What a method has proven about the price of the doubles Theta (n, C) on the doubles X (n, d).

    above : (C,), no less than the price of each class in real arithmetic; inf where nothing is
        proven.
    scope : what the bound covers, and by which kind of proof.
    neurons : directions that were met on the way, for generation.
    evidence : what `verification` needs to check it by itself, or None where it repeats the
        computation.
    """

    above: np.ndarray
    scope: str
    neurons: Neurons
    evidence: Evidence | None = None


class PriceMethod(Protocol):
    """A way to bound prices."""

    def handles(self, X: np.ndarray, n_outputs: int) -> bool:
        """Whether it can say anything about data of this kind."""

    def bound(
        self, X: np.ndarray, Theta: np.ndarray, lam: float, *, tol: float, max_seconds: float
    ) -> PriceBound:
        """A bound as close to max(price, lam) as the time allows, and no closer than needed:
        above <= (1 + tol) lam is enough. It ends early where a direction with a price above
        (1 + tol) lam is found, as such a direction is worth more than a weak bound."""


class Goal(NamedTuple):
    """What is asked of a bound on prices, see `PriceMethod.bound`; `clock` has the time for it."""

    lam: float
    tol: float
    clock: Budget


class TimedMethod:
    """What the methods of the library share: `bound` of a `PriceMethod`, by `_bound`. Without a
    goal it is as close as they can, however long that takes."""

    def bound(
        self,
        X: np.ndarray,
        Theta: np.ndarray,
        lam: float,
        *,
        tol: float = 0.0,
        max_seconds: float = math.inf,
    ) -> PriceBound:
        return self._bound(X, Theta, Goal(lam, tol, Budget(max_seconds)))

    def _bound(self, X: np.ndarray, Theta: np.ndarray, goal: Goal) -> PriceBound:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Bound:
    """A two-sided bound on the training problem of the network itself.

    Attributes
    ----------
    objective : of the network, rounded up: an upper bound on the optimal value over all networks.
    lower_bound : no network that `scope` covers has a smaller objective.
    zero_objective : see `Certificate`.
    scope : "given patterns", or "all patterns" with the kind of proof.
    proven : whether both ends hold in real arithmetic, for the numbers as they are stored. It says
        nothing about which networks: `over_all_patterns` does.
    dual : (n, C), the dual point behind the lower bound.
    price : (C,), what its price is proven not to exceed; None for given patterns.
    evidence, neurons : see `PriceBound`; None for given patterns.
    """

    objective: float
    lower_bound: float
    zero_objective: float
    scope: str
    proven: bool
    dual: np.ndarray = field(repr=False)
    price: np.ndarray | None = field(default=None, repr=False)
    evidence: Evidence | None = field(default=None, repr=False)
    neurons: Neurons | None = field(default=None, repr=False)

    @classmethod
    def of_certificate(cls, certificate: Certificate, dual: np.ndarray | None = None) -> Bound:
        """What a certificate says about networks with the given patterns."""
        own = certificate.network_objective
        return cls(
            objective=certificate.objective if own is None else own,
            lower_bound=certificate.lower_bound,
            zero_objective=certificate.zero_objective,
            scope=GIVEN,
            proven=certificate.proven,
            dual=np.zeros((0, 1)) if dual is None else dual,
        )

    def description(self) -> dict[str, Any]:
        """What JSON holds of it in a file."""
        numbers = {name: float(getattr(self, name)) for name in _NUMBERS}
        return {**numbers, "scope": self.scope, "proven": bool(self.proven)}

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of its file: dual point, prices and evidence."""
        found = {"dual": np.asarray(self.dual, dtype=np.float64)}
        if self.price is not None:
            found["price"] = np.asarray(self.price, dtype=np.float64)
        return found if self.evidence is None else {**found, **self.evidence.arrays()}

    @classmethod
    def of_parts(cls, described: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Bound:
        """From what a file holds: a ValueError, KeyError or TypeError where that is no bound."""
        dual, price, scope = arrays["dual"], arrays.get("price"), described["scope"]
        if dual.dtype != np.float64 or dual.ndim != 2 or not np.isfinite(dual).all():
            raise ValueError("the dual point must be a matrix of finite doubles")
        if price is not None and (
            price.dtype != np.float64 or price.shape != dual.shape[1:] or not np.all(price >= 0)
        ):
            raise ValueError("there must be a price for each output")
        if not isinstance(scope, str) or (price is None) != (scope == GIVEN):
            raise ValueError(f"the scope {scope!r} does not fit the prices")
        unknown = set(arrays) - {"dual", "price", *NAMES}
        if unknown:
            raise ValueError(f"unknown arrays: {sorted(unknown)}")
        evidence = Evidence.of_arrays(arrays, dual.shape[1])
        return cls(
            objective=check_number(described["objective"], "objective"),
            lower_bound=check_number(described["lower_bound"], "lower_bound"),
            zero_objective=check_number(described["zero_objective"], "zero_objective"),
            scope=scope,
            proven=check_flag(described["proven"], "proven"),
            dual=dual,
            price=price,
            evidence=evidence if any(part is not None for part in evidence) else None,
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the bound with its dual point and evidence to a file, which `Bound.load` reads and
        `cvxnn.verify(bound, problem)` checks."""
        if self.over_all_patterns and len(self.dual) == 0:
            raise ValueError(
                "this bound has no proof to save: fitted estimators keep its numbers alone. "
                "`cvxnn.train` returns bounds with proofs, and a `cvxnn.Model` saves its own"
            )
        saving.write(self.description(), self.arrays(), path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Bound:
        """Read a bound from its file. It is a claim until `cvxnn.verify` has confirmed it."""
        parts = saving.read(Path(path))
        try:
            return cls.of_parts(*parts)
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFileError(f"{path} is inconsistent: {error}") from error

    @property
    def over_all_patterns(self) -> bool:
        return self.scope.startswith("all patterns")

    @property
    def gap(self) -> float:
        return max(self.objective - self.lower_bound, 0.0)

    @property
    def relative_gap(self) -> float:
        return relative_gap(self.objective, self.lower_bound, self.zero_objective)

    def __str__(self) -> str:
        rounding = "" if self.proven else ", up to rounding"
        return (
            f"{text_above(self.objective)} >= optimal value >= {text_below(self.lower_bound)} "
            f"(relative gap {text_above(self.relative_gap, 2)}) over {self.scope}{rounding}"
        )


def bound_of_price(problem: Problem, Theta: np.ndarray, above: np.ndarray) -> float:
    """The lower bound over all patterns that doubles Theta (n, C) prove whose prices are at most
    `above` (C,): no ReLU network of any width has a smaller objective."""
    return dual_value_below(design(problem), problem.loss, problem.lam, Theta, above)


def design(problem: Problem) -> np.ndarray:
    """The rows that prices are taken on: with the column of ones, in units of the problem."""
    X = problem.operator_double.rows()
    if problem.operator.is_sparse:
        if math.prod(X.shape) > MAX_ENTRIES:
            raise TypeError(
                f"X is sparse, and has {math.prod(X.shape):.1e} entries as a dense matrix; bounds "
                f"over all patterns take up to {MAX_ENTRIES:.0e}"
            )
        return X.toarray()
    return to_numpy(X)


@np.errstate(all="ignore")  # what overflows ends in a bound that says nothing
def dual_value_below(
    X: np.ndarray, loss: Loss, lam: float, Theta: np.ndarray, above: np.ndarray
) -> float:
    """The same for rows X (n, d) and a loss that declares its rounding.

    The dual point next to Theta that satisfies the equations of the dual exactly differs from it,
    by at most sum_j |distance_jk| ||x_j|| in the price, as a ReLU magnifies nothing. Scaled by
    lam / price, class by class, it is feasible. It is best to have the price of a Theta that is
    itself a first part of `loss.dual_point`, the doubles that stand for that point.
    """
    try:
        _, point = loss.dual_point(Theta)
    except OverflowError:  # a sum beyond the largest double
        return 0.0
    distance = up(np.abs(point.mid - Theta) + np.asarray(point.rad), 2)
    moved = np.any(distance != 0, axis=1)
    extra = up(row_norms_above(X[moved]) @ distance[moved], int(moved.sum()) + 1)
    price = up(np.asarray(above, dtype=np.float64) + extra, 1)
    usable = (price >= 0) & np.isfinite(price)
    limit = np.where(usable, down(lam / (price + TINY), 2), 0.0)
    nothing = np.zeros_like(limit)
    value = loss.dual_below(point, limit, nothing, nothing)
    return max(value * (1 - 2 * MARGIN), 0.0) if math.isfinite(value) else 0.0


def row_norms_above(X: np.ndarray) -> np.ndarray:
    """||x_j||, rounded up: (n,). In units of the largest entry, so that squares neither overflow
    nor vanish."""
    if X.size == 0:
        return np.zeros(len(X))
    k = int(np.frexp(np.max(np.abs(X)))[1])
    scaled = np.ldexp(X, -k)
    norms = up(np.sqrt(np.sum(scaled * scaled, axis=1)), X.shape[1] + 3) + SQUARES * X.shape[1]
    return np.ldexp(np.where(np.any(X != 0, axis=1), norms, 0.0), k)


class Units(NamedTuple):
    """Neurons W (k, d), each with a sign for the output `classes` (k,): the network
    sum_j sign_j (X w_j)_+, whose penalty is lam sum_j ||w_j||."""

    W: np.ndarray
    classes: np.ndarray
    signs: np.ndarray

    def predictions(self, X: np.ndarray, n_outputs: int) -> np.ndarray:
        """(n, C)."""
        Z = np.zeros((len(X), n_outputs))
        for k in range(n_outputs):
            mine = self.classes == k
            U, signs = self.W[mine].T, self.signs[mine]
            for rows in blocks(len(X), _BLOCK // max(1, len(signs))):
                Z[rows, k] = np.maximum(X[rows] @ U, 0.0) @ signs
        return Z


@np.errstate(all="ignore")
def network_objective_above(
    X: np.ndarray, loss: Loss, lam: float, units: Units, bias: np.ndarray | None
) -> float:
    """Above the objective of a network, as `proofs.network_objective_above` has it, without
    patterns."""
    n_outputs = loss.Y.shape[1]
    norms = row_norms_above(units.W)
    total = np.array([tree_sum(norms[units.classes == k]) for k in range(n_outputs)])
    total = up(total, depth(len(norms)))
    steps = len(norms) + X.shape[1] + 4
    error = up(slack(steps) * row_norms_above(X)[:, None] * total, 3) + steps * TINY
    predictions = Ball(units.predictions(X, n_outputs), error)
    penalty = up(lam * float(total.sum()), n_outputs + 1)
    value = (loss.value_above(predictions, bias) + penalty) * (1 + 2 * MARGIN)
    return math.inf if math.isnan(value) else value
