"""R-FISTA (paper, section 4.1): accelerated proximal gradient with line search and restarts.

    x+ = prox_{eta g}(y - eta grad f(y))      eta shrunk until f(x+) <= Q_{y,eta}(x+)
    y+ = x+ + (t - 1)/t+ (x+ - x)             t+ = (1 + sqrt(1 + 4 t^2))/2
    restart (y, t) <- (x+, 1) when <y - x+, x+ - x> > 0

Where the code departs from the printed paper:

- the restart test is `<y - x+, x+ - x> > 0`; the printed sign restarts in every iteration;
- the step grows as `eta <- alpha eta`; the printed `eta + (1 - alpha) eta` shrinks it;
- the line search tests the Bregman divergence `B(x+, y) <= ||x+ - y||^2/(2 eta)`, the same
  inequality without the difference of two function values, which is all rounding error once the
  relative gap is near 1e-8;
- a failed test shrinks the step to `min(beta eta, 1/curvature)`, the curvature seen along
  x+ - y. It is at most the Lipschitz constant, so this never goes below a step that is needed;
- the test has a slack of 1e-9 of its right side. A step shortened to `1/curvature` meets it with
  equality where the loss is quadratic and the next point lies in the same direction, and rounding
  would decide: runs on permuted rows would take other steps and end elsewhere;
- if the very first step turns out far too small, it jumps to `1/curvature` instead of growing by
  25 % an iteration.

`line_search="backtracking"` takes back the two uses of the curvature: the line search as published.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from cvxnn import budget
from cvxnn.arrays import Array, array_namespace
from cvxnn.memory import DOUBLE
from cvxnn.penalties import Penalty
from cvxnn.protocols import Composite, Problem
from cvxnn.smooth import Point, Smooth
from cvxnn.solvers.base import Iterate, Snapshot, StalledError
from cvxnn.validation import check_choice, check_flag, check_integer, check_number

# the rules, and the settings that have no meaning under them
UNREAD: dict[str, tuple[str, ...]] = {
    "tightness": (),
    "forward": ("tightness",),
    "warm": ("grow", "tightness"),
    "fixed": ("line_search", "shrink", "grow", "tightness", "max_backtracks"),
}
LINE_SEARCHES = ("curvature", "backtracking")
VECTORS, WEIGHTS = 24, 16  # numbers of arrays (n, C) and (p, d, C) in a run, at most
SLACK = 1e-9  # of the line search, relative: more than rounding, too little to matter otherwise


class _Place(NamedTuple):
    """Where a run is: the point and the extrapolated one, the step, the momentum."""

    x: Point
    y: Point
    eta: float
    t: float = 1.0
    momentum: float = 0.0
    first: bool = True
    shown_gradient: Array | None = None  # under stop="paper"

    def arrays(self, with_fits: bool) -> dict[str, Any]:
        found = {"x": self.x.U, "y": self.y.U}
        found |= {"x.fit": self.x.fit, "y.fit": self.y.fit} if with_fits else {}
        found |= {name: getattr(self, name) for name in ("eta", "t", "momentum", "first")}
        return found | ({} if self.shown_gradient is None else {"gradient": self.shown_gradient})

    @classmethod
    def restored(
        cls, arrays: Mapping[str, Any], like: Callable[[Any], Array], smooth: Smooth
    ) -> Self:
        if "x.fit" in arrays and not smooth.is_sharded:
            x, y = (Point(like(arrays[name]), like(arrays[f"{name}.fit"])) for name in "xy")
        else:
            x, y = (smooth.point(like(arrays[name])) for name in "xy")
        eta, t, momentum = (float(arrays[name]) for name in ("eta", "t", "momentum"))
        gradient = like(arrays["gradient"]) if "gradient" in arrays else None
        return cls(x, y, eta, t, momentum, bool(arrays["first"]), gradient)


@dataclass(frozen=True)
class RFISTA:
    """Settings of R-FISTA; the defaults are the paper's (its appendix on default parameters).

    Attributes
    ----------
    step : how a step starts from the last one. "tightness": grow by `grow` if the quadratic bound
        was loose by at least `tightness`; "forward": always grow; "warm": keep; "fixed":
        `first_step` throughout, without a line search (diverges if it exceeds 2/L).
    line_search : what follows a step that fails its test. "curvature": the smaller of `shrink`
        times the step and 1/curvature, to which a first step that is far too small jumps as well;
        "backtracking": `shrink` times the step, as published.
    first_step, shrink, grow, tightness : eta_0, beta, alpha and c.
    acceleration : momentum. Without it this is proximal gradient descent.
    restart : reset the momentum when it points uphill.
    max_backtracks : shrinkings in one iteration before the solver says it has stalled.
    """

    name: ClassVar[str] = "rfista"
    default_max_iter: ClassVar[dict[str, int]] = {"gap": 100_000, "paper": 100_000}
    products_only: ClassVar[bool] = True  # of the data: rows in files will do
    any_device: ClassVar[bool] = True
    sums_ranks: ClassVar[bool] = True  # and rows in several processes

    step: str = "tightness"
    line_search: str = "curvature"
    first_step: float = 1.0
    shrink: float = 0.8
    grow: float = 1.25
    tightness: float = 5.0
    acceleration: bool = True
    restart: bool = True
    max_backtracks: int = 100

    def __post_init__(self) -> None:
        check_choice(self.step, "step", UNREAD)
        check_choice(self.line_search, "line_search", LINE_SEARCHES)
        check_number(self.first_step, "first_step", minimum=0, strict=True)
        check_number(self.shrink, "shrink", minimum=0, strict=True, maximum=1, strict_maximum=True)
        check_number(self.grow, "grow", minimum=1)
        check_number(self.tightness, "tightness", minimum=1)
        check_flag(self.acceleration, "acceleration")
        check_flag(self.restart, "restart")
        check_integer(self.max_backtracks, "max_backtracks", minimum=1)
        for name in UNREAD[self.step]:
            if getattr(self, name) != getattr(RFISTA, name):
                raise ValueError(f"{name} is given, but step={self.step!r} does not read it")

    @staticmethod
    def scratch(n: int, d: int, p: int, C: int) -> int:
        """Bytes that a run takes at most, beside the problem: predictions and residuals of a few
        points, those of its certificate, and the weights of these points."""
        return DOUBLE * (VECTORS * n * C + WEIGHTS * p * d * C)

    def handles(self, problem: Problem) -> bool:
        """Every penalty has a prox; cones are for other methods."""
        return bool(problem.kind == "C-GReLU")

    def iterates(
        self,
        problem: Composite,
        start: Array,
        stop: str = "gap",
        state: float | None = None,
        tol: float = 0.0,
    ) -> Iterator[Iterate]:
        smooth = problem.smooth
        x = smooth.point(start)
        place = _Place(x, x, state or self.first_step, first=state is None)
        return self._from(place, smooth, problem.penalty, stop, shown_before=False)

    def resumed(
        self, problem: Problem, arrays: Mapping[str, Any], stop: str, tol: float
    ) -> Iterator[Iterate]:
        smooth = problem.smooth
        place = _Place.restored(arrays, problem.operator_double.like, smooth)
        return self._from(place, smooth, problem.penalty, stop, shown_before=True)

    def _from(
        self, place: _Place, smooth: Smooth, penalty: Penalty, stop: str, *, shown_before: bool
    ) -> Iterator[Iterate]:
        """The iterates from a place on, which may have been shown in an earlier process."""
        shown_gradient: Any
        x, y, eta, t, momentum, first, shown_gradient = place
        while True:
            Theta, gradient = smooth.gradient(y)
            if not shown_before:
                shown, residual = x, None
                if stop == "paper":
                    # the rule is about x, whose gradient comes for nothing if that of y is
                    # affine; otherwise y itself is shown, and returned if it meets the rule
                    if momentum == 0 or not smooth.affine_gradient:
                        shown, shown_gradient = y, gradient
                    else:
                        shown_gradient = (gradient + momentum * shown_gradient) / (1 + momentum)
                    subgradient = penalty.min_norm_subgradient(shown.U, shown_gradient)
                    (residual,) = smooth.agree(math.sqrt(squared_norm(subgradient)))
                place = _Place(x, y, eta, t, momentum, first, shown_gradient)
                yield Iterate(
                    shown.U,
                    shown.fit,
                    Theta,
                    gradient,
                    residual=residual,
                    step_size=eta,
                    state=eta,
                    snapshot=Snapshot(self.name, place.arrays(with_fits=not smooth.is_sharded)),
                )
            shown_before = False

            for _ in range(self.max_backtracks + 1):
                budget.count_trial()
                x_new = smooth.point(penalty.prox(y.U - eta * gradient, eta))
                distance, bregman = smooth.agree(
                    squared_norm(x_new.U - y.U) / 2, smooth.bregman(x_new, y)
                )
                bound = (1 + SLACK) * distance / eta
                if self.step == "fixed" or bregman <= bound or distance == 0:
                    break
                eta = self._shorter(eta, distance, bregman)
            else:
                raise StalledError(
                    f"the line search found no step after {self.max_backtracks} reductions: "
                    "the point is optimal up to rounding, or max_backtracks is too small"
                )
            if distance == 0 and momentum == 0:
                raise StalledError("a proximal gradient step no longer changes the point")
            eta = self._next_step(eta, distance, bregman, first)
            first = False

            (slope,) = smooth.agree(
                float(array_namespace(x.U).sum((y.U - x_new.U) * (x_new.U - x.U)))
            )
            if not self.acceleration or (self.restart and slope > 0):
                t, momentum = 1.0, 0.0
            else:
                t, momentum = self.next_momentum(t)
            x, y = x_new, smooth.extrapolate(x_new, x, momentum)

    def next_momentum(self, t: float) -> tuple[float, float]:
        """The next t, and the momentum on the way to it."""
        t_new = (1 + math.sqrt(1 + 4 * t * t)) / 2
        return t_new, (t - 1) / t_new

    def _shorter(self, eta: float, distance: float, bregman: float) -> float:
        shrunk = self.shrink * eta
        if self.line_search == "backtracking":
            return shrunk
        return min(shrunk, distance / min(bregman, sys.float_info.max))  # it may have overflowed

    def _next_step(self, eta: float, distance: float, bregman: float, first: bool) -> float:
        if self.step == "forward":
            return self.grow * eta
        if self.step != "tightness" or distance == 0:
            return eta
        looseness = distance / eta / bregman if bregman > 0 else math.inf
        if looseness < self.tightness:
            return eta
        jump = first and self.line_search == "curvature" and math.isfinite(looseness)
        return eta * looseness if jump else self.grow * eta


def squared_norm(x: Array) -> float:
    return float(array_namespace(x).sum(x * x))
