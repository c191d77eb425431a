"""Rows in a plane: the exact method (one_input.py), with its result as a `Training`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cvxnn import proofs
from cvxnn.bounds.base import Neurons, PriceMethod
from cvxnn.budget import Budget
from cvxnn.certificates import prove
from cvxnn.generation import one_input
from cvxnn.generation.cells import network_of, over_units
from cvxnn.generation.rounds import EXCHANGE, Round, Training, message_of
from cvxnn.problems import CReLU
from cvxnn.solvers.driver import choose
from cvxnn.solvers.results import Solution, Status

SHARE = 0.8  # of the time limit; the rest is for the certificate


def handles(problem: CReLU, method: str | PriceMethod) -> bool:
    """Whether the exact method trains on this problem, and may."""
    return (
        method in ("auto", "exact")
        and not problem.operator.is_sparse
        and not proofs.obstacles(problem)
        and one_input.handles(problem.operator_double.rows(), problem.loss)
    )


def train_exactly(
    problem: CReLU,
    tol: float,
    seconds: float,
    callback: Callable[[Round], object] | None,
    rng: np.random.Generator,
) -> Training:
    """The network of the exact method, and the program over its patterns."""
    told, clock = _Told(callback), Budget(seconds)
    found = one_input.solve_one_input(
        problem.operator_double.rows(),
        problem.loss,
        problem.lam,
        output_bias=problem.output_bias,
        tol=tol,
        max_seconds=SHARE * seconds,
        callback=told,
    )
    posed, U = over_units(problem, found.units, rng)
    proof = prove(posed, U, found.bound.dual, refuse=False)
    # weights of the program are lifted into its cones, which may cost some last digits
    values = (proof.certificate.objective, proof.certificate.network_objective)
    above = max(found.bound.objective, *(value for value in values if value is not None))
    bound = replace(found.bound, objective=above)
    status = _status(found, told.stopped, in_time=found.seconds < SHARE * seconds)
    solution = Solution(
        problem=posed,
        weights=posed.present(proof.weights),
        certificate=proof.certificate,
        dual=proof.dual,
        multipliers=proof.multipliers,
        output_bias=proof.output_bias,
        status=status,
        message="the network of the exact method",
        n_iter=found.n_rounds,
        n_products=0,
        seconds=found.seconds,
        history=(),
        solver=choose(posed),
        state=None,
    )
    price = float(np.max(found.bound.price)) if found.bound.price is not None else math.inf
    return Training(
        network=network_of(problem, found.units, found.output_bias),
        objective=found.objective,
        solution=solution,
        bound=bound,
        history=tuple(told.history),
        price=price,
        neurons=Neurons.none(problem.operator.d),
        status=status,
        message=message_of(status, solution, bound, price),
        seconds=clock.taken,
    )


def _status(found: one_input.OneInputTraining, stopped: bool, in_time: bool) -> Status:
    if found.converged:
        return Status.CONVERGED
    if found.interrupted:
        return Status.INTERRUPTED
    if stopped:
        return Status.STOPPED
    return Status.STALLED if in_time else Status.TIME_LIMIT


class _Told:
    """Rounds of the exact method, for the history and a callback."""

    def __init__(self, callback: Callable[[Round], object] | None) -> None:
        self.callback, self.stopped = callback, False
        self.history: list[Round] = []

    def __call__(self, one: one_input.ExchangeRound) -> bool:
        self.history.append(
            Round(
                n_round=len(self.history) + 1,
                kind=EXCHANGE,
                seconds=one.seconds,
                objective=one.objective,
                lower_bound=one.lower_bound,
                n_patterns=one.n_neurons,
                n_neurons=one.n_neurons,
                price_ratio=one.price_ratio,
            )
        )
        self.stopped = self.callback is not None and bool(self.callback(self.history[-1]))
        return self.stopped
