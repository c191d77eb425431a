"""Time limits on a clock of our own: it advances with the work that is declared, at the rates of a
machine on which the small problems here take as long as large ones do elsewhere."""

import math
import threading
import time

import numpy as np
import pytest
from scipy.sparse import csr_array

import cvxnn
from cvxnn import budget, panels, threads
from cvxnn.budget import Budget, OutOfTimeError, spend
from cvxnn.kernels import native, projections
from cvxnn.solvers.results import Status

SLOWER = 1e-6  # than the machine that predictions are for


class Clock:
    """Seconds of declared work, and the most that was done between two looks."""

    def __init__(self):
        self.now, self.looked, self.longest, self.looks = 0.0, 0.0, 0.0, 0

    def __call__(self):
        return self.now

    def work(self, seconds):
        self.now += seconds

    def look(self, telling=True):
        self.longest = max(self.longest, self.now - self.looked)
        self.looked, self.looks = self.now, self.looks + 1


@pytest.fixture
def slow(monkeypatch):
    """A clock that work advances."""
    clock, pieces, look = Clock(), budget.pieces, budget.look
    monkeypatch.setattr(budget, "clock", clock)
    monkeypatch.setattr(budget, "RATE", SLOWER * budget.RATE)
    monkeypatch.setattr(budget, "SPARSE_RATE", SLOWER * budget.SPARSE_RATE)
    for name in ("PRODUCT_RATE", "HINGE_RATE", "BIT_RATE"):
        monkeypatch.setattr(native, name, SLOWER * getattr(native, name))
    monkeypatch.setattr(projections, "PRODUCT_RATE", native.PRODUCT_RATE)

    def observed_look(telling=True):
        clock.look()
        look(telling)

    def observed_pieces(n, size):
        for piece in pieces(n, size):
            yield piece
            clock.work(budget.PIECE)

    def observed_share(run, work, seconds, stop=None, telling=True):
        """Runs in this thread; kernels that can be stopped are watched while they run."""
        for piece in work:
            budget.look(telling)
            run(piece)
            parts = 1 if stop is None else math.ceil(seconds / len(work) / threads.WAIT)
            for _ in range(parts):
                clock.work(seconds / len(work) / parts)
                budget.look(telling)

    monkeypatch.setattr(budget, "look", observed_look)
    monkeypatch.setattr(budget, "pieces", observed_pieces)
    monkeypatch.setattr(threads, "share", observed_share)
    return clock


def make(
    kind="CReLU", loss="squared", lam=1e-4, sparse=False, dtype=np.float64, n=60, C=1, **settings
):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 5)).astype(dtype)
    Y = rng.standard_normal((n, C))
    if loss == "logistic":
        Y = np.where(Y > 0, 1.0, -1.0)
    if loss == "softmax":
        Y = np.eye(3)[rng.integers(0, 3, n)]
    X = csr_array(X * (np.abs(X) > 0.5)) if sparse else X
    patterns = cvxnn.sample_patterns(X, 20, random_state=0)
    return getattr(cvxnn, kind)(X, Y, patterns, lam, loss=loss, **settings)


CASES = {
    "gated": {"kind": "CGReLU"},
    "gated, softmax": {"kind": "CGReLU", "loss": "softmax"},
    "gated, sparse": {"kind": "CGReLU", "sparse": True},
    "gated, float32": {"kind": "CGReLU", "dtype": np.float32},
    "gated, logistic by R-FISTA": {"kind": "CGReLU", "loss": "logistic", "solver": "rfista"},
    "gated without penalty": {"kind": "CGReLU", "lam": 0.0},
    "relu": {},
    "relu, huber, two outputs": {"loss": "huber", "C": 2},
    "relu, softmax": {"loss": "softmax"},
    "relu, sparse": {"sparse": True},
    "relu by AL": {"solver": "al"},
    "relu by decomposition": {"solver": "decomposition"},
    "relu without penalty": {"lam": 0.0},
}


@pytest.mark.parametrize("seconds", [1.0, 30.0])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("compiled", [True, False])
def test_limits_are_kept_and_no_piece_of_work_is_long(slow, monkeypatch, case, seconds, compiled):
    if not compiled:
        monkeypatch.setattr(native, "library", lambda: None)
    settings = dict(CASES[case])
    solver = settings.pop("solver", "auto")
    problem = make(**settings)
    slow.now = slow.looked = slow.longest = 0.0
    solution = cvxnn.solve(
        problem, solver, tol=1e-9, max_seconds=seconds, max_iter=2000, on_failure="ignore"
    )
    allowed = max(0.5, 0.05 * seconds)
    assert slow.longest <= allowed
    product = 4 * 60 * 20 * 5 / budget.RATE * problem.loss.Y.shape[1]  # the objective, at least
    assert slow.now <= seconds + allowed + product
    assert slow.looks > 5
    certificate = solution.certificate
    assert 0 <= certificate.lower_bound <= certificate.objective <= certificate.zero_objective
    if solution.status is Status.TIME_LIMIT:
        assert slow.now >= 0.4 * seconds  # more than half is never kept back
    else:
        assert solution.status in (Status.CONVERGED, Status.STALLED)


