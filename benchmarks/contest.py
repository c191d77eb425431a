"""Races of cvxnn's second-order solver against everything a user could pick instead.

Every run is a process of its own on one BLAS thread, and is measured in processor seconds from
the data to the weights. One judge says what the weights are worth. An opponent climbs a ladder of
tolerances until it reaches its goal, and only its shortest run that does counts: the search is
free. Whom the ladder does not bring there is compared at the gap it did reach. Short runs are
repeated in turn, and the median counts.
"""

from __future__ import annotations

import functools
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import cvxnn
from benchmarks import judge
from benchmarks.instances import Instance
from benchmarks.peers.protocol import Worker
from benchmarks.record import ROOT, Options, Row, Rows

SOLVER = "newton"
ENVIRONMENTS = ROOT  # where `make bench` puts those of the peers
GOAL = 1e-6
REFERENCE_TOL = 1e-8  # of the run whose dual point bounds the optimum for all
MAX_SECONDS = 30.0
REPEATS, REPEAT_BELOW = 3, 2.0  # runs shorter than that many seconds are repeated
MAX_MEMORY = 4e9  # bytes that forming the expanded matrix may take
MARGIN = 1e-9  # aimed at below a peer's objective, so that rounding does not decide

Run = dict[str, Any]


@dataclass(frozen=True)
class Entrant:
    """Somebody to race against.

    Attributes
    ----------
    name : as tables show it.
    module : in benchmarks.peers, what answers requests.
    goal : the relative gap to reach; None is its own stop, and the race is to its objective.
    ladder : its settings, from loose to tight.
    peer : the package whose environment it needs; our own without.
    or_best : whether a gap above the goal counts, as the goal of this race.
    patience : the share of the time limit that each of its runs gets.
    entry_bytes : memory for each entry of the expanded matrix, if it forms that.
    """

    name: str
    module: str
    goal: float | None = GOAL
    ladder: tuple[Mapping[str, Any], ...] = ({},)
    peer: str | None = None
    or_best: bool = False
    patience: float = 1.0
    entry_bytes: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def python(self) -> Path:
        if self.peer is None:
            return Path(sys.executable)
        return ENVIRONMENTS / f".venv-{self.peer}" / "bin" / "python"


OURS = Entrant(SOLVER, "solve_cvxnn", patience=4.0)


@dataclass(frozen=True)
class Task:
    """A convex program: kind "gated" or "relu", its data and lam."""

    name: str
    kind: str
    instance: Instance
    lam: float

    @functools.cached_property
    def mask(self) -> np.ndarray:
        return self.instance.X @ self.instance.gates > 0

    @property
    def sizes(self) -> dict[str, int]:
        (n, d), p = self.instance.X.shape, self.instance.gates.shape[1]
        return {"n": n, "d": d, "p": p, "c": self.instance.Y.shape[1]}

    @property
    def request(self) -> Run:
        """What all are asked."""
        return {"kind": self.kind, "lam": self.lam}

    def our_request(self, **settings: Any) -> Run:
        """What our solver is asked beyond that."""
        return {"solver": SOLVER, "tol": GOAL, **settings}

    @property
    def n_entries(self) -> int:
        """Of the expanded matrix."""
        return self.sizes["n"] * self.sizes["d"] * self.sizes["p"]

    def bound(self, Theta: np.ndarray) -> float:
        """What a dual point proves."""
        bound = judge.gated_bound if self.kind == "gated" else judge.relu_bound
        return bound(self.instance.X, self.mask, self.instance.Y, Theta, self.lam)

    def judged(self, found: Mapping[str, np.ndarray], bound: float) -> Run:
        """The objective of the weights and their relative gap; `bound` is the best one known.

        Gated weights have to prove the gap: with the dual point of their own gradient or with one
        that came with them. The excess is what `bound` says. For ReLU the gap is that excess, and
        weights outside their cones are moved into them first. A network is taken as it is."""
        X, Y, lam = self.instance.X, self.instance.Y, self.lam
        if "W1" in found:
            objective = judge.network_objective(X, Y, found["W1"], found["W2"], lam)
            return {"objective": objective, "gap": judge.relative_gap(objective, bound)}
        if self.kind == "relu":
            V, W = (judge.into_cones(X, self.mask, found[name]) for name in "VW")
            objective = judge.relu_objective(X, self.mask, Y, V, W, lam)
            return {
                "objective": objective,
                "gap": judge.relative_gap(objective, bound),
                "violation": judge.cone_violation(X, self.mask, found["V"], found["W"]),
            }
        U, mask = found["U"], X @ found["gates"] > 0 if "gates" in found else self.mask
        objective = judge.objective(X, mask, Y, U, lam)
        duals = [judge.gradient(X, mask, Y, U), *([found["Theta"]] if "Theta" in found else [])]
        own = max(judge.gated_bound(X, mask, Y, Theta, lam) for Theta in duals)
        return {
            "objective": objective,
            "gap": judge.relative_gap(objective, own),
            "excess": judge.relative_gap(objective, bound),
        }


