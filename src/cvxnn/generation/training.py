"""`cvxnn.train`: a ReLU network over the patterns that pay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from cvxnn.arrays import Array
from cvxnn.bounds.base import PriceMethod
from cvxnn.generation.method import generate
from cvxnn.generation.rounds import Round, Training
from cvxnn.losses import LossChoice
from cvxnn.patterns import Patterns
from cvxnn.problems import CReLU
from cvxnn.solvers.base import Solver
from cvxnn.validation import Seed, check_features, check_flag, check_number


def train(
    X: ArrayLike,
    y: ArrayLike,
    lam: float,
    *,
    loss: str | LossChoice = "squared",
    bias: bool = True,
    output_bias: bool = False,
    normalize: bool = False,
    sample_weight: ArrayLike | None = None,
    huber_delta: float | None = None,
    prove: str | PriceMethod | None = "auto",
    tol: float = 1e-4,
    max_seconds: float | None = None,
    max_rounds: int = 300,
    callback: Callable[[Round], object] | None = None,
    random_state: Seed = 0,
    solver: str | Solver = "auto",
    patterns: Patterns | None = None,
    on_failure: str = "warn",
) -> Training:
    """Train a two-layer ReLU network over the activation patterns that pay.

    The objective is the mean loss plus lam/2 sum_j (||W1_j||^2 + ||W2_j||_1^2), as that of `CReLU`.
    Patterns are generated instead of sampled: directions whose price exceeds lam at the dual point
    of the last program come in, until a search finds no more. The search is a heuristic, so the
    certificate speaks about the generated patterns alone. Whether other patterns are better is a
    matter of a proof, which there is where rows span few dimensions, or where lam is large.

    Parameters
    ----------
    X : (n, d) data, dense or sparse, in memory. They are taken as they are; columns of very
        different sizes should be scaled first, as estimators do by themselves, or by `normalize`.
    y : (n,) or (n, C) targets.
    lam : penalty strength > 0.
    loss, bias, output_bias, normalize, sample_weight, huber_delta : as in `CReLU`; here neurons
        have an intercept unless `bias` is False.
    prove : how to bound the price of all patterns: "auto", whatever suits the data; "none", or the
        name of a method, or an object that satisfies `cvxnn.bounds.base.PriceMethod`. What a proof
        finds that pays goes back to generation.
    tol : relative gap of the last program; and no search found a price above (1 + tol) lam.
    max_seconds : for all of it. Where a proof is possible, it gets a part of that; without a limit
        it gets a minute.
    max_rounds : limit of convex programs.
    callback : called with a `Round` after each one, and about once a second while a program is
        solved or a proof is searched for; a true answer ends the run.
    random_state : seed of the search.
    solver : of the programs, as in `solve`.
    patterns : where generation starts. It ends at or below the optimum of a program with these.
    on_failure : "warn", "raise" or "ignore" if a limit ends the run.

    An interrupt (Ctrl-C) ends the run and returns the best network with its certificate.
    """
    data, bias = check_features(X), check_flag(bias, "bias")
    check_number(lam, "lam", minimum=0, strict=True)
    problem = CReLU(
        data,
        y,
        first_patterns(data, bias) if patterns is None else patterns,
        lam,
        loss=loss,
        bias=bias,
        output_bias=output_bias,
        normalize=normalize,
        sample_weight=sample_weight,
        huber_delta=huber_delta,
        singular="keep",  # the cones that would replace singular ones may be larger, or others
    )
    return generate(
        problem,
        prove=prove,
        tol=tol,
        max_seconds=max_seconds,
        max_rounds=max_rounds,
        callback=callback,
        random_state=random_state,
        solver=solver,
        on_failure=on_failure,
    )


def first_patterns(X: Array, bias: bool) -> Patterns:
    """Patterns to begin with: all rows, or without a bias those on both sides of a gate."""
    d = X.shape[1]
    if bias:
        return Patterns.from_gates(X, np.zeros((d, 1)), np.ones(1))
    gate = np.random.default_rng(0).standard_normal((d, 1))
    return Patterns.from_gates(X, np.concatenate([gate, -gate], axis=1))
