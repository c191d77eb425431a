"""An option that would have no effect is refused, because whoever gives one expects an effect."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import cvxnn
from cvxnn.tables.model import Model
from cvxnn.tables.paths import fit_path, pose

rng = np.random.default_rng(0)
X = rng.standard_normal((30, 2))
y = np.abs(X[:, 0]) - X[:, 1]
PATTERNS = cvxnn.sample_patterns(X, 6, random_state=0)
TABLE = cvxnn.Table({"a": X[:, 0], "b": X[:, 1], "y": y}, "data.csv")
GATED = cvxnn.CGReLU(X, y, PATTERNS, lam=0.01)
NETWORK = cvxnn.solve(GATED).network()
FEW = {"n_patterns": 6}


REFUSED = {
    "fit_path, alpha": (lambda: fit_path(TABLE, "y", alpha=0.1), "alpha"),
    "fit_path, warm_start": (lambda: fit_path(TABLE, "y", warm_start=True), "warm_start"),
    "fit_path, random_state": (lambda: fit_path(TABLE, "y", random_state=1), "random_state"),
    "fit_path, huber_delta": (lambda: fit_path(TABLE, "y", huber_delta=1.35), "huber_delta"),
    "Model.fit, warm_start": (
        lambda: Model.fit(TABLE, "y", alpha=0.1, warm_start=True),
        "warm_start",
    ),
    "Model.fit, folds beside alpha": (lambda: Model.fit(TABLE, "y", alpha=0.1, cv=3), "cv"),
    "Model.fit, n_alphas beside alphas": (
        lambda: Model.fit(TABLE, "y", alphas=[0.1], n_alphas=15),
        "n_alphas",
    ),
    "pose, tol": (lambda: pose(TABLE, "y", alpha=0.1, tol=1e-3), "tol"),
    "pose, solver": (lambda: pose(TABLE, "y", alpha=0.1, solver="al"), "solver"),
    "CGReLU, huber_delta": (
        lambda: cvxnn.CGReLU(X, y, PATTERNS, 0.1, huber_delta=1.35),
        "huber_delta",
    ),
    "CReLU, huber_delta": (
        lambda: cvxnn.CReLU(X, np.sign(y), PATTERNS, 0.1, loss="logistic", huber_delta=2.0),
        "huber_delta",
    ),
    "network.objective, huber_delta": (
        lambda: NETWORK.objective(X, y, 0.1, huber_delta=2.0),
        "huber_delta",
    ),
    "improve, huber_delta": (
        lambda: cvxnn.improve(NETWORK, X, y, 0.1, huber_delta=2.0),
        "huber_delta",
    ),
    "path, n_lams beside lams": (lambda: cvxnn.path(GATED, 50, lams=[0.1]), "n_lams"),
    "path, eps beside lams": (lambda: cvxnn.path(GATED, eps=1e-2, lams=[0.1]), "eps"),
    "path, warm_start": (lambda: cvxnn.path(GATED, 2, warm_start=None), "warm_start"),
    "sample_patterns, bias beside active_share": (
        lambda: cvxnn.sample_patterns(X, 5, bias=True, active_share=0.5),
        "bias",
    ),
    "Patterns.from_network, strict": (
        lambda: cvxnn.Patterns.from_network(X, NETWORK, strict=True),
        "strict",
    ),
    "RFISTA, fixed steps": (lambda: cvxnn.RFISTA(step="fixed", shrink=0.5), "shrink"),
    "RFISTA, always growing": (lambda: cvxnn.RFISTA(step="forward", tightness=2.0), "tightness"),
    "AL, no window": (lambda: cvxnn.AL(window=None, window_tol=0.1), "window_tol"),
    "a column that is target and dropped": (
        lambda: Model.fit(TABLE, "y", drop=["y"]),
        "'y' is the target and cannot be given as drop",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_nothing_reads_is_refused(case):
    call, says = REFUSED[case]
    with pytest.raises((TypeError, ValueError), match=says):
        call()


def test_a_path_of_a_table_takes_solver_and_max_iter():
    few = {"n_alphas": 2, **FEW, "kind": "gated"}
    by_name = fit_path(TABLE, "y", solver="rfista", **few).path
    assert [point.solver.name for point in by_name] == ["rfista"] * 2
    with pytest.warns(cvxnn.ConvergenceWarning, match="iteration limit"):
        short = fit_path(TABLE, "y", max_iter=1, **few).path
    assert short[-1].n_iter <= 1


@pytest.mark.parametrize(
    ("estimator", "unread"),
    [
        (cvxnn.GatedReLURegressor(huber_delta=2.0, **FEW), ["huber_delta"]),
        (cvxnn.GatedReLURegressor(huber_delta=2.0, loss="huber", **FEW), []),
        (cvxnn.GatedReLURegressor(**FEW), []),
        (cvxnn.GatedReLURegressorCV(alphas=[0.1, 0.01], n_alphas=3, cv=2, **FEW), ["n_alphas"]),
        (cvxnn.GatedReLURegressorCV(alphas=[0.1, 0.01], cv=2, **FEW), []),
    ],
    ids=["squared", "huber", "default", "alphas", "alphas alone"],
)
def test_estimators_warn_about_what_they_do_not_read(estimator, unread):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(X, y)
    assert [str(warning.message).split()[0] for warning in caught] == unread
