"""Claims about many rows: never below the objective in exact integers, and hardly above it."""

import numpy as np
import pytest

import cvxnn
from cvxnn.tables import model as models
from cvxnn.tables.objectives import objective_above
from cvxnn.verification.programs import network_value


def table_of(trial):
    """Columns of very different sizes and offsets, and targets of three kinds."""
    rng = np.random.default_rng(trial)
    n, d = int(rng.integers(20, 120)), int(rng.integers(1, 5))
    X = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-6, 7, d)
    X += 10.0 ** rng.integers(-3, 7, d) * rng.integers(0, 2, d)
    z = np.maximum(X[:, 0] - X[:, 0].mean(), 0) / X[:, 0].std()
    noisy = z + 0.4 * rng.standard_normal(n)
    targets = {
        0: z * 10.0 ** rng.integers(-8, 8) + rng.integers(0, 2) * 1e6,
        1: np.where(noisy > 0.3, "a", "b").astype(object),
        2: np.array(["p", "q", "r"], dtype=object)[np.digitize(noisy, [0.1, 0.6])],
    }
    columns = {f"x{k}": X[:, k] for k in range(d)} | {"y": targets[trial % 3]}
    settings = {"alpha": 10.0 ** rng.uniform(-4, -1), "n_patterns": 15, "holdout": 0, "tol": 1e-3}
    settings["task"] = "regression" if trial % 3 == 0 else "classification"
    settings["kind"] = ("relu", "gated")[trial // 3 % 2]
    settings["use"] = [f"x{k}" for k in range(d)]
    if trial % 3 == 0 and trial % 2:
        settings["loss"] = "huber"
    if trial % 5 == 0:
        settings["n_components"] = 1
    return cvxnn.Table(columns, "t"), settings


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("trial", range(18))
def test_the_bound_is_above_the_exact_value_and_close_to_it(trial):
    table, settings = table_of(trial)
    model = cvxnn.Model.fit(table, "y", **settings)
    posed = model._posed(table)
    exact = network_value(model.network, posed.program, posed.scales).objective
    found = objective_above(model.network, posed.program, posed.scales)
    assert exact <= found <= exact * (1 + 1e-11) + 1e-300


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("trial", [0, 1, 2, 3, 4, 5])
def test_claims_by_it_are_confirmed_in_exact_integers(trial, monkeypatch):
    table, settings = table_of(trial)
    exactly = cvxnn.Model.fit(table, "y", **settings).certificate.objective
    monkeypatch.setattr(models, "MOST_EXACT", 0)
    model = cvxnn.Model.fit(table, "y", **settings)
    assert model.verify(table).agrees
    assert exactly <= model.certificate.objective <= exactly * (1 + 1e-11)


@pytest.mark.filterwarnings("ignore")
def test_what_floating_point_has_no_room_for_is_computed_exactly(monkeypatch):
    table, settings = table_of(1)
    exactly = cvxnn.Model.fit(table, "y", **settings).certificate.objective
    monkeypatch.setattr(models, "MOST_EXACT", 0)
    monkeypatch.setattr(models, "objective_above", lambda *arguments: np.inf)
    assert cvxnn.Model.fit(table, "y", **settings).certificate.objective == exactly