# A case, what else its row says, and how to make the task.
Plan = tuple[str, Row, Callable[[], Task]]


@functools.lru_cache(maxsize=1)
def prepared(make: Callable[[], Instance], kind: str) -> tuple[Instance, float]:
    """The instance with one gate a pattern, for ReLU without singular cones, so that everybody
    solves the same program; and its lambda_max."""
    instance = make()
    patterns = cvxnn.Patterns.from_gates(instance.X, instance.gates, strict=True)
    if kind == "relu":
        problem: Any = cvxnn.CReLU(instance.X, instance.Y, patterns, 1.0, singular="keep")
        patterns = patterns.select(~problem.cones.singular)
        problem = cvxnn.CReLU(instance.X, instance.Y, patterns, 1.0)
    else:
        problem = cvxnn.CGReLU(instance.X, instance.Y, patterns, 1.0)
    gates = patterns.gates
    assert gates is not None
    return Instance(instance.X, instance.Y, gates), cvxnn.lambda_max(problem)


class Contest:
    """All races of a benchmark, with one worker an entrant; `goals` are ours in any case."""

    goals: ClassVar[tuple[float, ...]] = (GOAL,)

    def __init__(
        self,
        entrants: Iterable[Entrant],
        options: Options,
        folder: Path,
        max_seconds: float = MAX_SECONDS,
    ) -> None:
        self.entrants = present_entrants(entrants, options.quick)
        self.max_seconds = options.max_seconds or max_seconds
        self.repeats = 1 if options.quick else REPEATS
        self.data, self.weights = folder / "data.npz", folder / "weights.npz"
        self._workers: dict[str, Worker] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Contest:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def run(self, plans: Iterable[Plan], rows: Rows) -> Iterator[tuple[str, Row]]:
        """Race on those tasks that have no row yet. The tasks of an instance come in the order of
        falling lam, which is that of rising cost."""
        for case, facts, make in plans:
            if case not in rows:
                task = make()
                earlier = [row for row in rows.values() if row["instance"] == task.name]
                rows[case] = {**facts, **self.race(task, earlier)}
                yield case, rows[case]

    def race(self, task: Task, earlier: list[Row]) -> Row:
        instance = task.instance
        np.savez(self.data, X=instance.X, Y=instance.Y, gates=instance.gates)
        bound, reference = self.reference(task)
        ours: dict[str, Run] = {}
        row: Row = {
            "instance": task.name,
            **task.sizes,
            "lam": task.request["lam"],
            "max_seconds": self.max_seconds,
            **reference,
            SOLVER: ours,
            "entrants": {},
        }
        for goal in sorted({*self.goals, *(e.goal for e in self.entrants if e.goal)}):
            self.our_run(task, bound, ours, tol=goal)
        for entrant in self.entrants:
            tried = self.climb(entrant, task, bound, earlier)
            duel = chosen_run(entrant, tried)
            settings = our_settings(entrant, tried, duel["chosen"])
            row["entrants"][entrant.name] = {
                "tried": tried,
                **duel,
                "ours": self.our_run(task, bound, ours, **settings),
            }
        self.repeat(task, row)
        for duel in row["entrants"].values():
            duel.update(ratios(duel, ours[duel["ours"]]))
        return row

    def reference(self, task: Task) -> tuple[float, Row]:
        """The best lower bound known, and the run behind it."""
        run, found = self.ask(OURS, task, **task.our_request(tol=REFERENCE_TOL))
        bound = task.bound(found.get("Theta", -task.instance.Y))
        return bound, {"bound": bound, "reference": {**run, **self.judged(task, found, bound)}}

    def climb(self, entrant: Entrant, task: Task, bound: float, earlier: list[Row]) -> list[Run]:
        """Runs up the ladder until one reaches the goal or runs out of time. What a larger lam has
        shown is used: no rung is tried that ran out of time there, or was too loose; but if none
        of the others ends and any gap counts, then those as well, downwards."""
        if (needed := entrant.entry_bytes * task.n_entries) > MAX_MEMORY:
            reason = f"memory: its matrices take {needed / 1e9:.1f} GB"
            return [{"rung": 0, "status": "failed", "reason": reason}]
        tried: list[Run] = []
        upwards = rungs(entrant, earlier)
        for rung in upwards:
            tried.append(self.step(entrant, task, bound, rung))
            reached = tried[-1].get("gap", np.inf) <= (entrant.goal or np.inf)
            if tried[-1]["status"] == "time_limit" or reached:
                break
        for rung in reversed(range(upwards.start)):
            if not entrant.or_best or any(is_complete(run) for run in tried):
                break
            tried.append(self.step(entrant, task, bound, rung))
        return tried

    def step(self, entrant: Entrant, task: Task, bound: float, rung: int) -> Run:
        answer, found = self.ask(entrant, task, **entrant.ladder[rung])
        return {"rung": rung, **answer, **self.judged(task, found, bound)}

    def our_run(self, task: Task, bound: float, ours: dict[str, Run], **settings: Any) -> str:
        """Run our solver unless it has been, and the key of that run."""
        key = " ".join(f"{name}={value:.3g}" for name, value in settings.items())
        if key not in ours:
            answer, found = self.ask(OURS, task, **task.our_request(**settings))
            ours[key] = {"settings": settings, **answer, **self.judged(task, found, bound)}
        return key

    @staticmethod
    def judged(task: Task, found: Mapping[str, np.ndarray], bound: float) -> Run:
        return task.judged(found, bound) if found else {}

    def repeat(self, task: Task, row: Row) -> None:
        """Run again, in turn, what was short; the median becomes its time."""
        again: list[tuple[Run, Entrant, Mapping[str, Any]]] = [
            (run, OURS, task.our_request(**run["settings"])) for run in row[SOLVER].values()
        ]
        for entrant in self.entrants:
            duel = row["entrants"][entrant.name]
            if duel["chosen"] is not None:
                run = duel["tried"][duel["chosen"]]
                again.append((run, entrant, entrant.ladder[run["rung"]]))
        again = [part for part in again if part[0].get("seconds", np.inf) < REPEAT_BELOW]
        times = [[run["seconds"]] for run, _, _ in again]
        for _ in range(self.repeats - 1):
            for seconds, (_, entrant, settings) in zip(times, again, strict=True):
                seconds.append(self.ask(entrant, task, **settings)[0]["seconds"])
        for seconds, (run, _, _) in zip(times, again, strict=True):
            run.update(seconds=statistics.median(seconds), all_seconds=seconds)

    def ask(
        self, entrant: Entrant, task: Task, **settings: Any
    ) -> tuple[Run, dict[str, np.ndarray]]:
        """The answer and, where there are any, the arrays that came with it."""
        self.weights.unlink(missing_ok=True)
        files = {"data": str(self.data), "weights": str(self.weights)}
        limit = {"max_seconds": self.max_seconds * entrant.patience}
        answer = self._worker(entrant).ask(**files, **limit, **task.request, **settings)
        if not self.weights.exists():
            return answer, {}
        with np.load(self.weights) as found:
            return answer, dict(found)

    def _worker(self, entrant: Entrant) -> Worker:
        if entrant.name not in self._workers:
            module = f"benchmarks.peers.{entrant.module}"
            worker = Worker(entrant.python, module, ROOT, entrant.environment)
            self._workers[entrant.name] = self._stack.enter_context(worker)
        return self._workers[entrant.name]


