"""`generate`: patterns that pay, found in rounds.

1. Sliding: a network of few neurons. Directions with a high price become neurons, and L-BFGS moves
   them all, until a round gains little.
2. Solving: the convex program over the patterns of these neurons, from their weights. Its dual
   point is priced, patterns with a price above lam come in, and those that were not used in some
   programs in a row leave. Rounds end once a deep search finds no price above (1 + tol) lam, from
   random directions and from neurons of networks that are trained for that (descents.py), and the
   program is solved to the tolerance.
3. Proving, where asked for: a bound on the price of all patterns. What pays goes back to 2.

Every program starts from the weights of the one before, whose patterns it keeps as long as they
are in use. The network that is returned is the best one of all rounds.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cvxnn import budget, threads
from cvxnn.arrays import Weights, to_numpy
from cvxnn.bounds.base import Bound, Neurons, PriceMethod, Units
from cvxnn.budget import Budget, OutOfTimeError
from cvxnn.cones.singular import PatternWarning
from cvxnn.generation import exact
from cvxnn.generation.cells import (
    consolidated,
    gates_near,
    network_of,
    no_units,
    over_units,
    patterns_of,
    starts_of,
    units_of,
)
from cvxnn.generation.descents import Descents
from cvxnn.generation.pricing import AFTER_DESCENT, DEEP, QUICK, THOROUGH, Effort, Pricing
from cvxnn.generation.proving import (
    bounded_by,
    check_prove,
    chosen_method,
    over_all_patterns,
    over_given_patterns,
    why_unproven,
)
from cvxnn.generation.rounds import PROVE, SLIDE, SOLVE, Round, Training, message_of
from cvxnn.generation.sliding import Sliding
from cvxnn.networks import ReLUNetwork
from cvxnn.patterns import Patterns
from cvxnn.problems import CReLU
from cvxnn.solvers.base import Solver
from cvxnn.solvers.driver import solve
from cvxnn.solvers.results import NotConvergedError, Progress, Solution, Status
from cvxnn.validation import (
    Seed,
    check_choice,
    check_integer,
    check_number,
    check_problem,
    check_random_state,
)

SLIDES = 30  # rounds at most
SLIDE_STEPS = 100  # of L-BFGS in a round
SLIDE_GAIN = 1e-2  # of the objective, below which sliding ends
SLIDE_SHARE = 0.3  # of the time limit, at most
PROOF_SHARE, PROOF_SECONDS = 0.4, 60.0  # of the time limit for proofs; without a limit, so long
# Of the time limit, what is kept for a proof that ends with a bound in any case, and so does the
# last one of so many.
LAST_PROOF, PROOFS = 0.2, 50
NEW_NEURONS, NEW_PATTERNS = 20, 60  # that a round adds at most; more with many outputs
IDLE = 2  # programs in a row that did not use a pattern which then leaves
ALIKE = 1 - 1e-5  # the cosine of neurons that are taken for one
# The relative gap of a program: this times the square of the excess of the price, as a dual point
# is off by the square root of its gap. Then its limits, the lower one in units of the tolerance.
LOOSE, LOOSEST, TIGHTEST = 0.1, 1e-3, 1e-3
TIGHTER = 0.1  # if the last one was solved to begin with
DESCENTS = 10  # networks in a row that have nothing to add, before a run ends
NEAR = 1.15  # a price from which on the search is thorough
WORTH = 0.1  # patterns whose price is above (1 + WORTH tol) lam come in
SAME = 1e-9  # objectives that differ by less are the same
_EARLY = (Status.INTERRUPTED, Status.STOPPED, Status.TIME_LIMIT)


def generate(
    problem: CReLU,
    *,
    warm_start: Weights | Solution | None = None,
    prove: str | PriceMethod | None = "none",
    tol: float = 1e-4,
    max_seconds: float | None = None,
    max_rounds: int = 300,
    callback: Callable[[Round], object] | None = None,
    random_state: Seed = 0,
    solver: str | Solver = "auto",
    descents: int = DESCENTS,
    on_failure: str = "warn",
) -> Training:
    """Train over generated patterns, from those that a C-ReLU problem has. Where rows lie in a
    plane, as with one input and a bias, and a proof is asked for, the exact method does all of it.

    Parameters
    ----------
    problem : its patterns are where generation starts; one is enough.
    warm_start : weights of this problem to start from, or a solution of it.
    descents : random networks that are trained for their neurons to start searches from. So many of
        them in a row find nothing before the run ends; the more they are, the less is missed.
    prove, tol, max_seconds, max_rounds, callback, random_state, solver, on_failure : as in
        `cvxnn.train`.
    """
    _check_problem(problem)
    settings = _Settings(
        prove=check_prove(prove),
        tol=check_number(tol, "tol", minimum=0, strict=True),
        max_rounds=check_integer(max_rounds, "max_rounds", minimum=0),
        seconds=math.inf,
        callback=callback,
        solver=solver,
        descents=check_integer(descents, "descents", minimum=0),
    )
    check_choice(on_failure, "on_failure", ("warn", "raise", "ignore"))
    if max_seconds is not None:
        limit = check_number(max_seconds, "max_seconds", minimum=0, strict=True)
        settings = replace(settings, seconds=limit)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, got {type(callback).__name__}")
    if isinstance(warm_start, Solution):
        warm_start = warm_start.weights
    start = None
    if warm_start is not None:
        start = to_numpy(problem.check_weights(warm_start, "warm_start"))
    rng = check_random_state(random_state)
    with threads.single_blas(), warnings.catch_warnings():
        warnings.simplefilter("ignore", category=PatternWarning)
        run = _Run(problem, start, settings, rng)
        training = run.exactly() if exact.handles(problem, settings.prove) else run.to_the_end()
    if not training.converged and training.status is not Status.STOPPED:
        _complain(training, on_failure)
    return training


@dataclass(frozen=True)
class _Settings:
    """Of a run, checked."""

    prove: str | PriceMethod
    tol: float
    max_rounds: int
    seconds: float
    callback: Callable[[Round], object] | None
    solver: str | Solver
    descents: int


def _check_problem(problem: CReLU) -> None:
    check_problem(problem)
    if not isinstance(problem, CReLU):
        raise TypeError(f"problem must be a CReLU, got {type(problem).__name__}")
    if problem.lam <= 0:
        raise ValueError("generation needs lam > 0: without a penalty every pattern pays")
    if problem.patterns.gates is None:
        raise ValueError(
            "patterns must have gates, as generated ones do: make them with sample_patterns or "
            "Patterns.from_gates"
        )


def _complain(training: Training, on_failure: str) -> None:
    if on_failure == "raise":
        raise NotConvergedError(training.message, training.solution)
    if on_failure == "warn":
        from cvxnn.solvers.convergence import ConvergenceWarning

        warnings.warn(training.message, ConvergenceWarning, stacklevel=3)


class _EndError(Exception):
    """The run ends like this."""

    def __init__(self, status: Status) -> None:
        super().__init__(status)
        self.status = status


class _Run:
    """The state of one run: the best network, the last solution, the history."""

    def __init__(
        self,
        problem: CReLU,
        start: np.ndarray | None,
        settings: _Settings,
        rng: np.random.Generator,
    ) -> None:
        self.settings, self.tol, self.rng = settings, settings.tol, rng
        self.budget = Budget(settings.seconds)
        self.lam, self.C = problem.lam, problem.weight_shape[2]
        self.network = Sliding(problem)
        self.pricing = Pricing(self.network.X, rng)
        self.descents = Descents(problem, settings.descents, rng)
        self.units = no_units(problem.operator.d)  # the best network
        if start is not None:
            self.units = units_of(problem, start)
        self.objective = self.network.objective(self.units)
        self.problem = problem  # the last one
        self.weights: np.ndarray | None = None  # where it starts from
        self.solution: Solution | None = None
        self.price: float | None = None
        self.ratio = math.inf  # of the price that programs begin with to lam
        self.neurons = Neurons.none(problem.operator.d)
        self.bound: Bound | None = None
        self.history: list[Round] = []
        self.n_programs = self.n_proofs = 0
        self.idle: dict[bytes, int] = {}
        self.found_by_proof = False  # whether a proof met patterns that pay
        self.told = 0.0  # when the callback was last called

    def to_the_end(self) -> Training:
        total, method = self.settings.seconds, chosen_method(self.settings.prove, self.problem)
        share = 1.0 if method is None else 1.0 - PROOF_SHARE
        self.budget.seconds = share * total
        status = self._until_end(self._slide)
        while status is None:
            status = self._until_end(self._solve)
            self.budget.seconds = total
            if self.solution is None or status in (Status.INTERRUPTED, Status.STOPPED):
                break
            self.found_by_proof = False
            limit = Budget(on_silence=self._sign_of_proof)  # proofs have a limit of their own
            ended = self._until_end(self._prove, limit)
            status = status if ended is None else ended
            if ended is None and self.found_by_proof:
                status = None
                self.budget.seconds = self.budget.taken + share * self.budget.left
        assert status is not None
        self.budget.seconds = math.inf
        return self._finished(status)

    def exactly(self) -> Training:
        """By the exact method, which keeps the network of its rounds if they are interrupted, but
        has none before and after them."""
        settings = self.settings
        try:
            return exact.train_exactly(
                self.problem, self.tol, settings.seconds, settings.callback, self.rng
            )
        except KeyboardInterrupt:
            return self._finished(Status.INTERRUPTED)

    def _until_end(self, work: Callable[[], None], limit: Budget | None = None) -> Status | None:
        """How some work ended, if that is to be the end of the run."""
        try:
            with budget.spend(self.budget if limit is None else limit):
                work()
        except _EndError as end:
            return end.status
        except KeyboardInterrupt:
            return Status.INTERRUPTED
        except OutOfTimeError:
            return Status.TIME_LIMIT
        return None

    # -- sliding

    def _slide(self) -> None:
        """Rounds of the network itself. A price that is not found is left to the programs."""
        for _ in range(SLIDES):
            before = self.objective
            found = self._search(self.network.dual(self.units), QUICK, starts_of(self.units))
            new = self._first_of(found, NEW_NEURONS)
            if len(new.prices) == 0 or self.budget.taken > SLIDE_SHARE * self.budget.seconds:
                return
            self._keep(self.network.slide(self.network.with_new(self.units, new), SLIDE_STEPS))
            self._record(SLIDE, len(self.units.W), _highest(found))
            if before - self.objective < SLIDE_GAIN * self.objective:
                return

    def _keep(self, units: Units) -> float:
        """The objective of a network, which is kept if it is the best one."""
        objective = self.network.objective(units)
        if objective < self.objective:
            self.units, self.objective = units, objective
        return objective

    # -- solving

    def _solve(self) -> None:
        """Programs with more and more patterns that pay."""
        if self.weights is None:
            self.problem, self.weights = over_units(self.problem, self.units, self.rng)
        ratio, tightness, took = self.ratio, 1.0, 0.0
        while self.n_programs < self.settings.max_rounds:
            if self.solution is not None and self.budget.left < took:
                raise _EndError(Status.TIME_LIMIT)  # the next one would not be finished
            self.n_programs += 1
            wanted = self._tolerance(ratio, tightness)
            solution = solve(
                self.problem,
                self.settings.solver,
                tol=wanted,
                warm_start=self.weights,
                callback=self._sign_of_life,
                on_failure="ignore",
            )
            took = solution.seconds
            self._take(solution)
            found = self._look_for_neurons(solution, ratio)
            ratio = _highest(found) / self.lam
            self._record(SOLVE, len(self.problem.patterns), _highest(found))
            solved = solution.certificate.relative_gap <= self.tol
            if ratio <= 1 + self.tol and solved:
                raise _EndError(Status.CONVERGED)
            new = self._exchange(solution, found)
            if solution.n_iter == 0 or not new:
                if wanted <= TIGHTEST * self.tol and not new:
                    raise _EndError(Status.STALLED)
                tightness *= TIGHTER
        raise _EndError(Status.MAX_ITER)

    def _tolerance(self, ratio: float, tightness: float) -> float:
        by_price = min(LOOSEST, LOOSE * (ratio - 1) ** 2)
        return max(TIGHTEST * self.tol, tightness * by_price)

    def _take(self, solution: Solution) -> None:
        """Keep a solution, unless it ended early and is worse."""
        early = solution.status in _EARLY
        if early and self.solution is not None:
            solution = bounded_by(solution, np.asarray(self.solution.dual))
        units = units_of(self.problem, _blocks(solution))
        before = self.objective
        if self._keep(units) <= before * (1 + SAME) or self.solution is None:
            self.solution, self.price = solution, None
        if early:
            raise _EndError(solution.status)

    def _look_for_neurons(self, solution: Solution, ratio: float) -> Neurons:
        """By a search that is the harder, the less there is to be found."""
        dual, enough = np.asarray(solution.dual), (1 + self.tol) * self.lam
        known, tried = starts_of(self.units), self.descents.found
        found = self._search(dual, THOROUGH if ratio < NEAR else QUICK, known)
        if _highest(found) <= enough:
            both = Neurons(*(np.concatenate(parts) for parts in zip(known, tried, strict=True)))
            found = self._search(dual, DEEP, both)
        while _highest(found) <= enough and self.descents.worth_another:
            new = self._search(dual, AFTER_DESCENT, self.descents.next())
            if _highest(new) > enough:
                self.descents.paid()
            found = max(found, new, key=_highest)
        self.neurons, self.price = found, _highest(found)
        return found

    def _exchange(self, solution: Solution, found: Neurons) -> bool:
        """Take in new patterns, and give up those that were idle for long. False if there is
        nothing new: then the program is solved again, from where it ended."""
        problem = self.problem
        keys, p = problem.patterns.bits.keys(), len(problem.patterns)
        new = self._new_patterns(found, set(keys))
        if new is None:
            self.weights = _blocks(solution)
            return False
        U = consolidated(problem, _blocks(solution), ALIKE)
        used = np.any(U != 0, axis=(1, 2))
        used = used[:p] | used[p:]
        self.idle = {
            key: 0 if live else self.idle.get(key, 0) + 1
            for key, live in zip(keys, used.tolist(), strict=True)
        }
        kept = [i for i, key in enumerate(keys) if self.idle[key] < IDLE]
        patterns = problem.patterns.select(kept).join(new) if kept else new
        self.problem, weights = problem.with_patterns(patterns, problem.present(U))
        self.weights = np.asarray(self.problem.check_weights(weights))
        return True

    def _new_patterns(self, found: Neurons, known: set[bytes]) -> Patterns | None:
        """Those of the best directions that pay, if the program does not have them."""
        some = self._first_of(found, 4 * NEW_PATTERNS)
        gates = gates_near(self.network.X, some.directions, self.rng)
        patterns = patterns_of(self.problem, gates)
        if patterns is None:
            return None
        fresh = [i for i, key in enumerate(patterns.bits.keys()) if key not in known]
        limit = NEW_PATTERNS * max(1, self.C // 3)
        return patterns.select(fresh[:limit]) if fresh else None

    # -- proving

    def _prove(self) -> None:
        """Bound the price over all patterns. Patterns that pay, if there are any, come in, and the
        programs go on with them."""
        assert self.solution is not None
        method = chosen_method(self.settings.prove, self.problem)
        if method is None or self.budget.left <= 0:
            return
        left = self._seconds_for_a_proof()
        self.n_proofs += 1
        total = self.settings.seconds
        plenty = math.isinf(total) or left > LAST_PROOF * total
        early = plenty and self.n_proofs < PROOFS
        bound, found = over_all_patterns(
            self.solution, method, tol=self.tol, max_seconds=left, return_early=early
        )
        if bound is None:
            assert isinstance(self.solution.problem, CReLU)
            self.problem = self.solution.problem
            self.ratio = _highest(found) / self.lam
            self.found_by_proof = self._exchange(self.solution, found)
        if bound is None and not self.found_by_proof:
            left = self._seconds_for_a_proof()
            bound, _ = over_all_patterns(
                self.solution, method, tol=self.tol, max_seconds=left, return_early=False
            )
        self.bound = bound if bound is not None and bound.over_all_patterns else None
        highest = _highest(found) if len(found.prices) else math.nan  # no search was made
        self._record(PROVE, len(self.problem.patterns), highest)

    def _seconds_for_a_proof(self) -> float:
        finite = math.isfinite(self.budget.seconds)
        return max(self.budget.left, 0.0) if finite else PROOF_SECONDS

    # -- all of them

    def _search(self, Theta: np.ndarray, effort: Effort, starts: Neurons) -> Neurons:
        return self.pricing.search(Theta, starts, effort.times(max(1, self.C // 2)))

    def _first_of(self, found: Neurons, number: int) -> Neurons:
        """The directions with the highest prices that pay, of different patterns."""
        paying = np.abs(found.prices) > (1 + WORTH * self.tol) * self.lam
        limit = number * max(1, self.C // 2)
        some = Neurons(*(part[paying][: 4 * limit] for part in found))
        if len(some.prices) == 0:
            return some
        on = np.packbits(np.asarray(self.network.X @ some.directions.T > 0), axis=0)
        codes = np.concatenate([on, [some.classes.astype(np.uint8)]])
        _, first = np.unique(codes, axis=1, return_index=True)
        chosen = np.sort(first)[:limit]
        return Neurons(*(part[chosen] for part in some))

    def _record(self, kind: str, n_patterns: int, highest: float) -> None:
        self.history.append(self._round(kind, n_patterns, highest / self.lam))
        self.told = self.budget.taken
        callback = self.settings.callback
        if callback is not None and callback(self.history[-1]):
            raise _EndError(Status.STOPPED)

    def _round(self, kind: str, n_patterns: int, ratio: float, note: str = "") -> Round:
        solution = self.solution
        return Round(
            n_round=len(self.history) + (note == ""),
            kind=kind,
            seconds=self.budget.taken,
            objective=self.objective,
            lower_bound=0.0 if solution is None else solution.certificate.lower_bound,
            n_patterns=n_patterns,
            n_neurons=len(self.units.W),
            price_ratio=ratio,
            note=note,
        )

    def _sign_of_life(self, progress: Progress) -> bool:
        """While a program is solved; a true answer ends that."""
        callback = self.settings.callback
        if callback is None or self.budget.taken - self.told < budget.SILENCE:
            return False
        self.told = self.budget.taken
        note = f"solving: relative gap {progress.relative_gap:.1e}"
        return bool(callback(self._round(SOLVE, len(self.problem.patterns), math.nan, note)))

    def _sign_of_proof(self) -> None:
        callback = self.settings.callback
        if callback is not None:
            n_patterns = len(self.problem.patterns)
            if callback(self._round(PROVE, n_patterns, math.nan, "proving")):
                raise _EndError(Status.STOPPED)

    def _finished(self, status: Status) -> Training:
        seconds = self.budget.taken
        solution = self.solution if self.solution is not None else self._without_programs()
        problem = solution.problem
        assert isinstance(problem, CReLU)
        units = units_of(problem, _blocks(solution))
        objective, network = self.network.objective(units), problem.network(solution.weights)
        if self.objective < objective:
            objective, network = self.objective, self._network()
        bound, unproven = self.bound, ""
        if bound is None:
            bound = over_given_patterns(solution, objective)
            in_time = status not in _EARLY
            unproven = why_unproven(self.settings.prove, problem, in_time=in_time)
        return Training(
            network=network,
            objective=objective,
            solution=solution,
            bound=bound,
            history=tuple(self.history),
            price=self.price,
            neurons=self.neurons,
            status=status,
            message=message_of(status, solution, bound, self.price, unproven),
            seconds=seconds,
            unproven=unproven,
        )

    def _network(self) -> ReLUNetwork:
        """The best one, for the raw X."""
        Z = self.network.predictions(self.units)
        bias = self.problem.loss.intercept(Z) if self.problem.output_bias else None
        return network_of(self.problem, self.units, bias)

    def _without_programs(self) -> Solution:
        """What is proven of the network of a run that ended before its first program was solved."""
        problem, U = over_units(self.problem, self.units, self.rng)
        return solve(problem, self.settings.solver, warm_start=U, max_iter=0, on_failure="ignore")


def _blocks(solution: Solution) -> np.ndarray:
    return np.asarray(solution.problem.check_weights(solution.weights))


def _highest(found: Neurons) -> float:
    return float(np.abs(found.prices[0])) if len(found.prices) else 0.0
