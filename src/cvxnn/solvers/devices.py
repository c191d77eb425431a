"""A method whose arrays are on a device, behind the back of a problem of NumPy arrays.

The problem's numbers are copied to the device once. The method works on that copy, in single
precision where the tolerance allows it. Its iterates are measured there; only the best weights and
the best dual point are copied back, where the certificate of the problem is computed. So what is
proven does not depend on the device, nor on its precision.

Where the device has no float64, sums over rows are made in NumPy: those of thousands of numbers in
single precision would hide a small gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cvxnn.arrays import Array, double, on_device, to_numpy
from cvxnn.certificates import dual_bound
from cvxnn.devices import Device
from cvxnn.losses import LOSSES
from cvxnn.penalties import PENALTIES, NoPenalty
from cvxnn.protocols import Problem
from cvxnn.solvers.base import Iterate, Solver, StalledError, Working, bound_of
from cvxnn.solvers.run import STALL_ITERATIONS
from cvxnn.validation import offers

SINGLE = 1e-4  # the smallest relative gap that single precision promises


@dataclass(frozen=True)
class OnDevice:
    """A method on a copy of the problem on a device."""

    method: Solver
    device: Device

    @property
    def name(self) -> str:
        return self.method.name

    @property
    def default_max_iter(self) -> dict[str, int]:
        return self.method.default_max_iter

    @property
    def patience(self) -> int:
        return getattr(self.method, "patience", STALL_ITERATIONS)

    def iterates(
        self, problem: Any, start: Array, stop: str, state: Any, tol: float
    ) -> Iterator[Iterate | Working]:
        """Where single precision gets stuck, the method goes on in double."""
        single = self._in_single(problem, stop, tol)
        last = [to_numpy(start)]
        try:
            yield from self._from(problem, single, last, stop, state, tol)
        except StalledError:
            if not (single and problem.operator.is_double and self.device.has_float64):
                raise
            yield from self._from(problem, False, last, stop, None, tol)

    @property
    def resumed(self) -> Callable[..., Iterator[Iterate | Working]]:
        """That of the method; no attribute where it has none."""
        method: Any = self.method
        go_on = method.resumed

        def resumed(
            problem: Any, arrays: Mapping[str, Any], stop: str, tol: float
        ) -> Iterator[Iterate | Working]:
            copy = problem.placed(self.device, single=self._in_single(problem, stop, tol))
            return self._measured(problem, copy, go_on(copy, arrays, stop, tol), [])

        return resumed

    @staticmethod
    def _in_single(problem: Any, stop: str, tol: float) -> bool:
        return stop == "gap" and tol >= SINGLE

    def _from(
        self, problem: Any, single: bool, last: list[Any], stop: str, state: Any, tol: float
    ) -> Iterator[Iterate | Working]:
        copy = problem.placed(self.device, single=single)
        start = copy.check_weights(last[-1])
        iterates = self.method.iterates(copy, start, stop, state, tol)
        return self._measured(problem, copy, iterates, last)

    def _measured(
        self,
        problem: Any,
        copy: Any,
        iterates: Iterator[Iterate | Working],
        last: list[Any],
    ) -> Iterator[Iterate | Working]:
        """Iterates with their objective and bound, and with the way back to the problem; the last
        weights replace those in `last`."""
        for iterate in iterates:
            if isinstance(iterate, Working):
                yield iterate
                continue
            last[:] = [iterate.U]
            objective, bound = self._values(problem, copy, iterate)
            yield replace(
                iterate,
                correlation=None,
                objective=objective,
                bound=bound,
                restore=lambda U: problem.check_weights(to_numpy(U)),
            )

    def _values(self, problem: Any, copy: Any, iterate: Iterate) -> tuple[float, float]:
        penalty = copy.penalty.value(iterate.U)
        if self.device.has_float64:
            return copy.loss.value(iterate.fit) + penalty, bound_of(copy, iterate)
        value = problem.loss.value(double(to_numpy(iterate.fit))) + penalty
        Theta = problem.loss.dual_candidate(double(to_numpy(iterate.Theta)))
        correlation = iterate.correlation
        if correlation is None or isinstance(copy.penalty, NoPenalty):
            return value, bound_of(problem, replace(iterate, Theta=Theta, correlation=None))
        return value, dual_bound(problem, Theta, to_numpy(correlation))


def is_offered(method: Any, problem: Problem) -> bool:
    """Whether a method, by its own account, handles a problem on a device."""
    return offers(method, "any_device") and bool(method.handles(problem))


def check_offered(
    problem: Problem, method: Solver, device: Device, solvers: Mapping[str, Any]
) -> None:
    """Raise an error that names what is not offered on a device, and the alternatives."""
    where = f"on a device (device={device.name!r})"
    out = "or leave `device` out"
    if not problem.operator.in_memory:
        raise ValueError(f"rows in a file are not offered {where}: read them with X[:], {out}")
    if problem.operator.is_sparse:
        raise ValueError(f"sparse data are not offered {where}: pass X.toarray(), {out}")
    parts: list[tuple[str, str, object, Iterable[str]]] = [
        ("loss", problem.loss_name, problem.loss, LOSSES),
        ("penalty", problem.penalty_name, problem.penalty, PENALTIES),
    ]
    for part, name, its, known in parts:
        if not offers(its, "any_device"):
            raise ValueError(
                f"{part} {name!r} is not offered {where}: it does not declare `any_device`, that "
                f"its formula takes arrays of any library; use one of: {', '.join(known)}, {out}"
            )
    if not is_offered(method, problem):
        others = [name for name, cls in solvers.items() if is_offered(cls(), problem)]
        raise ValueError(
            f"solver {method.name!r} is not offered for {problem.kind} {where}; use "
            f"{' or '.join(map(repr, others))}, {out}"
        )


def state_on_host(state: Any) -> Any:
    """The state of a method with its arrays in NumPy, for another process or another device."""
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        return type(state)(*map(state_on_host, state))
    return to_numpy(state) if hasattr(state, "shape") and on_device(state) else state