def test_a_short_limit_takes_another_method_and_a_long_one_does_not(slow):
    problem = make("CGReLU", lam=0.0)
    taken = {
        seconds: cvxnn.solve(problem, max_seconds=seconds, on_failure="ignore").solver.name
        for seconds in (1.0, 1e6)
    }
    assert taken == {1.0: "lsmr", 1e6: "direct"}
    refused = cvxnn.solve(problem, "direct", max_seconds=1.0, on_failure="ignore")
    assert refused.status is Status.TIME_LIMIT
    assert "factoring 60 x 60" in refused.message


@pytest.mark.parametrize(
    "settings", [{}, {"loss": "logistic", "output_bias": True}], ids=["squared", "logistic, bias"]
)
def test_a_run_that_has_no_iterate_in_time_says_so_with_the_zero_model(settings):
    solution = cvxnn.solve(make(**settings), max_seconds=1e-9, on_failure="ignore")
    assert solution.status is Status.TIME_LIMIT
    assert solution.n_active == 0
    assert solution.certificate.objective == solution.certificate.zero_objective
    assert solution.certificate.lower_bound == 0


def test_somebody_who_listens_hears_of_a_run_that_prepares(slow):
    heard = []
    cvxnn.solve(make(), max_seconds=600.0, callback=heard.append, on_failure="ignore")
    assert heard[0].note
    assert heard[0].seconds <= 1.0
    assert heard[0].relative_gap == 1.0
    told = [progress.seconds for progress in heard]
    assert np.diff([0.0, *told]).max() <= 1.0 + 0.5
    assert any(not progress.note for progress in heard)


def test_a_sign_of_life_can_be_answered_by_a_stop_and_is_no_iteration(slow):
    solution = cvxnn.solve(make(), callback=lambda p: bool(p.note))
    assert solution.status is Status.STOPPED
    assert not any(progress.note for progress in solution.history)


def test_a_path_ends_with_its_time(slow):
    problem = make()
    slow.now = 0.0
    found = cvxnn.path(problem, 20, 1e-3, max_seconds=20.0, on_failure="ignore")
    assert not found.complete
    assert slow.now <= 20.0 + 1.0
    assert "time limit" in found.message


def test_time_is_kept_back_for_the_certificate(slow):
    problem = make("CGReLU")
    slow.now = 0.0
    solution = cvxnn.solve(problem, "rfista", tol=1e-9, max_seconds=60.0, on_failure="ignore")
    assert solution.status is Status.TIME_LIMIT
    assert solution.certificate.lower_bound > 0  # there was time for a bound
    assert slow.now <= 60.0


def test_a_budget_within_a_budget_ends_no_later_and_counts_for_both():
    with spend(Budget(5.0)) as outer, spend(Budget(100.0)) as inner:
        assert inner.seconds <= 5.0
        problem = make("CGReLU")
        problem.operator.forward(problem.zero_weights())
    assert outer.passes.forward == inner.passes.forward == 1


def test_runs_of_several_threads_have_budgets_of_their_own():
    problem = make("CGReLU", dtype=np.float32)
    alone = cvxnn.solve(problem, "rfista", on_failure="ignore", max_iter=150)
    found = []

    def run():
        found.append(cvxnn.solve(problem, "rfista", on_failure="ignore", max_iter=150))

    workers = [threading.Thread(target=run) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [s.n_products for s in found] == [alone.n_products] * 4
    for solution in found:  # of one problem object, in float32 too
        np.testing.assert_array_equal(solution.weights, alone.weights)


def test_a_look_without_a_budget_is_for_nothing_and_one_beyond_it_ends_the_run():
    budget.look()
    with spend(Budget(1e-9)):
        time.sleep(1e-3)
        with pytest.raises(OutOfTimeError):
            budget.look()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_panels_compute_what_one_call_does_whatever_the_number_of_threads(monkeypatch, dtype):
    rng = np.random.default_rng(0)
    V, B = (rng.standard_normal(shape).astype(dtype) for shape in ((300, 40), (40, 7)))
    precision = 1e-4 if dtype == np.float32 else 1e-12
    monkeypatch.setattr(budget, "RATE", 1e6)
    monkeypatch.setattr(panels, "PANEL", 64)
    monkeypatch.setattr(panels, "TILE", 32)
    found = []
    for number in ("1", "3"):
        monkeypatch.setenv("OMP_NUM_THREADS", number)
        product, K = panels.multiply(V, B), panels.gram(V)
        np.testing.assert_allclose(product, V @ B, rtol=precision, atol=precision)
        np.testing.assert_allclose(K, V @ V.T, rtol=precision, atol=100 * precision)
        np.testing.assert_array_equal(K, K.T)
        K.flat[:: len(K) + 1] += 50
        L = panels.cholesky(K.copy())
        np.testing.assert_allclose(np.tril(L), np.linalg.cholesky(K), atol=100 * precision)
        solved = panels.cholesky_solve(L, V)
        np.testing.assert_allclose(K @ solved, V, atol=100 * precision)
        found.append((product, K, np.tril(L), solved))
    for one, three in zip(*found, strict=True):
        np.testing.assert_array_equal(one, three)


@pytest.mark.parametrize("n", [3, 200])
def test_what_is_not_positive_definite_has_no_factor(monkeypatch, n):
    monkeypatch.setattr(budget, "RATE", 1e6)
    monkeypatch.setattr(panels, "PANEL", 64)
    K = np.eye(n)
    K[-1, -1] = -1.0
    assert panels.cholesky(K) is None
