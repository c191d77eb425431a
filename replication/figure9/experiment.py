"""Figures 9 to 11: R-FISTA, FISTA without restarts, and proximal gradient descent (PGD) with a line
search and with the best of four fixed steps, on C-GReLU."""

from __future__ import annotations

import math

import numpy as np

import cvxnn
from cvxnn import RFISTA
from replication.ablations import LAMS, SHOWN, TOL, gated, is_degenerate, optimum, outcome, trace
from replication.data import collection
from replication.experiment import Experiment, Piece, Profile, Row
from replication.figure9 import page

STEPS = (10.0, 1.0, 0.1, 0.01)
TRACED = ("heart-cleveland", "twonorm")  # Figures 11 and 10
PATTERNS = 5000
DESK_SETS, DESK_PATTERNS = 40, 1000
LIMIT = 2000


class ReleasedRFISTA(RFISTA):
    """With the momentum of the authors' code: t+ = 1 + sqrt(1 + 4 t^2)/2. It grows twice as fast as
    that of FISTA, (1 + sqrt(1 + 4 t^2))/2, whose bound on the rate does not cover it."""

    def next_momentum(self, t: float) -> tuple[float, float]:
        t_new = 1 + math.sqrt(1 + 4 * t * t) / 2
        return t_new, (t - 1) / t_new


PUBLISHED = {"line_search": "backtracking"}
RELEASED = {"line_search": "backtracking", "grow": 1.2}
ACCELERATED, GRADIENT = "accelerated", "gradient"
KINDS = {
    ACCELERATED: {
        "R-FISTA": RFISTA(**PUBLISHED),
        "FISTA": RFISTA(**PUBLISHED, restart=False),
        "R-FISTA, released": ReleasedRFISTA(**RELEASED),
        "FISTA, released": ReleasedRFISTA(**RELEASED, restart=False),
        "R-FISTA, cvxnn": RFISTA(),
    },
    GRADIENT: {"PGD-LS": RFISTA(**PUBLISHED, acceleration=False, first_step=0.01)},
}


def pieces(profile: Profile) -> list[Piece]:
    """Accelerated methods of all problems come first: gradient descent takes ten times as long."""
    if profile is Profile.SMOKE:
        return [
            _piece(("monks-3", lam, 50), kind, 100, traced=lam == SHOWN[0])
            for lam in SHOWN
            for kind in KINDS
        ]
    full = profile is Profile.PAPER
    sets, p = (collection(), PATTERNS) if full else (collection()[:DESK_SETS], DESK_PATTERNS)
    problems = [(name, lam, p) for name in sets for lam in LAMS]
    figures = [(name, lam, PATTERNS) for name in TRACED for lam in SHOWN]
    quick, slow = (
        [
            *(_piece(problem, kind, LIMIT, traced=False) for problem in problems[:half]),
            *(_piece(problem, kind, LIMIT, traced=True) for problem in figures),
            *(_piece(problem, kind, LIMIT, traced=False) for problem in problems[half:]),
        ]
        for kind, half in ((ACCELERATED, 120), (GRADIENT, 60))
    )
    return [*quick, *slow]


def _piece(problem: tuple[str, float, int], kind: str, limit: int, *, traced: bool) -> Piece:
    name, lam, patterns = problem
    settings = {
        "set": name,
        "lam": lam,
        "patterns": patterns,
        "limit": limit,
        "kind": kind,
        "traced": traced,
    }
    cost = (2.0 if kind == ACCELERATED else 6.0) * (12 if traced else 1)
    return Piece(f"{'trace' if traced else 'profile'} {name} {lam:.2e} {kind}", settings, cost)


def run(settings: Row) -> Row:
    problem = gated(settings)
    row: Row = {"patterns": len(problem.patterns), "degenerate": is_degenerate(problem)}
    if row["degenerate"]:
        return row
    methods = {
        name: _outcome(problem, solver, settings)
        for name, solver in KINDS[settings["kind"]].items()
    }
    if settings["kind"] == ACCELERATED:
        return {**row, "methods": methods, "optimum": optimum(problem, 1e-5)}
    steps = _fixed_steps(problem, settings)
    solved = [found for found in steps.values() if found["solved"]]
    best = min(solved, key=lambda found: found["passes"]) if solved else None
    best = best or min(steps.values(), key=_objective)
    methods["PGD"] = {name: value for name, value in best.items() if name != "trace"}
    return {**row, "methods": methods, "steps": steps}


def _outcome(problem: cvxnn.CGReLU, solver: RFISTA, settings: Row) -> Row:
    solution = _solve(problem, solver, settings["limit"])
    found = outcome(solution)
    return found | ({"trace": trace(solution.history)} if settings["traced"] else {})


def _fixed_steps(problem: cvxnn.CGReLU, settings: Row) -> dict[str, Row]:
    """PGD with each step. Only the best one counts in the profile, so that another may end where
    that was done; for the convergence figures all of them go on."""
    limit, found = settings["limit"], {}
    for step in STEPS:
        solver = RFISTA(step="fixed", first_step=step, acceleration=False)
        solution = _solve(problem, solver, limit)
        found[f"{step:g}"] = outcome(solution, fixed=True) | {"status": str(solution.status)}
        if settings["traced"]:
            found[f"{step:g}"]["trace"] = trace(solution.history, fixed=True)
        elif solution.converged:
            limit = min(limit, solution.n_iter)
    return found


def _solve(problem: cvxnn.CGReLU, solver: RFISTA, limit: int) -> cvxnn.Solution:
    with np.errstate(all="ignore"):  # steps that are too long diverge
        return cvxnn.solve(
            problem, solver, stop="paper", tol=TOL, max_iter=limit, on_failure="ignore"
        )


def _objective(found: Row) -> float:
    objective: float | None = found["objective"]
    return math.inf if objective is None else objective


EXPERIMENT = Experiment(
    name="figure9",
    title="Figures 9 to 11: acceleration and restarts",
    floats=("Figure 9", "Figure 10", "Figure 11"),
    pieces=pieces,
    run=run,
    present=page.present,
    draw=page.draw,
    verdicts=page.verdicts,
    reductions={
        Profile.SMOKE: "One set, two strengths of the penalty, 50 patterns, 100 iterations.",
        Profile.DESK: f"The {DESK_SETS} smallest of the 73 sets with {DESK_PATTERNS} sampled "
        f"patterns instead of {PATTERNS}, at all six strengths of the penalty; a fixed step ends "
        "where a better one was done. Figures 10 and 11 are in full.",
    },
)
