"""The stochastic start: batches of rows, the prox in a metric, and what a run keeps of it."""

import threading
import time

import numpy as np
import pytest

import cvxnn
from cvxnn import Status, Stochastic, WorkingSets
from cvxnn.kernels import native
from cvxnn.operators import ExpandedMatrix
from cvxnn.solvers import choice
from cvxnn.solvers.choice import choose_gated
from extras import required
from test_working_sets import TIGHT, make

QUICK = Stochastic(batch=32)


def many_rows(n=4000, **settings):
    return make(n=n, d=6, p=20, C=4, share=0.01, **settings)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("p", [3, 32, 71])
def test_batches_are_rows_of_the_operator(compiled, p, monkeypatch):
    if not compiled:
        monkeypatch.setattr(native, "library", lambda: None)
    elif native.library() is None:
        pytest.skip("no compiled kernels")
    rng = np.random.default_rng(0)
    X, mask = rng.standard_normal((101, 9)), rng.random((101, p)) < 0.5
    operator, rows = ExpandedMatrix(X, mask), rng.permutation(101)[:37]
    batch, some = operator.batch(rows), ExpandedMatrix(X[rows], mask[rows])
    U, R = rng.standard_normal((p, 9, 4)), rng.standard_normal((37, 4))
    found = batch.forward(np.ascontiguousarray(U.transpose(2, 0, 1), dtype=np.float32))
    np.testing.assert_allclose(found, some.forward(U), atol=1e-4)
    assert found.dtype == np.float32
    correlation = batch.adjoint(R.astype(np.float32))
    np.testing.assert_allclose(correlation.transpose(1, 2, 0), some.adjoint(R), atol=1e-4)
    assert correlation.shape == (4, p, 9)


def test_losses_of_batches_add_up_to_the_loss():
    problem = make(n=60, loss="softmax")
    loss, Z = problem.loss, np.random.default_rng(0).standard_normal((60, 3))
    rows = np.split(np.random.default_rng(1).permutation(60), 4)
    parts = [loss.on_rows(part).value(Z[part]) for part in rows]
    assert np.mean(parts) == pytest.approx(loss.value(Z), rel=1e-12)
    part = loss.on_rows(rows[0]).gradient(Z[rows[0]])
    np.testing.assert_allclose(part, 4 * loss.gradient(Z)[rows[0]], rtol=1e-12)


@pytest.mark.parametrize("loss", ["squared", "logistic", "softmax"])
@pytest.mark.parametrize(
    "settings", [{}, {"output_bias": True}, {"bias": True, "normalize": True}], ids=str
)
def test_agrees_with_the_oracle(loss, settings):
    required("cvxpy")
    problem = make(loss=loss, n=40, p=8, **settings)
    oracle = cvxnn.solve(problem, "cvxpy", tol=1e-5, settings=TIGHT, on_failure="ignore")
    solution = cvxnn.solve(problem, QUICK, tol=1e-8)
    assert solution.converged
    assert solution.certificate.objective == pytest.approx(oracle.certificate.objective, rel=1e-6)
    assert cvxnn.verify(solution).agrees


@pytest.mark.parametrize("settings", [{}, {"output_bias": True}, {"bias": True}], ids=str)
def test_the_epochs_come_close_to_the_optimum(settings):
    """Whatever the units of the columns and the number of patterns are."""
    problem = many_rows(**settings)
    optimum = cvxnn.solve(problem, "working-sets", tol=1e-3).certificate.lower_bound
    zero = problem.loss.zero_value
    for unit in (1.0, 1e-3, 1e4):
        X = problem.operator.rows() * unit
        X = X[:, :6] if problem.bias else X
        same = cvxnn.CGReLU(
            X,
            problem.loss.Y,
            cvxnn.Patterns.from_mask(problem.patterns.mask),
            problem.lam * unit,
            loss="softmax",
            **settings,
        )
        if problem.bias and unit != 1:
            continue  # the column of ones has a unit of its own
        epochs = cvxnn.solve(same, Stochastic(batch=128), max_iter=5, on_failure="ignore")
        assert epochs.n_iter == 5
        assert epochs.certificate.objective - optimum <= 0.04 * (zero - optimum)


