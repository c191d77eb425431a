"""The driver: limits, statuses, callbacks, interrupts, history, messages, choice of solver."""

import warnings

import numpy as np
import pytest

import cvxnn
from conftest import make_problem
from cvxnn import RFISTA, Status
from cvxnn.solvers.base import Iterate
from extras import optional

torch = optional("torch")


@pytest.fixture(scope="module")
def problem():
    return make_problem(60, 5, p=40, share=0.02)


def test_the_front_door_of_the_readme():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 4))
    y = np.sin(X[:, 0])
    patterns = cvxnn.sample_patterns(X, 100, random_state=0)
    solution = cvxnn.solve(cvxnn.CGReLU(X, y, patterns, lam=1e-3), solver="rfista", tol=1e-6)
    assert solution.weights.shape == (len(patterns), 4, 1)
    assert solution.certificate.relative_gap <= 1e-6
    assert solution.network().objective(X, y, lam=1e-3) == pytest.approx(
        solution.certificate.objective
    )


def test_iteration_limit(problem):
    with pytest.warns(cvxnn.ConvergenceWarning, match=r"rfista: the iteration limit.*max_iter"):
        solution = cvxnn.solve(problem, "rfista", tol=1e-9, max_iter=5)
    assert solution.status is Status.MAX_ITER
    assert not solution.converged
    assert solution.n_iter == 5
    assert len(solution.history) == 6


def test_time_limit(problem):
    solution = cvxnn.solve(problem, "rfista", tol=0, max_seconds=0.05, on_failure="ignore")
    assert solution.status is Status.TIME_LIMIT


def test_failure_can_raise_and_carries_the_solution(problem):
    with pytest.raises(cvxnn.NotConvergedError, match="relative gap") as caught:
        cvxnn.solve(problem, "rfista", tol=1e-9, max_iter=3, on_failure="raise")
    assert caught.value.solution.status is Status.MAX_ITER


def test_failure_can_be_ignored(problem):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cvxnn.solve(problem, "rfista", tol=1e-9, max_iter=3, on_failure="ignore")


def test_callback_sees_every_iteration_and_can_stop(problem):
    seen = []

    def callback(progress):
        seen.append(progress)
        return progress.n_iter == 7

    solution = cvxnn.solve(problem, "rfista", tol=1e-9, callback=callback)
    assert solution.status is Status.STOPPED
    assert [record.n_iter for record in seen] == list(range(8))
    assert tuple(seen) == solution.history


def test_history_is_monotone_and_ends_at_the_certificate(problem):
    solution = cvxnn.solve(problem, "rfista", tol=1e-6)
    objective = [record.objective for record in solution.history]
    bound = [record.lower_bound for record in solution.history]
    assert np.all(np.diff(objective) <= 0)
    assert np.all(np.diff(bound) >= 0)
    assert np.all(np.diff([record.n_products for record in solution.history]) > 0)
    assert solution.certificate.objective == pytest.approx(objective[-1])
    assert solution.certificate.lower_bound >= bound[-1] * (1 - 1e-12)


def test_interrupt_returns_the_best_point_with_its_certificate(problem):
    def interrupt(progress):
        if progress.n_iter == 10:
            raise KeyboardInterrupt

    with pytest.warns(cvxnn.ConvergenceWarning, match="interrupted"):
        solution = cvxnn.solve(problem, "rfista", tol=1e-9, callback=interrupt)
    assert solution.status is Status.INTERRUPTED
    assert solution.n_iter == 10
    assert problem.objective(solution.weights) == pytest.approx(solution.certificate.objective)
    assert solution.certificate.objective <= solution.history[0].objective


def test_errors_in_a_callback_are_not_swallowed(problem):
    def broken(progress):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cvxnn.solve(problem, callback=broken)


def test_zero_iterations_certify_the_start(problem):
    solution = cvxnn.solve(problem, "rfista", max_iter=0, tol=1e-9, on_failure="ignore")
    assert solution.n_iter == 0
    assert solution.certificate.objective == pytest.approx(solution.certificate.zero_objective)


def test_auto_takes_newton_for_the_neuron_penalty_on_numpy_arrays():
    gated = make_problem()
    assert cvxnn.solve(gated).solver.name == "newton"
    assert cvxnn.solve(cvxnn.CReLU.from_gated(gated)).solver.name == "newton"
    X, Y = torch.asarray(gated.operator.rows()), torch.asarray(gated.loss.Y)
    on_tensors = cvxnn.CGReLU(X, Y, gated.patterns, lam=gated.lam)
    assert cvxnn.solve(on_tensors).solver.name == "rfista"
    for penalty in ("feature", "l1"):
        assert cvxnn.solve(make_problem(penalty=penalty)).solver.name == "rfista"


