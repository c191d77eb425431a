"""Timed runs of adelie, in its own environment (see protocol).

C-GReLU is a group lasso on its matrix `convex_relu`; for C-ReLU every group has a linear
constraint. adelie's loss is 1/(2n) ||y - eta||^2, its penalty lam sum_g w_g ||b_g||.
"""

from __future__ import annotations

import logging
import math
import time
from importlib.metadata import version
from typing import Any

import adelie as ad
import numpy as np

from benchmarks.peers.group_lasso import solve_classes
from benchmarks.peers.protocol import serve_contained

# adelie is made for paths and is quicker along one; so many steps a decade, from lambda_max down.
STEPS_A_DECADE = 4
MAX_ITERS = 10**9  # time is the limit
# What its projections need to be feasible to about 1e-5.
TIGHT_CONSTRAINTS = {"tol": 1e-12, "nnls_tol": 1e-10, "pinball_tol": 1e-10, "slack": 1e-6}


def run(
    data: str,
    weights: str,
    kind: str,
    lam: float,
    tol: float,
    max_seconds: float,
    tight: bool = False,
) -> dict[str, Any]:
    """Solve at `lam`, or along a path if it is a list: then U has a first axis for its points."""
    instance = np.load(data)
    X, Y, gates = instance["X"], instance["Y"], instance["gates"]

    start = time.process_time()
    X = np.asfortranarray(X)
    lams = np.atleast_1d(np.asarray(lam, dtype=float))

    def solve(mask: np.ndarray, y: np.ndarray, scale: float) -> tuple[np.ndarray]:
        constraints = (
            _cones(X, mask, TIGHT_CONSTRAINTS if tight else {}) if kind == "relu" else None
        )
        return (_path(X, mask, y, scale * lams, kind, constraints, tol),)

    (U,) = solve_classes(X, Y, gates, 1.0, solve)
    seconds = time.process_time() - start
    U = U if isinstance(lam, list) else U[0]
    parts = {"U": U} if kind == "gated" else dict(zip("VW", np.split(U, 2), strict=True))
    np.savez(weights, **parts)
    return {"seconds": seconds, "versions": {"adelie": version("adelie")}}


def _path(
    X: np.ndarray,
    mask: np.ndarray,
    y: np.ndarray,
    lams: np.ndarray,
    kind: str,
    constraints: list | None,
    tol: float,
) -> np.ndarray:
    """Weights (path, groups, d) at each of `lams`."""
    d, blocks = X.shape[1], mask.shape[1] * (1 if kind == "gated" else 2)
    top = np.linalg.norm(mask.T @ (X * y[:, None]), axis=1).max() / len(y)
    steps = max(math.ceil(STEPS_A_DECADE * math.log10(top / lams[0])), 1) if lams[0] < top else 1
    warm = np.geomspace(top, lams[0], steps + 1)[1:-1]
    whole = np.concatenate([warm, lams])
    state = ad.grpnet(
        ad.matrix.convex_relu(X, mask, gated=kind == "gated"),
        ad.glm.gaussian(y, dtype=np.float64),
        groups=np.arange(blocks) * d,
        penalty=np.ones(blocks),
        constraints=constraints,
        lmda_path=whole,
        tol=tol,
        max_iters=MAX_ITERS,
        intercept=False,
        early_exit=False,
        progress_bar=False,
    )
    if len(state.lmdas) < len(whole):
        raise RuntimeError(f"solved {len(state.lmdas)} of {len(whole)} lambdas")
    return state.betas[len(warm) :].toarray().reshape(len(lams), blocks, d)


def _cones(X: np.ndarray, mask: np.ndarray, configs: dict[str, float]) -> list:
    """(2D_i - I) X v >= 0 for the blocks of V and then those of W."""
    zero, infinite = np.zeros(len(X)), np.full(len(X), np.inf)
    rows = [np.where(column, 1.0, -1.0)[:, None] * X for column in mask.T]
    return [
        ad.constraint.linear(np.ascontiguousarray(A), zero, infinite, configs=configs)
        for A in rows * 2
    ]


if __name__ == "__main__":
    logging.disable()  # what it cannot solve is in the answer
    serve_contained(run)
