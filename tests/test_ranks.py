"""Rows in several processes: real ones, which speak over gloo. Whatever they find is what one
process finds with all the rows, and all of them find the same, to the last bit."""

import math
import os
import signal
import threading
import time
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import cvxnn
from cvxnn import rounding
from cvxnn.losses import LossChoice, SquaredLoss
from cvxnn.ranks import ALONE, LostRankError, OtherRankError, TorchRanks, exact_sum, first_largest
from cvxnn.rounding import Ball
from cvxnn.solvers.results import Status
from extras import required
from group import free_port, group

required("torch")

N, D, P = 150, 4, 20
CUTS = {  # where the rows of each process begin, and where those of the last one end
    "two": (0, 75, 150),
    "three": (0, 50, 100, 150),
    "uneven": (0, 1, 37, 150),  # one process with a single row
    "one without rows": (0, 0, 149, 150),
}


@pytest.fixture(scope="module")
def processes():
    with group(3) as made:
        yield made


def data(loss, n=N, d=D, dtype=np.float64):
    rng = np.random.default_rng(1)
    C = 3 if loss == "softmax" else 1
    X = rng.standard_normal((n, d)).astype(dtype)
    hidden = np.maximum(X @ rng.standard_normal((d, 5)), 0)
    Z = hidden @ rng.standard_normal((5, C)) + 0.3 * rng.standard_normal((n, C))
    if loss == "logistic":
        return X, np.sign(Z)
    return X, np.eye(C)[Z.argmax(axis=1)] if loss == "softmax" else Z


def mine(ranks, cut, *arrays):
    """The rows of this process."""
    rows = slice(cut[ranks.rank], cut[ranks.rank + 1])
    return [array[rows] for array in arrays]


def posed(ranks, cut, X, Y, p=P, share=0.1, **settings):
    """The problem at a share of its lambda_max: of the rows here, or of all without a cut."""
    weight = settings.pop("weight", None)
    if cut is not None:
        X, Y = mine(ranks, cut, X, Y)
        X = cvxnn.ShardedRows(X, ranks)
        weight = None if weight is None else mine(ranks, cut, weight)[0]
    patterns = cvxnn.sample_patterns(X, p, bias=True, random_state=0)
    problem = cvxnn.CGReLU(X, Y, patterns, 1.0, bias=True, sample_weight=weight, **settings)
    return problem.with_lam(share * cvxnn.lambda_max(problem))


def found(solution):
    bounds = solution.certificate
    return {
        "objective": bounds.objective,
        "bound": bounds.lower_bound,
        "gap": bounds.relative_gap,
        "proven": bounds.proven,
        "converged": solution.converged,
        "lam": solution.problem.lam,
        "weights": np.asarray(solution.weights),
        "bias": solution.output_bias,
        "history": [record.objective for record in solution.history],
    }


def solved(
    ranks, cut, loss, solver, tol=1e-8, dtype=np.float64, n=N, p=P, max_iter=None, **settings
):
    X, Y = data(loss, n, dtype=dtype)
    problem = posed(ranks, cut, X, Y, p, loss=loss, **settings)
    limits = {"tol": tol, "max_iter": max_iter, "on_failure": "ignore"}
    return found(cvxnn.solve(problem, solver, **limits))


def all_agree(answers):
    for answer in answers[1:]:
        for name, value in answers[0].items():
            assert_array_equal(answer[name], value)
    return answers[0]


@pytest.mark.parametrize(
    ("loss", "cut"),
    [
        *product(["squared", "huber", "logistic"], CUTS),
        ("softmax", "two"),
        ("softmax", "one without rows"),
    ],
)
def test_newton_finds_what_it_finds_in_one_process(processes, loss, cut):
    compare(processes, cut, loss, "newton", output_bias=cut != "two")


@pytest.mark.parametrize(("loss", "cut"), [("squared", "uneven"), ("logistic", "two")])
def test_rfista_finds_what_it_finds_in_one_process(processes, cut, loss):
    compare(processes, cut, loss, "rfista", normalize=True)


