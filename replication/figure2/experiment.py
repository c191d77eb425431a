"""Figures 2 and 3, drawings in the paper, made of computed objects.

Figure 2: u = (2, 1) as a difference of two points of the cone between the lines y = -x/3 and
y = -4x/5. Two rows make this cone, and with targets X u the gated problem has the solution u.

Figure 3: the four problems and the maps between them, on one problem of which all patterns are
known, so that the convex program of ReLU networks is their training problem itself.
"""

from __future__ import annotations

import numpy as np

import cvxnn
from replication.ablations import short
from replication.experiment import Experiment, Piece, Profile, Row
from replication.figure2 import page

U = (2.0, 1.0)
ROWS = ((-1.0, -3.0), (4.0, 5.0))  # K: both products are not negative
INSIDE = (4.0, -2.0)  # a point of K
PROBLEM = {"n": 16, "d": 2, "lam": 0.01, "seed": 0}
TOL = 1e-8


def pieces(profile: Profile) -> list[Piece]:
    return [
        Piece("cone", {"u": U, "rows": ROWS, "inside": INSIDE}),
        Piece("relations", PROBLEM),
    ]


def run(settings: Row) -> Row:
    return cone(settings) if "rows" in settings else relations(settings)


def cone(settings: Row) -> Row:
    """The decompositions of u by two methods, as cvxnn makes them of any gated solution."""
    X, u = np.array(settings["rows"]), np.array(settings["u"])
    patterns = cvxnn.Patterns.from_gates(X, np.array(settings["inside"])[:, None], strict=True)
    problem = cvxnn.CGReLU(X, X @ u, patterns, lam=0.0)
    solution = cvxnn.solve(problem, "direct", tol=TOL)
    return {method: _parts(solution, method, X) for method in ("closed-form", "min-norm")}


def _parts(solution: cvxnn.Solution, method: str, X: np.ndarray) -> Row:
    found = cvxnn.decompose(solution, method)
    v, w = (part[0, :, 0] for part in found.weights)
    return {
        "v": [short(x) for x in v],
        "w": [short(x) for x in w],
        "ratio": short(found.norm_ratio),
        "least": short(min((X @ v).min(), (X @ w).min())),
    }


def relations(settings: Row) -> Row:
    """Optimal values of the convex problems with their bounds, and the objectives of what the maps
    make of their solutions."""
    rng = np.random.default_rng(settings["seed"])
    X = rng.standard_normal((settings["n"], settings["d"]))
    y = rng.standard_normal(settings["n"])
    lam, patterns = settings["lam"], cvxnn.enumerate_patterns(X)
    relu = cvxnn.CReLU(X, y, patterns, lam=lam)
    gated_solution = cvxnn.solve(relu.gated, "newton", tol=TOL)
    relu_solution = cvxnn.solve(relu, "newton", tol=TOL)
    V, W = relu_solution.weights
    decomposition = cvxnn.decompose(gated_solution, "min-norm")
    return {
        "patterns": len(patterns),
        "C-GReLU": _certified(gated_solution),
        "C-ReLU": _certified(relu_solution),
        "NC-GReLU": _network(gated_solution, X, y, lam),
        "NC-ReLU": _network(relu_solution, X, y, lam),
        "decomposed": decomposition.certificate.objective,
        "relaxed": cvxnn.certify(relu.gated, V - W).objective,
    }


def _certified(solution: cvxnn.Solution) -> Row:
    certificate = solution.certificate
    return {"objective": certificate.objective, "lower bound": certificate.lower_bound}


def _network(solution: cvxnn.Solution, X: np.ndarray, y: np.ndarray, lam: float) -> Row:
    """The network of a solution, and what the map back makes of it."""
    network = solution.network()
    patterns, weights = network.to_convex(X)
    kind = cvxnn.CReLU if isinstance(weights, tuple) else cvxnn.CGReLU
    back = cvxnn.certify(kind(X, y, patterns, lam=lam), weights).objective
    return {"objective": network.objective(X, y, lam), "neurons": network.n_neurons, "back": back}


EXPERIMENT = Experiment(
    name="figure2",
    title="Figures 2 and 3: a cone decomposition, and the maps between the four problems",
    floats=("Figure 2", "Figure 3"),
    pieces=pieces,
    run=run,
    present=page.present,
    draw=page.draw,
)
