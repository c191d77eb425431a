"""Two statements of the paper on small random problems: convex and non-convex problems have the
same optimal value, and the norms of cone decompositions where the rows are independent.

For the first, a convex problem is solved to a certified optimum, its solution is mapped to a
network, and L-BFGS trains networks of the same kind from random weights: none may end below the
lower bound. With gates the programs have sampled patterns. For ReLU networks all patterns are
enumerated, since their program over fewer says nothing about networks with others.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

import cvxnn
from replication.ablations import short
from replication.experiment import Experiment, Piece, Profile, Row
from replication.theory import page

TOL = 1e-9
SIZES = ((5, 8), (10, 20), (20, 60), (40, 60))  # rows and columns of full row rank
ANGLES = (0.5, 0.1, 0.01)  # of cones with two rows


def pieces(profile: Profile) -> list[Piece]:
    small = profile is Profile.SMOKE
    seeds, starts = (range(2), 3) if small else (range(10), 20)
    blocks = 10 if small else 100
    return [
        *(
            Piece(f"{kind} {seed}", {"kind": kind, "seed": seed, "starts": starts})
            for kind in ("gated", "relu")
            for seed in seeds
        ),
        *(
            Piece(f"norms {n}x{d}", {"kind": "norms", "n": n, "d": d, "blocks": blocks})
            for n, d in (SIZES[:2] if small else SIZES)
        ),
        *(Piece(f"narrow {angle:g}", {"kind": "narrow", "angle": angle}) for angle in ANGLES),
    ]


def run(settings: Row) -> Row:
    return _RUNS[settings["kind"]](settings)


def gated(settings: Row) -> Row:
    """n = 30, d = 3, 15 sampled patterns; a neuron for each in the network."""
    X, y = _data(30, 3, settings["seed"])
    patterns = cvxnn.sample_patterns(X, 15, random_state=settings["seed"])
    problem = _at_a_share(cvxnn.CGReLU(X, y, patterns, lam=1.0))
    mask = patterns.mask.astype(float)

    def output(W1: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return mask * (X @ W1), mask

    return _compared(problem, X, y, output, len(patterns), settings)


def relu(settings: Row) -> Row:
    """n = 12, d = 2, all patterns; as many neurons as the program has blocks."""
    X, y = _data(12, 2, settings["seed"])
    patterns = cvxnn.enumerate_patterns(X)
    problem = _at_a_share(cvxnn.CReLU(X, y, patterns, lam=1.0))

    def output(W1: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        Z = X @ W1
        return np.maximum(Z, 0.0), (Z > 0).astype(float)

    return _compared(problem, X, y, output, 2 * len(patterns), settings)


Hidden = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def _compared(
    problem: cvxnn.CGReLU | cvxnn.CReLU,
    X: np.ndarray,
    y: np.ndarray,
    hidden: Hidden,
    m: int,
    settings: Row,
) -> Row:
    solution = cvxnn.solve(problem, "newton", tol=TOL)
    network = solution.network()
    rng = np.random.default_rng(1000 + settings["seed"])
    lam, d = problem.lam, X.shape[1]
    reached = [
        _descended(X, y, lam, hidden, rng.standard_normal((d + 1) * m), m)
        for _ in range(settings["starts"])
    ]
    certificate = solution.certificate
    return {
        "objective": certificate.objective,
        "lower bound": certificate.lower_bound,
        "network": network.objective(X, y, lam),
        "neurons": network.n_neurons,
        "reached": sorted(reached),
    }


def _descended(
    X: np.ndarray, y: np.ndarray, lam: float, hidden: Hidden, start: np.ndarray, m: int
) -> float:
    """Where L-BFGS ends: the non-convex objective 1/(2n) ||f(X) - y||^2 + lam/2 (||W1||^2 +
    ||w2||^2) of a network with m hidden neurons."""
    n, d = X.shape

    def value(theta: np.ndarray) -> tuple[float, np.ndarray]:
        W1, w2 = theta[: d * m].reshape(d, m), theta[d * m :]
        H, slopes = hidden(W1)
        residual = H @ w2 - y
        objective = residual @ residual / (2 * n) + lam / 2 * theta @ theta
        back = residual[:, None] / n
        gradient = np.concatenate([(X.T @ (back * slopes * w2)).ravel(), H.T @ back[:, 0]])
        return float(objective), gradient + lam * theta

    scale = 1 / np.sqrt(m)
    options = {"maxiter": 3000, "maxfun": 6000, "ftol": 1e-15, "gtol": 1e-10}
    return float(minimize(value, scale * start, jac=True, method="L-BFGS-B", options=options).fun)


def _data(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng.standard_normal(n)


def _at_a_share(problem: cvxnn.CGReLU | cvxnn.CReLU) -> cvxnn.CGReLU | cvxnn.CReLU:
    return problem.with_lam(0.1 * cvxnn.lambda_max(problem))


def norms(settings: Row) -> Row:
    """Random weights for random patterns, decomposed with the smallest norm."""
    n, d = settings["n"], settings["d"]
    X, y = _data(n, d, seed=n + d)
    patterns = cvxnn.sample_patterns(X, settings["blocks"], random_state=0)
    U = np.random.default_rng(d).standard_normal((len(patterns), d, 1))
    return _ratios(X, y, patterns, U)


def narrow(settings: Row) -> Row:
    """Two rows that are nearly opposite: full row rank, and a cone of about this half angle. The
    weight is across it, where the smallest ratio is sqrt(1 + 1/angle^2)."""
    X = np.array([[1.0, settings["angle"]], [-1.0, settings["angle"]]])
    patterns = cvxnn.Patterns.from_mask(np.ones((2, 1), bool))
    U = np.array([1.0, 0.0]).reshape(1, 2, 1)
    exact = float(np.sqrt(1 + 1 / settings["angle"] ** 2))
    return {**_ratios(X, np.ones(2), patterns, U), "exact": short(exact)}


def _ratios(X: np.ndarray, y: np.ndarray, patterns: cvxnn.Patterns, U: np.ndarray) -> Row:
    problem = cvxnn.CGReLU(X, y, patterns, lam=0.1)
    point = cvxnn.solve(problem, "rfista", max_iter=0, warm_start=U, on_failure="ignore")
    found = {
        method: cvxnn.decompose(point, method).block_ratios
        for method in ("min-norm", "closed-form")
    }
    condition = np.linalg.cond(X)
    return {
        "condition": short(float(condition)),
        "ratios": {method: [short(r) for r in np.sort(values)] for method, values in found.items()},
    }


_RUNS: dict[str, Callable[[Row], Row]] = {
    "gated": gated,
    "relu": relu,
    "norms": norms,
    "narrow": narrow,
}

EXPERIMENT = Experiment(
    name="theory",
    title="Theorems: equal optimal values, and the norms of decompositions",
    floats=("Theorem 2.2", "Proposition 3.4"),
    pieces=pieces,
    run=run,
    present=page.present,
    draw=page.draw,
    verdicts=page.verdicts,
    reductions={
        Profile.SMOKE: "Two problems of each kind instead of ten, with three starts instead of 20.",
        Profile.DESK: "The paper proves these statements and has no experiments on them.",
    },
)
