"""Figures 12 to 14: the step that a line search of R-FISTA starts from: the last one, grown where
the quadratic bound was loose by a factor c (QB), kept (WS), or always grown (FT)."""

from __future__ import annotations

import cvxnn
from cvxnn import RFISTA
from replication.ablations import LAMS, SHOWN, TOL, gated, is_degenerate, optimum, outcome, trace
from replication.data import collection
from replication.experiment import Experiment, Piece, Profile, Row
from replication.figure12 import page

TRACED = ("glass", "flags")  # Figures 13 and 14
PATTERNS, LIMIT = 5000, 2000
DESK_SETS, DESK_PATTERNS = 50, 1000
PUBLISHED = {"line_search": "backtracking"}
RULES = {
    "QB (10)": RFISTA(**PUBLISHED, tightness=10.0),
    "QB (5)": RFISTA(**PUBLISHED, tightness=5.0),
    "QB (2)": RFISTA(**PUBLISHED, tightness=2.0),
    "WS": RFISTA(**PUBLISHED, step="warm"),
    "FT": RFISTA(**PUBLISHED, step="forward"),
    "QB (5), cvxnn": RFISTA(),
}


def pieces(profile: Profile) -> list[Piece]:
    if profile is Profile.SMOKE:
        return [_piece("monks-3", lam, 50, 300, traced=lam == SHOWN[0]) for lam in SHOWN]
    full = profile is Profile.PAPER
    sets, p = (collection(), PATTERNS) if full else (collection()[:DESK_SETS], DESK_PATTERNS)
    traced = [_piece(name, lam, PATTERNS, LIMIT, traced=True) for name in TRACED for lam in SHOWN]
    plain = [_piece(name, lam, p, LIMIT, traced=False) for name in sets for lam in LAMS]
    return [*traced, *plain]


def _piece(name: str, lam: float, patterns: int, limit: int, *, traced: bool) -> Piece:
    settings = {"set": name, "lam": lam, "patterns": patterns, "limit": limit, "traced": traced}
    return Piece(f"{'trace' if traced else 'profile'} {name} {lam:.2e}", settings, cost=5.0)


def run(settings: Row) -> Row:
    problem = gated(settings)
    row: Row = {"patterns": len(problem.patterns), "degenerate": is_degenerate(problem)}
    if row["degenerate"]:
        return row
    methods: dict[str, Row] = {}
    for name, solver in RULES.items():
        solution = cvxnn.solve(
            problem, solver, stop="paper", tol=TOL, max_iter=settings["limit"], on_failure="ignore"
        )
        methods[name] = outcome(solution)
        if settings["traced"]:
            methods[name]["trace"] = trace(solution.history)
    return {**row, "methods": methods, "optimum": optimum(problem, 1e-5)}


EXPERIMENT = Experiment(
    name="figure12",
    title="Figures 12 to 14: how a step starts",
    floats=("Figure 12", "Figure 13", "Figure 14"),
    pieces=pieces,
    run=run,
    present=page.present,
    draw=page.draw,
    verdicts=page.verdicts,
    reductions={
        Profile.SMOKE: "One set, two strengths of the penalty, 50 patterns, 300 iterations.",
        Profile.DESK: f"The {DESK_SETS} smallest of the 73 sets with {DESK_PATTERNS} sampled "
        f"patterns instead of {PATTERNS}, at all six strengths of the penalty. Figures 13 and 14 "
        "are in full.",
    },
)