def compare(processes, cut, loss, solver, **settings):
    cut = CUTS[cut]
    here = solved(ALONE, None, loss, solver, **settings)
    there = all_agree(processes.run(solved_by, len(cut) - 1, cut, loss, solver, settings))
    assert there["converged"], (solver, loss)
    assert there["proven"]
    assert_allclose(there["lam"], here["lam"], rtol=1e-13)
    # to the gaps, and far beyond them: both have the same optimum
    assert_allclose(there["objective"], here["objective"], rtol=1e-10)
    assert there["bound"] <= here["objective"]
    assert here["bound"] <= there["objective"]
    assert_array_equal(np.any(there["weights"], axis=1), np.any(here["weights"], axis=1))


def solved_by(ranks, cut, loss, solver, settings):
    return solved(ranks, cut, loss, solver, **settings)


@pytest.mark.parametrize("cut", ["uneven", "one without rows"])
@pytest.mark.parametrize("loss", ["squared", "huber", "logistic", "softmax"])
def test_rfista_takes_the_same_steps(processes, cut, loss):
    """Iteration by iteration, and what is bounded at the end."""
    cut, settings = CUTS[cut], {"output_bias": True, "max_iter": 8}
    here = solved(ALONE, None, loss, "rfista", **settings)
    there = all_agree(processes.run(solved_by, 3, cut, loss, "rfista", settings))
    assert_allclose(there["history"], here["history"], rtol=1e-11)
    assert_allclose(there["bound"], here["bound"], rtol=1e-9)
    assert_allclose(there["weights"], here["weights"], rtol=0, atol=1e-10)
    assert there["proven"]


def test_newton_by_products_and_conjugate_gradients(processes):
    """So many active blocks that systems are not formed."""
    settings = {"n": 600, "p": 60, "output_bias": True, "share": 0.01, "tol": 1e-6}
    for loss in ("squared", "logistic", "softmax"):
        cut = (0, 250, 600)
        here = solved(ALONE, None, loss, "newton", **settings)
        there = all_agree(processes.run(solved_by, 2, cut, loss, "newton", settings))
        assert len(np.flatnonzero(np.any(here["weights"], axis=(1, 2)))) * (D + 2) > 100
        assert there["converged"]
        assert_allclose(there["objective"], here["objective"], rtol=1e-6)


def test_single_precision(processes):
    cut = CUTS["uneven"]
    for solver, loss in (("rfista", "squared"), ("newton", "logistic")):
        settings = {"dtype": np.float32, "tol": 1e-5 if solver == "newton" else 0.03}
        here = solved(ALONE, None, loss, solver, **settings)
        there = all_agree(processes.run(solved_by, 3, cut, loss, solver, settings))
        assert there["converged"]
        assert there["bound"] <= here["objective"]
        assert here["bound"] <= there["objective"]
        rtol = 1e-5 if solver == "newton" else 0.03
        assert_allclose(there["objective"], here["objective"], rtol=rtol)


def test_weights_of_rows_penalties_and_rows_in_files(processes):
    """The same objective for the same weights, whatever rows are where."""
    here = others(ALONE, None)
    for there in processes.run(others, 3, CUTS["uneven"]):
        for name, value in here.items():
            assert_allclose(there[name], value, rtol=1e-9, err_msg=name)


def others(ranks, cut):
    X, Y = data("squared")
    weight = np.random.default_rng(2).random(N) + 0.5
    results = {}
    for penalty in ("feature", "l1", "l2"):
        problem = (
            posed(ranks, cut, X, Y, penalty=penalty, weight=weight)
            if penalty != "l2"
            else (_with_l2(ranks, cut, X, Y, weight))
        )
        solution = cvxnn.solve(problem, "rfista", max_iter=8, on_failure="ignore")
        assert solution.certificate.proven
        results[penalty] = solution.certificate.objective
    if cut is not None:
        X, Y = mine(ranks, cut, X, Y)
        X = cvxnn.ShardedRows(cvxnn.StoredRows.from_array(X), ranks)
    patterns = cvxnn.sample_patterns(X, P, random_state=0)
    problem = cvxnn.CGReLU(X, Y, patterns, 0.05)
    solution = cvxnn.solve(problem, "rfista", max_iter=8, on_failure="ignore")
    assert solution.certificate.proven
    return {**results, "stored": solution.certificate.objective}


