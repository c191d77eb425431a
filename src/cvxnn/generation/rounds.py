"""One round of generation, and what comes out of all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from cvxnn.bounds.base import Bound, Neurons
from cvxnn.certificates import Certificate
from cvxnn.digits import text_above, text_below
from cvxnn.networks import ReLUNetwork
from cvxnn.patterns import Patterns, column_norms
from cvxnn.problems import CReLU
from cvxnn.protocols import Problem
from cvxnn.solvers.results import Solution, Status

KINDS = SLIDE, SOLVE, PROVE, EXCHANGE = "slide", "solve", "prove", "exchange"  # of rounds
UNLIKE = 1e3  # sizes of columns, the largest to the smallest, that are worth a word
_OPEN = "whether other patterns are better is not proven"


@dataclass(frozen=True)
class Round:
    """One round, as callbacks and the history see it.

    n_round : its number.
    kind : "slide", a descent of the network itself; "solve", a convex program over the patterns
        so far; "prove", an attempt to bound the price over all patterns; "exchange", all of it for
        one output, where rows lie in a plane and prices are exact.
    seconds : since the beginning.
    objective : of the best network so far.
    lower_bound : over the patterns of the last program; 0 before there is one.
    n_patterns, n_neurons : of this round.
    price_ratio : the highest price that was found in this round, in units of lam. A search proves
        nothing: higher ones may exist. NaN where none was made.
    note : what is being done, in a sign of life; those are not in the history.
    """

    n_round: int
    kind: str
    seconds: float
    objective: float
    lower_bound: float
    n_patterns: int
    n_neurons: int
    price_ratio: float
    note: str = ""

    @property
    def words(self) -> str:
        """For people who wait."""
        words = f"round {self.n_round}, objective {self.objective:.6g}"
        if self.kind != SLIDE:  # its neurons have no patterns yet
            words += f", {self.n_patterns} patterns"
        if not math.isnan(self.price_ratio):
            words += f", price found {self.price_ratio:.4g} alpha"
        return f"{words}, {self.note}" if self.note else words


@dataclass(frozen=True, eq=False)
class Training:
    """A network over generated patterns, and what is known about it.

    Attributes
    ----------
    network : the best one of all rounds.
    objective : its training objective, as computed, in the problem's own units.
    solution : of the C-ReLU program over the generated patterns.
    bound : on the training problem of the network itself; `scope` says what it covers. Without a
        proof that is the patterns of the solution.
    history : one `Round` each.
    price : the highest price of `solution.dual` that a search found; None if none was made since
        the solution. At most lam, up to a tolerance, where generation ended by itself. It is no
        bound: higher prices may exist. `bound.price` is proven, where there is a proof.
    neurons : the directions with the highest prices of that search.
    status : how it ended; `message` puts it in words.
    unproven : why there is no bound over all patterns; empty where there is one, or where none was
        asked for.
    seconds : in all.
    """

    network: ReLUNetwork
    objective: float
    solution: Solution
    bound: Bound
    history: tuple[Round, ...]
    price: float | None
    neurons: Neurons = field(repr=False)
    status: Status
    message: str
    seconds: float
    unproven: str = ""

    @property
    def problem(self) -> CReLU:
        """The program over the generated patterns."""
        assert isinstance(self.solution.problem, CReLU)
        return self.solution.problem

    @property
    def patterns(self) -> Patterns:
        """The generated patterns. Their gates switch gated networks as well:
        `CGReLU(X, y, result.patterns, lam, bias=True)`."""
        return self.solution.problem.patterns

    @property
    def certificate(self) -> Certificate:
        """Of the solution: it speaks about the generated patterns."""
        return self.solution.certificate

    @property
    def lam(self) -> float:
        return self.solution.problem.lam

    @property
    def n_programs(self) -> int:
        """Convex programs that were solved."""
        return sum(one.kind == SOLVE for one in self.history)

    @property
    def converged(self) -> bool:
        return self.status is Status.CONVERGED

    def __str__(self) -> str:
        lines = [
            f"{self.solution.problem.loss_name} objective {self.objective:.8g} with "
            f"{self.network.n_neurons} neurons, {len(self.history)} rounds, {self.seconds:.2f} s"
        ]
        if self.bound.over_all_patterns:
            lines.append(f"{'proven' if self.bound.proven else 'computed'}: {self.bound}")
        else:
            certificate = self.certificate
            proven = "proven" if certificate.proven else "up to rounding"
            lines.append(
                f"over the generated patterns ({len(self.patterns)}) {proven}: optimal value >= "
                f"{text_below(certificate.lower_bound)} (relative gap "
                f"{text_above(self.bound.relative_gap, 2)}); {_OPEN}"
            )
        if self.price is not None and not self.bound.over_all_patterns:
            lines.append(f"the highest price that a search found: {self.price / self.lam:.6g} lam")
        return "\n".join([*lines, self.message])

    def __repr__(self) -> str:
        return (
            f"Training({self.status}: objective {self.objective:.8g}, {self.network.n_neurons} "
            f"neurons, {len(self.patterns)} patterns, {len(self.history)} rounds, "
            f"{self.seconds:.2f} s)"
        )


def message_of(
    status: Status, solution: Solution, bound: Bound, price: float | None, unproven: str = ""
) -> str:
    """How a run ended, in words."""
    parts = [f"generation: {_HELP.get(status, status.help)}"]
    if price is not None:
        parts.append(f"highest price found: {price / solution.problem.lam:.6g} lam")
    parts.append(
        f"certified relative gap over {len(solution.problem.patterns)} patterns: "
        f"{solution.certificate.relative_gap:.2g}"
    )
    if bound.over_all_patterns:
        parts.append(f"over {bound.scope}: {bound.relative_gap:.2g}")
    elif unproven:
        parts.append(f"nothing is proven over all patterns: {unproven}")
    if status is not Status.CONVERGED:
        parts += _sizes(solution.problem)
    return "; ".join(parts)


def _sizes(problem: Problem) -> list[str]:
    """A hint at columns that are better scaled: along small ones prices are hard to find."""
    sizes = column_norms(problem.operator.rows())
    ratio = float(sizes.max() / sizes.min())
    if ratio < UNLIKE:
        return []
    return [f"columns differ in size by a factor of {ratio:.1g}: scale them, or set normalize=True"]


_HELP = {
    Status.CONVERGED: "no search found a price above the tolerance",
    Status.MAX_ITER: "the limit of rounds was reached: raise max_rounds or tol",
    Status.STALLED: "the program has all the patterns that a search found: raise tol",
}