def present_entrants(entrants: Iterable[Entrant], quick: bool) -> list[Entrant]:
    """Those that can be started; only a quick run goes without the others."""
    listed = list(entrants)
    missing = {e.peer for e in listed if not e.python.exists()}
    if missing and not quick:
        targets = " ".join(f".venv-{peer}/.ready" for peer in sorted(map(str, missing)))
        raise SystemExit(f"peers have no environment yet: make {targets}")
    return [entrant for entrant in listed if entrant.python.exists()]


def rungs(entrant: Entrant, earlier: list[Row]) -> range:
    """From the loosest that was close enough at the last lam to what ran out of time at one."""
    start, stop = 0, len(entrant.ladder)
    for row in earlier:
        reached = []
        for run in row["entrants"].get(entrant.name, {"tried": []})["tried"]:
            if run["status"] == "time_limit":
                stop = min(stop, run["rung"])
            elif entrant.goal and run.get("excess", run.get("gap", np.inf)) <= entrant.goal:
                reached.append(run["rung"])
        start = max([start, *reached[:1]])
    return range(max(min(start, stop - 1), 0), stop)


def is_complete(run: Run) -> bool:
    return "gap" in run and run["status"] != "time_limit"


def chosen_run(entrant: Entrant, tried: list[Run]) -> Row:
    """Which run counts, by its place, and why there is none or no better one."""
    ended = [i for i, run in enumerate(tried) if is_complete(run)]
    reaching = [i for i in ended if tried[i]["gap"] <= (entrant.goal or np.inf)]
    reason = None
    if not tried:
        reason = "not run: out of time at a larger lam"
    elif not reaching:
        last = tried[-1]
        ending = f"ended with {last['status']} above the gap"
        reason = "out of time" if last["status"] == "time_limit" else last.get("reason", ending)
    chosen = min(reaching, key=lambda i: tried[i]["seconds"], default=None)
    if not reaching and entrant.or_best:
        chosen = min(ended, key=lambda i: tried[i]["gap"], default=None)
    return {"chosen": chosen, "reached": bool(reaching), "reason": reason}