def _with_l2(ranks, cut, X, Y, weight):
    if cut is not None:
        X, Y, weight = mine(ranks, cut, X, Y, weight)
        X = cvxnn.ShardedRows(X, ranks)
    patterns = cvxnn.sample_patterns(X, P, random_state=0)
    return cvxnn.CGReLU(X, Y, patterns, 0.05, penalty="l2", sample_weight=weight)


def test_a_path_is_that_of_one_process(processes):
    here = along(ALONE, None)
    there = all_agree(processes.run(along, 3, CUTS["one without rows"]))
    for name, value in here.items():
        assert_allclose(there[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


def along(ranks, cut):
    X, Y = data("logistic")
    problem = posed(ranks, cut, X, Y, p=10, loss="logistic", output_bias=True)
    seen = []

    def callback(solution):
        assert ranks.rank == 0
        seen.append(solution.problem.lam)
        return len(seen) == 3

    path = cvxnn.path(problem, n_lams=5, tol=1e-8, callback=callback)
    assert path.message == "the callback asked to stop"
    return {"lams": path.lams, "objectives": path.objectives, "n_active": path.n_active}


# -- bounds that hold


def test_certificates_hold_for_random_weights_and_dual_points(processes):
    """Both ends of a certificate over processes against one process in exact arithmetic's reach:
    weights and dual points are random, so that nothing is close to optimal."""
    for loss in ("squared", "huber", "logistic", "softmax"):
        for bias in (False, True):
            optimum = certified(ALONE, None, loss, bias)
            for answers in (processes.run(certified, 3, CUTS["uneven"], loss, bias),):
                there = all_agree(answers)
                assert there["proven"]
                assert there["bound"] <= optimum["objective"]
                assert optimum["bound"] <= there["objective"]
                # the same weights and the same dual point: the bounds differ by rounding alone
                assert_allclose(there["objective"], optimum["objective"], rtol=1e-12)
                assert_allclose(there["bound"], optimum["bound"], rtol=1e-8, atol=1e-12)


def certified(ranks, cut, loss, bias):
    X, Y = data(loss)
    X = X * 10.0 ** np.arange(-6, 6, 3)[:D]
    problem = posed(ranks, cut, X, Y, loss=loss, output_bias=bias)
    rng = np.random.default_rng(3)
    U = 0.1 * rng.standard_normal(problem.weight_shape)
    Theta = problem.loss.gradient(problem.operator.forward(0.5 * U))
    bounds = cvxnn.certify(problem, U, Theta)
    return {"objective": bounds.objective, "bound": bounds.lower_bound, "proven": bounds.proven}


def test_sums_over_processes_are_bounded_and_exact_sums_exact(processes):
    for seed in range(3):
        values = hard(seed)
        exact = sum(map(Fraction, values.tolist()), Fraction(0))
        cut = (0, 3, 50, len(values))
        for total, low, high, ball, largest in processes.run(sums, 3, seed, cut):
            assert total == float(exact) == math.fsum(values)
            size = sum(map(Fraction, np.abs(values).tolist()), Fraction(0))
            assert Fraction(low) <= size <= Fraction(high)
            mid, rad = (Fraction(float(part)) for part in ball)
            assert abs(mid - exact) <= rad
            assert largest in (None, int(np.argmax(values)))


def hard(seed):
    """Numbers of all sizes that nearly cancel."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(60) * 10.0 ** rng.integers(-20, 20, 60)
    return np.concatenate([values, -values[::-1] * (1 + 1e-15), [1e-300]])


def sums(ranks, seed, cut):
    (values,) = mine(ranks, cut, hard(seed))
    size = np.abs(values)
    depth = rounding.depth(len(values))
    here = rounding.tree_sum(size)
    low = rounding.total_below(rounding.down(here, depth), ranks)
    high = rounding.total_above(rounding.up(here, depth), ranks)
    ball = Ball(values).sum().over(ranks)
    largest = first_largest(values, ranks)
    place = None if largest is None else cut[ranks.rank] + largest
    return exact_sum(values, ranks), float(low), float(high), (ball.mid, ball.rad), place


def test_zero_sums_over_processes_are_those_of_one(processes):
    for seed in range(3):
        cut = (0, 1, 1, len(hard(seed)))
        here, point = rounding.zero_sum(hard(seed))
        parts = processes.run(zero_sums, 3, seed, cut)
        assert_array_equal(np.concatenate([theta for theta, *_ in parts]), here)
        assert_array_equal(np.concatenate([mid for _, mid, _ in parts]), point.mid)
        assert_array_equal(np.concatenate([rad for *_, rad in parts]), point.rad)


def zero_sums(ranks, seed, cut):
    theta, point = rounding.zero_sum(mine(ranks, cut, hard(seed))[0], ranks)
    return theta, point.mid, np.broadcast_to(point.rad, point.mid.shape)


# -- limits, interrupts, checkpoints


def test_rank_0_decides_when_a_run_ends(processes):
    """Whatever the clocks, callbacks and interrupts of the others say."""
    first, second = processes.run(limited, 2)
    assert first == second
    assert first[0] == "time_limit"
    for answer in processes.run(stopped, 2):
        assert answer == ("stopped", 3)


def limited(ranks):
    X, Y = data("squared")
    problem = posed(ranks, (0, 100, N), X, Y)

    def slow(_):
        time.sleep(0.05)

    seconds = 0.5 if ranks.rank == 0 else 1e-6
    solution = cvxnn.solve(
        problem, "rfista", tol=0, max_seconds=seconds, callback=slow, on_failure="ignore"
    )
    return solution.status.value, solution.certificate.objective


def stopped(ranks):
    X, Y = data("squared")
    problem = posed(ranks, (0, 100, N), X, Y)

    def callback(progress):
        assert ranks.rank == 0
        return progress.n_iter == 3

    solution = cvxnn.solve(problem, "rfista", tol=0, callback=callback, on_failure="ignore")
    return solution.status.value, solution.n_iter


def test_an_interrupt_of_rank_0_ends_all_with_the_best_point(processes):
    for status, proven in processes.run(interrupted, 2):
        assert (status, proven) == (Status.INTERRUPTED, True)


def interrupted(ranks):
    X, Y = data("squared", n=3000)
    problem = posed(ranks, (0, 1000, 3000), X, Y, p=60)
    sent = []

    def callback(progress):
        if progress.n_iter >= 5 and not sent:
            sent.append(os.kill(os.getpid(), signal.SIGINT))

    assert threading.current_thread() is threading.main_thread()
    solution = cvxnn.solve(problem, "rfista", tol=0, callback=callback, on_failure="ignore")
    return solution.status, solution.certificate.proven


@pytest.mark.parametrize("solver", ["rfista", "newton"])
def test_a_run_goes_on_from_its_file_with_other_processes(processes, solver, tmp_path):
    file = str(tmp_path / "run")
    half = processes.run(checkpointed, 3, CUTS["three"], solver, file, 6)[0]
    assert not half["converged"]
    whole = all_agree(processes.run(checkpointed, 2, CUTS["two"], solver, file, None))
    assert whole["converged"]
    assert whole["history"][: len(half["history"])] == half["history"]
    here = solved(ALONE, None, "logistic", solver)
    assert_allclose(whole["objective"], here["objective"], rtol=1e-7)
    with pytest.raises(AssertionError, match="belongs to another problem"):
        processes.run(checkpointed, 2, CUTS["two"], solver, file, None, "squared")


def checkpointed(ranks, cut, solver, file, max_iter, loss="logistic"):
    X, Y = data("logistic")
    problem = posed(ranks, cut, X, Y, loss=loss)
    limit = {} if max_iter is None else {"max_iter": max_iter}
    solution = cvxnn.solve(
        problem,
        solver,
        tol=1e-7,
        checkpoint=file,
        checkpoint_seconds=0,
        on_failure="ignore",
        **limit,
    )
    return found(solution)


# -- estimators


@pytest.mark.parametrize("labels", [True, False])
def test_estimators_train_on_rows_in_several_processes(processes, labels):
    here = fitted(ALONE, None, labels)
    for there in processes.run(fitted, 3, CUTS["one without rows"], labels):
        assert there.keys() == here.keys()
        for name, value in here.items():
            close = 1e-2 if name == "predictions" else 1e-6  # which the tolerance leaves open
            assert_allclose(there[name], value, rtol=close, atol=close, err_msg=name)


def fitted(ranks, cut, labels):
    X, y = data("logistic" if labels else "squared")
    X = X * [1, 10, 0.1, 1] + [0, 5, 0, 0]  # scales are those of all rows
    X[:, 3] = 2.0
    weight = np.random.default_rng(2).integers(0, 3, N).astype(float)
    rows, targets, weights = X, y[:, 0], weight
    if cut is not None:
        rows, targets, weights = mine(ranks, cut, X, y[:, 0], weight)
        rows = cvxnn.ShardedRows(rows, ranks)
    settings = {"n_patterns": P, "tol": 1e-6, "alpha": 0.02, "random_state": 3}
    if labels:
        model = cvxnn.GatedReLUClassifier(class_weight="balanced", **settings)
    else:
        model = cvxnn.GatedReLURegressor(feature_scaling="learned", **settings)
    model.fit(rows, targets, weights)
    found = {
        "objective": model.certificate_.objective,
        "lambda_max": model.lambda_max_,
        "patterns": model.n_patterns_,
        "predictions": model.predict_proba(X) if labels else model.predict(X),
    }
    return found


# -- what is refused


class Shifted(SquaredLoss):
    """A loss of the user's own, which sums over the rows that it sees."""

    def value(self, Z):
        return self._weighted_sum((Z - self.Y) ** 2) / 2


class ShiftedChoice(LossChoice):
    name = "shifted"
    bound = Shifted


def test_what_needs_all_rows_in_one_process_is_refused_by_name(processes):
    assert processes.run(refusals, 2) == [None, None]


def refusals(ranks):
    X, Y = mine(ranks, (0, 100, N), *data("squared"))
    rows = cvxnn.ShardedRows(X, ranks)
    patterns = cvxnn.sample_patterns(rows, P, random_state=0)
    problem = cvxnn.CGReLU(rows, Y, patterns, 0.05)
    for solver in ("lsmr", "direct", "stochastic", "working-sets", "cvxpy"):
        with pytest.raises(ValueError, match=r"rows in several processes.*newton, rfista"):
            cvxnn.solve(problem, solver)
    with pytest.raises(TypeError, match=r"active_share.*several processes"):
        cvxnn.sample_patterns(rows, P, active_share=0.5)
    with pytest.raises(TypeError, match=r"C-ReLU.*several processes"):
        cvxnn.CReLU(rows, Y, patterns, 0.05)
    with pytest.raises(ValueError, match="lam = 0 has no lower bound"):
        cvxnn.solve(problem.with_lam(0), "rfista", max_iter=3)
    with pytest.raises(ValueError, match=r"generated patterns needs all rows in one process.*in 2"):
        cvxnn.path(problem, patterns="generate")
    with pytest.raises(ValueError, match="checkpoint of a path needs all rows"):
        cvxnn.path(problem, checkpoint="path.cvxnn")
    with pytest.raises(TypeError, match=r"several processes.*thousands of times"):
        cvxnn.decompose(cvxnn.solve(problem, tol=1e-2))
    with pytest.raises(ValueError, match="verify needs all rows"):
        cvxnn.verify(cvxnn.solve(problem, tol=1e-3))
    with pytest.raises(ValueError, match="bound_over_all_patterns needs all rows"):
        cvxnn.bound_over_all_patterns(problem, problem.zero_weights())
    with pytest.raises(TypeError, match="this needs all rows in one process"):
        problem.network(problem.zero_weights()).predict(rows)
    with pytest.raises(ValueError, match="n_components needs all rows"):
        cvxnn.GatedReLURegressor(n_components=2).fit(rows, Y[:, 0])
    with pytest.raises(TypeError, match="sums_ranks"):
        cvxnn.CGReLU(rows, Y, patterns, 0.05, loss=ShiftedChoice())


def test_an_error_of_one_process_is_one_of_all(processes):
    for what, said in (
        ("X", "row 7, column 2"),
        ("rows", "must be 2-dimensional"),
        ("weight", "sample_weight must be positive"),
        ("logistic", "must hold -1 and 1"),
        ("softmax", "rows of probabilities"),
    ):
        first, second = processes.run(unlucky, 2, what)
        assert (first[0], second[0]) == ("ValueError", OtherRankError.__name__)
        assert said in first[1]
        assert said in second[1]


def unlucky(ranks, what):
    """Rank 0 has something wrong."""
    loss = what if what in ("logistic", "softmax") else "squared"
    X, Y = mine(ranks, (0, 100, N), *data(loss))
    weight = np.ones(len(X))
    if ranks.rank == 0:
        if what == "X":
            X[7, 2] = np.nan
        elif what == "rows":
            X = X[0]
        elif what == "weight":
            weight[3] = -1.0
        else:
            Y[5] = 7.0
    try:
        rows = cvxnn.ShardedRows(X, ranks)
        patterns = cvxnn.sample_patterns(rows, P)
        cvxnn.CGReLU(rows, Y, patterns, 0.1, loss=loss, sample_weight=weight)
    except Exception as error:
        return type(error).__name__, str(error)


def test_targets_with_different_numbers_of_columns_are_refused(processes):
    assert all("Y has different numbers of columns" in text for text in processes.run(wider, 2))


def wider(ranks):
    X, Y = mine(ranks, (0, 100, N), *data("squared"))
    rows = cvxnn.ShardedRows(X, ranks)
    patterns = cvxnn.sample_patterns(rows, P)
    try:
        cvxnn.CGReLU(rows, np.hstack([Y] * (1 + ranks.rank)), patterns, 0.1)
    except ValueError as error:
        return str(error)


def test_rows_have_one_dtype_and_all_processes_the_same_weights(processes):
    """Also where a process without rows has another one."""
    for cut, single, expected in (
        ((0, 100, N), (False, True), "float64"),
        ((0, 100, N), (True, True), "float32"),
        ((0, 0, N), (False, True), "float32"),
    ):
        (dtype, first), (other, second) = processes.run(mixed, 2, cut, single)
        assert dtype == other == expected
        assert_array_equal(first, second)


def mixed(ranks, cut, single):
    X, Y = mine(ranks, cut, *data("squared"))
    rows = cvxnn.ShardedRows(X.astype(np.float32) if single[ranks.rank] else X, ranks)
    problem = cvxnn.CGReLU(rows, Y, cvxnn.sample_patterns(rows, P, random_state=0), 0.01)
    return str(rows.dtype), np.asarray(cvxnn.solve(problem, "rfista", tol=1e-3).weights)


def test_what_is_no_number_on_one_process_has_no_exact_sum_on_any(processes):
    for value in (math.inf, -math.inf, math.nan, 1.5e308):
        assert processes.run(no_sum, 2, value) == [True, True]


def no_sum(ranks, value):
    try:
        exact_sum(np.array([1.0, value, value] if ranks.rank else [1.0]), ranks)
    except OverflowError:
        return True
    return False


def test_a_process_that_waits_for_one_that_never_comes_can_give_up():
    """Whether it is the one that listens, or not."""
    for rank in (0, 1):
        asked = []

        def given_up(asked=asked):
            asked.append(True)
            return len(asked) > 1

        with pytest.raises(LostRankError, match=f"process {rank} stopped waiting"):
            TorchRanks.connect("alone", rank, 2, ("127.0.0.1", free_port()), given_up=given_up)
    with pytest.raises(LostRankError, match=r"processes \[1\] did not come within"):
        TorchRanks.connect("alone", 0, 2, ("127.0.0.1", free_port()), seconds=0.2)