def test_equal_seeds_give_equal_runs():
    problem = many_rows(n=500)
    first, again, other = (
        cvxnn.solve(problem, Stochastic(seed=seed), max_iter=6, on_failure="ignore").weights
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("loss", ["softmax", "squared"])
def test_sample_weights_are_repeated_rows(loss):
    problem = make(loss=loss, n=200)
    X, Y = problem.operator.rows(), problem.loss.Y
    weight = np.random.default_rng(0).integers(1, 4, 200)
    weighted = cvxnn.CGReLU(
        X, Y, problem.patterns, problem.lam, loss=loss, sample_weight=weight.astype(float)
    )
    repeated = cvxnn.CGReLU(
        np.repeat(X, weight, axis=0),
        np.repeat(Y, weight, axis=0),
        cvxnn.Patterns.from_mask(np.repeat(problem.patterns.mask, weight, axis=0)),
        problem.lam,
        loss=loss,
    )
    one, other = (
        cvxnn.solve(each, Stochastic(batch=32, epochs=40), max_iter=40, on_failure="ignore")
        for each in (weighted, repeated)
    )
    assert one.certificate.objective == pytest.approx(other.certificate.objective, rel=0.02)


def test_a_warm_start_is_left_to_the_working_sets():
    problem = many_rows(n=500)
    before = cvxnn.solve(problem, "working-sets", tol=1e-6)
    ours = cvxnn.solve(problem, QUICK, warm_start=before.weights, tol=1e-6)
    assert ours.converged
    assert ours.n_iter == 0
    again = cvxnn.solve(problem.with_lam(0.9 * problem.lam), QUICK, warm_start=ours, tol=1e-6)
    assert again.converged


def test_a_stopped_run_returns_what_the_epochs_have_found():
    problem = many_rows(n=2000)

    def solved(**limits):
        solver = Stochastic(batch=8, epochs=1000)
        return cvxnn.solve(problem, solver, on_failure="ignore", **limits)

    stopped = [
        (solved(max_iter=1), Status.MAX_ITER),
        (solved(max_seconds=1.0), Status.TIME_LIMIT),
        (solved(callback=lambda progress: "epoch" in progress.note), Status.STOPPED),
    ]
    for solution, status in stopped:
        assert solution.status is status
        assert solution.certificate.objective < 0.9 * solution.certificate.zero_objective
        assert solution.certificate.proven


def test_an_interrupt_returns_what_the_epochs_have_found():
    import _thread

    def interrupt():
        time.sleep(1.0)
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    solver = Stochastic(batch=8, epochs=1000)
    solution = cvxnn.solve(many_rows(n=2000), solver, on_failure="ignore")
    thread.join()
    assert solution.status is Status.INTERRUPTED
    assert solution.certificate.objective < 0.9 * solution.certificate.zero_objective


def test_in_fewer_columns():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 300))
    Y = np.eye(3)[np.argmax(X[:, :3], axis=1)]
    patterns = cvxnn.sample_patterns(X, 10, random_state=0)
    problem = cvxnn.CGReLU(X, Y, patterns, 1.0, loss="softmax")
    problem = problem.with_lam(0.05 * cvxnn.lambda_max(problem))
    ours, theirs = (
        cvxnn.solve(problem, solver, tol=1e-6) for solver in (Stochastic(), WorkingSets())
    )
    assert ours.converged
    assert ours.certificate.objective == pytest.approx(theirs.certificate.objective, rel=2e-6)
    few = cvxnn.solve(problem, Stochastic(), max_iter=3, on_failure="ignore")
    assert few.certificate.objective < few.certificate.zero_objective


def test_what_is_refused():
    for settings, error in [
        ({"epochs": -1}, ValueError),
        ({"batch": 0}, ValueError),
        ({"step": 0.0}, ValueError),
        ({"seed": -1}, ValueError),
        ({"then": "newton"}, TypeError),
    ]:
        with pytest.raises(error):
            Stochastic(**settings)
    with pytest.raises(ValueError, match="'stochastic' does not handle C-ReLU"):
        cvxnn.solve(make("C-ReLU"), "stochastic")


def test_auto_takes_it_for_many_rows_of_coupled_classes(monkeypatch):
    problem = make(n=60, share=0.005)
    assert choose_gated(problem).name == "working-sets"
    monkeypatch.setattr(choice, "MANY", 180)
    assert choose_gated(problem) == Stochastic()
    assert choose_gated(problem.with_lam(3 * problem.lam)).name == "working-sets"
    assert choose_gated(make(n=60, loss="logistic", share=0.005)).name == "newton"
    solution = cvxnn.solve(problem, tol=1e-6)
    assert solution.converged
    assert solution.solver.name == "stochastic"
    again = cvxnn.solve(problem.with_lam(0.9 * problem.lam), warm_start=solution, tol=1e-6)
    assert again.converged