def our_settings(entrant: Entrant, tried: list[Run], chosen: int | None) -> Mapping[str, float]:
    """The goal of our side of a race."""
    if chosen is None:
        return {"tol": entrant.goal or GOAL}
    run = tried[chosen]
    if entrant.goal is None:
        return {"objective": run["objective"] * (1 - MARGIN)}
    return {"tol": max(entrant.goal, run["gap"])}


def ratios(duel: Row, ours: Run) -> Row:
    """How many times faster we are: a lower bound if the other one ran out of time, an upper one,
    which counts, if we did not get where it did."""
    chosen = None if duel["chosen"] is None else duel["tried"][duel["chosen"]]
    found: Row = {"ratio": None, "at_least": None, "at_most": None}
    if ours["status"] not in ("converged", "stopped"):
        found["reason"] = f"{SOLVER} ended with {ours['status']}"
        if chosen is not None and "seconds" in ours:
            found["ratio"] = found["at_most"] = chosen["seconds"] / ours["seconds"]
    elif chosen is None:
        if duel["tried"] and duel["tried"][-1]["status"] == "time_limit":
            found["at_least"] = duel["tried"][-1]["seconds"] / ours["seconds"]
    elif "objective" in ours["settings"] and ours["objective"] > chosen["objective"]:
        found["reason"] = "its network is below the optimum over these patterns"
    else:
        found["ratio"] = chosen["seconds"] / ours["seconds"]
    return found