def test_auto_takes_least_squares_solvers_where_they_apply(monkeypatch):
    assert cvxnn.solve(make_problem(penalty="l2")).solver.name == "direct"
    assert cvxnn.solve(make_problem().with_lam(0)).solver.name == "direct"
    relu = cvxnn.CReLU.from_gated(make_problem().with_lam(0))
    assert cvxnn.solve(relu).solver.name == "decomposition"
    monkeypatch.setattr("cvxnn.least_squares.MAX_KERNEL_ROWS", 10)
    large = make_problem(penalty="l2")
    assert cvxnn.solve(large).solver.name == "lsmr"
    with pytest.raises(ValueError, match=r"takes n <= .*lsmr"):
        cvxnn.solve(large, "direct")


OTHER_LOSSES = {
    "loss 'huber'": {"loss": "huber"},
    "sample weights": {"sample_weight": np.arange(1, 31)},
    "an output bias": {"output_bias": True},
    "loss 'huber', sample weights, an output bias": {
        "loss": "huber",
        "sample_weight": np.arange(1, 31),
        "output_bias": True,
    },
}


@pytest.mark.parametrize(("words", "settings"), OTHER_LOSSES.items(), ids=OTHER_LOSSES)
def test_least_squares_solvers_are_for_least_squares(words, settings):
    """One loss, without weights and output biases; "auto" takes R-FISTA for the others."""
    problem = make_problem(penalty="l2", **settings)
    for solver in ("direct", "lsmr"):
        message = f"'{solver}' does not handle C-GReLU with {words}, penalty 'l2'.*: rfista, cvxpy"
        with pytest.raises(ValueError, match=message):
            cvxnn.solve(problem, solver)
    assert cvxnn.solve(problem).solver.name == "rfista"
    assert cvxnn.solve(make_problem(**settings)).solver.name == "newton"
    equal = make_problem(penalty="l2", sample_weight=np.full(30, 3.0))
    assert cvxnn.solve(equal).solver.name == "direct"


def test_a_solution_for_another_loss_is_a_start():
    """Its weights are used; the rest of its state belongs to another problem."""
    X, labels = np.random.default_rng(0).standard_normal((40, 3)), np.arange(40) % 3
    patterns = cvxnn.sample_patterns(X, 8, random_state=0)
    solutions = {}
    for loss in ("squared", "softmax", "huber"):
        problem = cvxnn.CGReLU(X, np.eye(3)[labels], patterns, lam=1e-3, loss=loss)
        solutions[loss] = cvxnn.solve(problem, tol=1e-5)
    for one in solutions.values():
        for other in solutions.values():
            warm = cvxnn.solve(one.problem, tol=1e-5, warm_start=other)
            assert warm.converged
            value = one.certificate.objective
            assert warm.certificate.objective == pytest.approx(value, rel=2e-5)


def test_a_solver_that_cannot_says_who_can(problem):
    with pytest.raises(
        ValueError, match=r"'direct' does not handle C-GReLU with penalty 'neuron'.*rfista"
    ):
        cvxnn.solve(problem, "direct")


def test_converged_needs_the_fresh_certificate(problem):
    """A solver whose products are wrong is never reported as 'converged'."""

    class Liar:
        name = "liar"
        default_max_iter = RFISTA.default_max_iter

        def iterates(self, problem, start, stop, state, tol):
            honest = next(RFISTA().iterates(problem, start))
            yield Iterate(start, problem.loss.Y, honest.Theta, honest.correlation)

    solution = cvxnn.solve(problem, Liar(), on_failure="ignore")
    assert not solution.converged
    assert solution.certificate.objective == pytest.approx(solution.certificate.zero_objective)


def test_single_precision_beyond_its_reach_stalls_honestly(monkeypatch):
    monkeypatch.setattr("cvxnn.solvers.run.STALL_ITERATIONS", 300)
    single = make_problem(60, 5, p=40, share=0.02, dtype=np.float32)
    solution = cvxnn.solve(single, "rfista", tol=1e-12, max_iter=20_000, on_failure="ignore")
    assert solution.status is Status.STALLED
    assert "float32" in solution.message
    assert solution.certificate.relative_gap < 1e-3


def test_runs_are_reproducible_to_the_bit(problem):
    first = cvxnn.solve(problem, "rfista", tol=1e-6)
    second = cvxnn.solve(problem, "rfista", tol=1e-6)
    assert np.array_equal(first.weights, second.weights)
    assert first.certificate == second.certificate


def test_statuses_are_help_texts():
    assert all(len(status.help) > 15 for status in Status)


def test_repr_says_what_is_proven(problem):
    text = repr(cvxnn.solve(problem))
    assert "converged" in text
    assert ">= optimal value >=" in text
    assert "active neurons" in text


def test_settings_by_name_and_by_object_are_the_same(problem):
    by_name = cvxnn.solve(problem, "rfista", restart=False, tol=1e-5)
    by_object = cvxnn.solve(problem, RFISTA(restart=False), tol=1e-5)
    assert by_name.n_iter == by_object.n_iter
    assert by_name.solver == by_object.solver
    with pytest.raises(TypeError, match="given by name"):
        cvxnn.solve(problem, RFISTA(), restart=False)


def test_with_lam_shares_the_operator(problem):
    other = problem.with_lam(0.5)
    assert other.operator is problem.operator
    assert other.lam == 0.5
    assert other.penalty.lam == 0.5
    assert problem.lam != 0.5
