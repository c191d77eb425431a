"""Paths: every point is proven, equals a cold solve and costs less; grids, early ends, checkpoints
that go on where a path ended and refuse what is not theirs."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
from safetensors.numpy import load as parse_tensors
from safetensors.numpy import save as serialize_tensors

import cvxnn
from conftest import make_data, make_problem
from cvxnn import AL, RFISTA, CheckpointError, Status, lambda_max, path, paths, solve
from extras import needs, optional

torch = optional("torch")

KINDS = {"gated": cvxnn.CGReLU, "relu": cvxnn.CReLU}


def make(kind="gated", C=1, *, n=30, d=3, p=15, **settings):
    X, Y = make_data(n, d, C)
    patterns = cvxnn.sample_patterns(X, p, random_state=0)
    return KINDS[kind](X, Y, patterns, lam=1.0, **settings)


@pytest.fixture
def problem():
    return make()


def blocks_of(solution):
    """All blocks as one array (blocks, d, C)."""
    return np.asarray(solution.problem.check_weights(solution.weights))


def stop_after(count):
    """A callback that ends the path at that point."""
    numbers = itertools.count(1)
    return lambda solution: next(numbers) == count


def assert_same(first, second):
    """Two paths with the same points, to the last bit."""
    np.testing.assert_array_equal(first.lams, second.lams)
    np.testing.assert_array_equal(first.coefs, second.coefs)
    assert [point.certificate for point in first] == [point.certificate for point in second]
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.dual, other.dual)
        assert (one.n_iter, one.status) == (other.n_iter, other.status)


def forbid(*args, **kwargs):
    pytest.fail("nothing was to be solved")


# ---- the grid ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_grid_is_geometric_from_lambda_max(kind):
    problem = make(kind)
    result = path(problem, n_lams=5, eps=0.1)
    largest = lambda_max(problem)
    assert result.lams[0] == largest
    np.testing.assert_allclose(result.lams, largest * 0.1 ** (np.arange(5) / 4))
    assert [point.problem.lam for point in result] == result.lams.tolist()
    assert result[0].n_active == 0
    assert result[1].n_active > 0
    assert problem.lam == 1.0  # as it came


def test_one_point_is_lambda_max(problem):
    result = path(problem, n_lams=1)
    assert result.lams.tolist() == [lambda_max(problem)]
    assert result.complete


def test_the_default_grid(problem):
    result = path(problem)
    assert len(result) == 50
    assert result.lams[-1] == pytest.approx(0.01 * result.lams[0])
    assert result.relative_gaps.max() <= 1e-4


def test_eps_one_is_a_grid_of_equal_points(problem):
    assert path(problem, n_lams=3, eps=1).lams.tolist() == [lambda_max(problem)] * 3


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor, np.float32])
def test_lams_are_taken_in_any_order(problem, kind):
    result = path(problem, lams=kind([0.02, 0.3, 0.1]))
    np.testing.assert_allclose(result.lams, [0.3, 0.1, 0.02], rtol=1e-6)
    assert result.planned.dtype == np.float64


def test_lams_are_not_changed(problem):
    lams = np.array([0.1, 0.2])
    path(problem, lams=lams)
    assert lams.tolist() == [0.1, 0.2]


def test_penalties_without_lambda_max_need_lams():
    ridge = make_problem(penalty="l2")
    with pytest.raises(ValueError, match="penalty 'l2' has no lambda_max: give lams"):
        path(ridge)
    result = path(ridge, lams=[0.1, 1.0])
    assert [point.solver.name for point in result] == ["direct"] * 2
    assert result.relative_gaps.max() <= 1e-4


def test_targets_that_are_zero_need_lams(problem):
    nothing = cvxnn.CGReLU(
        problem.operator.rows(), 0 * problem.loss.Y, problem.patterns, lam=problem.lam
    )
    with pytest.raises(ValueError, match=r"lambda_max is 0.*give lams"):
        path(nothing)
    assert path(nothing, lams=[0.2, 0.1]).objectives.tolist() == [0.0, 0.0]


# ---- what the points are -----------------------------------------------------------------------


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
@pytest.mark.parametrize("C", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_every_point_is_proven_and_equals_a_cold_solve(kind, C, tol):
    problem = make(kind, C)
    result = path(problem, n_lams=6, eps=0.02, tol=tol)
    assert result.complete
    assert result.relative_gaps.max() <= tol
    for lam, point in zip(result.lams, result, strict=True):
        assert point.converged
        assert point.certificate.relative_gap <= tol
        cold = solve(problem.with_lam(lam), tol=1e-8).certificate
        assert cold.lower_bound * (1 - 1e-12) <= point.certificate.objective
        assert point.certificate.objective <= cold.objective / (1 - tol)
        assert point.certificate.lower_bound <= cold.objective * (1 + 1e-12)
        again = cvxnn.certify(point.problem, point.weights, point.dual)
        assert again.relative_gap <= point.certificate.relative_gap + 1e-10


@pytest.mark.parametrize("C", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_warm_starts_save_iterations(kind, C):
    problem = make(kind, C)
    result = path(problem, n_lams=20, tol=1e-3)
    cold = [solve(problem.with_lam(lam), tol=1e-3).n_iter for lam in result.lams]
    assert sum(point.n_iter for point in result) < 0.7 * sum(cold)


@pytest.mark.parametrize("kind", KINDS)
def test_two_runs_are_equal_to_the_bit(kind):
    problem = make(kind, C=2)
    assert_same(path(problem, n_lams=6), path(problem, n_lams=6))


def test_the_objective_rises_with_lam_and_neurons_come_in(problem):
    result = path(problem, n_lams=10, tol=1e-6)
    assert np.all(np.diff(result.objectives) < 0)
    assert result.n_active[0] == 0
    assert result.n_active[-1] > 3


# ---- what a path is ----------------------------------------------------------------------------


def test_a_path_is_a_sequence(problem):
    result = path(problem, n_lams=4)
    assert len(result) == 4
    assert list(result) == list(result.solutions)
    assert result[0] is result.solutions[0]
    assert result[-1] is result.solutions[3]
    assert result[1:3] == result.solutions[1:3]
    assert next(reversed(result)) is result[3]
    assert result[2] in result
    with pytest.raises(IndexError):
        result[4]


def test_a_path_is_frozen(problem):
    result = path(problem, n_lams=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.message = "another"


@pytest.mark.parametrize("C", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_coefs_are_all_weights(kind, C):
    problem = make(kind, C)
    result = path(problem, n_lams=3)
    p = len(problem.patterns)
    blocks = p if kind == "gated" else 2 * p
    assert result.coefs.shape == (3, blocks, 3, C)
    for U, point in zip(result.coefs, result, strict=True):
        assert point.problem.objective(U) == pytest.approx(point.certificate.objective)
    if kind == "relu":
        V, W = result[-1].weights
        np.testing.assert_array_equal(result.coefs[-1], np.concatenate([V, W]))


def test_numbers_of_all_points(problem):
    result = path(problem, n_lams=3)
    assert result.objectives.tolist() == [point.certificate.objective for point in result]
    assert result.relative_gaps.tolist() == [point.certificate.relative_gap for point in result]
    assert result.n_active.tolist() == [point.n_active for point in result]
    assert result.seconds == pytest.approx(sum(point.seconds for point in result))
    assert result[2].network().n_neurons == result.n_active[2]


def test_repr_says_what_is_there(problem):
    result = path(problem, n_lams=3)
    text = repr(result)
    assert text.startswith(f"Path(3 of 3 points, lam {result.lams[0]:.3g} to {result.lams[2]:.3g}")
    assert f"relative gap <= {result.relative_gaps.max():.2g}" in text
    assert f"{result.n_active[2]} neurons at the end" in text
    assert text.endswith(": all points are reached)")


def test_only_the_last_point_keeps_what_a_warm_start_needs(problem):
    result = path(problem, n_lams=3)
    assert [point.state is None for point in result] == [True, True, False]
    lam = 0.9 * result.lams[-1]
    warm = solve(problem.with_lam(lam), warm_start=result[-1])
    assert warm.n_iter <= solve(problem.with_lam(lam)).n_iter


# ---- ends --------------------------------------------------------------------------------------


def test_min_loss_ends_the_path(problem):
    everything = path(problem, n_lams=12)

    def share(point):
        network = point.network()
        X, Y = problem.operator.rows(), problem.loss.Y[:, 0]
        return np.sum((network.predict(X) - Y) ** 2) / np.sum(Y**2)

    result = path(problem, n_lams=12, min_loss=0.5)
    assert 1 < len(result) < 12
    assert not result.complete
    assert share(result[-1]) < 0.5 <= share(result[-2])
    assert result.message == "the loss is below 0.5 of the zero model's"
    assert len(result.planned) == 12
    np.testing.assert_array_equal(result.lams, everything.lams[: len(result)])
    np.testing.assert_array_equal(result.coefs, everything.coefs[: len(result)])


def test_no_min_loss_never_ends_the_path():
    """Also where the loss is so small that rounding makes it negative."""
    X, Y = make_data(5, 12)
    problem = cvxnn.CGReLU(X, Y, cvxnn.sample_patterns(X, 10, random_state=0), lam=1.0)
    lams = lambda_max(problem) * np.array([1e-3, 1e-6, 1e-9])
    assert path(problem, lams=lams, on_failure="ignore").complete


def test_the_callback_sees_every_point_and_can_end_the_path(problem):
    seen = []

    def callback(solution):
        seen.append(solution)
        return len(seen) == 3

    result = path(problem, n_lams=6, callback=callback)
    assert [point.certificate for point in result] == [point.certificate for point in seen]
    assert len(result) == 3
    assert result.message == "the callback asked to stop"


def test_the_callback_sees_the_point_at_which_min_loss_ends_the_path(problem):
    seen = []
    result = path(problem, n_lams=12, min_loss=0.5, callback=seen.append)
    assert len(seen) == len(result)


def test_errors_in_a_callback_are_not_swallowed(problem):
    with pytest.raises(ZeroDivisionError):
        path(problem, n_lams=3, callback=lambda solution: 1 / 0)


def test_time_limit(problem):
    result = path(problem, max_seconds=1e-6, on_failure="ignore")
    assert not result.complete
    assert result.message == "the time limit was reached before lambda_max was known"
    assert np.isnan(result.planned).all()
    with pytest.warns(cvxnn.ConvergenceWarning, match="time limit"):
        result = path(problem, lams=[0.5], max_seconds=1e-6)
    assert result.message == "the time limit was reached at lam = 0.5"


def test_the_time_limit_is_for_the_whole_path(problem, monkeypatch):
    """Whatever the time goes to: here a callback."""
    ticks, pauses = itertools.count(), []
    monkeypatch.setattr("cvxnn.budget.clock", lambda: 1e-3 * next(ticks) + sum(pauses))

    def slow(solution):
        pauses.append(10)

    result = path(problem, n_lams=5, max_seconds=25, callback=slow, on_failure="ignore")
    assert len(result) == 3
    assert result.message == f"the time limit was reached at lam = {result.planned[3]:.4g}"


def interrupt_after(count, monkeypatch):
    """Ctrl-C in the solve of the point after `count` points."""
    numbers = itertools.count()

    def callback(progress):
        raise KeyboardInterrupt

    def interrupted(*args, **kwargs):
        return solve(*args, **kwargs, callback=callback if next(numbers) == count else None)

    monkeypatch.setattr(paths, "solve", interrupted)


@pytest.mark.parametrize("count", [1, 2])
def test_an_interrupt_in_a_solve_returns_the_points_until_then(problem, monkeypatch, count):
    everything = path(problem, n_lams=5)
    interrupt_after(count, monkeypatch)
    with pytest.warns(cvxnn.ConvergenceWarning, match="interrupted"):
        result = path(problem, n_lams=5)
    assert len(result) == count
    assert result.message == f"interrupted at lam = {result.planned[count]:.4g}"
    np.testing.assert_array_equal(result.coefs, everything.coefs[:count])


def test_an_interrupt_between_solves_returns_the_points_until_then(problem):
    def interrupt(solution):
        if solution.problem.lam < 0.5 * lambda_max(problem):
            raise KeyboardInterrupt

    result = path(problem, n_lams=9, callback=interrupt)
    assert 1 < len(result) < 9
    assert result.message == "interrupted"
    assert result.relative_gaps.max() <= 1e-4


def test_a_path_without_points(problem, monkeypatch):
    interrupt_after(0, monkeypatch)
    result = path(problem, lams=[0.1, 0.2], on_failure="ignore")
    assert len(result) == len(result.lams) == len(result.objectives) == result.seconds == 0
    assert result.coefs.shape == (0, *problem.weight_shape)
    assert repr(result) == "Path(no points of 2: interrupted at lam = 0.2)"


def test_a_point_that_misses_the_tolerance_stays_with_what_it_proves(problem):
    lams = lambda_max(problem) * np.array([0.1, 0.05])
    with pytest.warns(cvxnn.ConvergenceWarning, match="iteration limit"):
        result = path(problem, lams=lams, tol=1e-6, max_iter=3)
    assert result.complete
    assert [point.status for point in result] == [Status.MAX_ITER] * 2
    for lam, point in zip(lams, result, strict=True):
        assert point.certificate.relative_gap > 1e-6
        exact = solve(problem.with_lam(lam), tol=1e-8).certificate
        assert point.certificate.lower_bound <= exact.objective * (1 + 1e-12)
    with pytest.raises(cvxnn.NotConvergedError):
        path(problem, lams=lams, tol=1e-6, max_iter=3, on_failure="raise")


def test_progress_is_one_line_a_point(problem, capsys):
    result = path(problem, n_lams=3, progress=True)
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert captured.out == ""
    assert len(lines) == 3
    for k, (line, point) in enumerate(zip(lines, result, strict=True)):
        assert line.strip().startswith(f"{k + 1}/3  lam {point.problem.lam:.4g} ")
        assert f"objective {point.certificate.objective:.6g} " in line
        assert f"{point.n_active} neurons" in line
        assert f"{point.n_iter} iterations" in line


def test_it_is_silent_unless_asked(problem, capsys):
    path(problem, n_lams=3)
    assert capsys.readouterr() == ("", "")


# ---- solvers, penalties, array libraries -------------------------------------------------------


@pytest.mark.parametrize("penalty", ["feature", "l1"])
def test_other_penalties(penalty):
    problem = make_problem(penalty=penalty)
    result = path(problem, n_lams=4, eps=0.1)
    assert {point.solver.name for point in result} == {"rfista"}
    assert result[0].n_active == 0
    assert result.relative_gaps.max() <= 1e-4


@pytest.mark.parametrize(
    ("kind", "solver"),
    [
        ("gated", "rfista"),
        pytest.param("gated", "cvxpy", marks=needs("cvxpy")),
        ("relu", "al"),
        ("relu", AL(window=None)),
        ("gated", "newton"),
        ("relu", "newton"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_other_solvers(kind, solver):
    problem = make(kind)
    result = path(problem, n_lams=3, eps=0.1, tol=1e-3, solver=solver)
    assert {point.solver.name for point in result} == {getattr(solver, "name", solver)}
    assert result.relative_gaps.max() <= 1e-3
    for exact, point in zip(path(problem, n_lams=3, eps=0.1, tol=1e-8), result, strict=True):
        assert point.certificate.objective == pytest.approx(exact.certificate.objective, rel=2e-3)


def test_options_reach_the_solver(problem):
    result = path(problem, n_lams=2, eps=0.5, solver="rfista", restart=False)
    assert [point.solver for point in result] == [RFISTA(restart=False)] * 2
    published = path(problem, n_lams=2, eps=0.5, tol=1e-3, solver="rfista", stop="paper")
    assert published[1].history[-1].residual <= 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors(problem, dtype, tmp_path):
    X, Y = (torch.asarray(part).to(dtype) for part in (problem.operator.rows(), problem.loss.Y))
    on_tensors = cvxnn.CGReLU(X, Y, problem.patterns, lam=1.0)
    expected = path(problem, n_lams=3, eps=0.1)
    for solver in ("auto", "newton"):
        settings = {"eps": 0.1, "solver": solver, "checkpoint": tmp_path / solver}
        result = path(on_tensors, n_lams=3, **settings)
        assert isinstance(result[1].weights, torch.Tensor)
        assert result[1].weights.dtype == dtype
        assert isinstance(result.coefs, np.ndarray)
        np.testing.assert_allclose(result.objectives, expected.objectives, rtol=2e-4)
        again = path(on_tensors, n_lams=3, **settings)
        assert isinstance(again[1].weights, torch.Tensor)
        assert again[1].weights.dtype == dtype
        np.testing.assert_array_equal(again.coefs, result.coefs)


# ---- checkpoints -------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    return tmp_path / "path.safetensors"


@pytest.mark.parametrize("C", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_finished_path_is_not_solved_again(kind, C, file, monkeypatch):
    problem = make(kind, C)
    first = path(problem, n_lams=5, checkpoint=file)
    monkeypatch.setattr(paths, "solve", forbid)
    second = path(problem, n_lams=5, checkpoint=str(file))
    assert second.complete
    assert second.message == "all points are reached"
    np.testing.assert_array_equal(first.coefs, second.coefs)
    np.testing.assert_array_equal(first.n_active, second.n_active)
    assert np.all(second.relative_gaps <= first.relative_gaps + 1e-10)
    assert second.seconds == pytest.approx(first.seconds)
    for one, other in zip(first, second, strict=True):
        assert other.converged
        assert other.certificate == cvxnn.certify(other.problem, other.weights, other.dual)
        assert (one.n_iter, one.n_products, one.message) == (
            other.n_iter,
            other.n_products,
            other.message,
        )
        assert one.solver == other.solver
        assert type(one.weights) is type(other.weights)


@pytest.mark.parametrize("kind", KINDS)
def test_a_path_that_was_stopped_goes_on(kind, file, monkeypatch):
    problem = make(kind)
    part = path(problem, n_lams=6, checkpoint=file, callback=stop_after(3))
    assert len(part) == 3
    calls = []

    def counted(problem, *args, **kwargs):
        calls.append(problem.lam)
        return solve(problem, *args, **kwargs)

    monkeypatch.setattr(paths, "solve", counted)
    whole = path(problem, n_lams=6, checkpoint=file)
    assert whole.complete
    assert calls == whole.planned[3:].tolist()
    np.testing.assert_array_equal(whole.coefs[:3], part.coefs)
    assert whole.relative_gaps.max() <= 1e-4
    np.testing.assert_allclose(whole.objectives, path(problem, n_lams=6).objectives, rtol=1e-4)
    monkeypatch.setattr(paths, "solve", forbid)
    assert path(problem, n_lams=6, checkpoint=file).complete


def test_an_interrupted_path_goes_on(problem, file, monkeypatch):
    with monkeypatch.context() as context:
        interrupt_after(2, context)
        assert len(path(problem, n_lams=4, checkpoint=file, on_failure="ignore")) == 2
    assert path(problem, n_lams=4, checkpoint=file).complete


def test_a_crash_leaves_the_points_until_then(problem, file):
    def crash(solution):
        if solution.n_active > 0:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        path(problem, n_lams=4, checkpoint=file, callback=crash)
    seen = []
    assert path(problem, n_lams=4, checkpoint=file, callback=seen.append).complete
    assert len(seen) == 4


def test_stored_points_end_a_path_as_solved_ones_do(problem, file, monkeypatch):
    first = path(problem, n_lams=12, min_loss=0.5, checkpoint=file)
    monkeypatch.setattr(paths, "solve", forbid)
    second = path(problem, n_lams=12, min_loss=0.5, checkpoint=file)
    assert len(second) == len(first) < 12
    assert second.message == first.message
    earlier = path(problem, n_lams=12, checkpoint=file, callback=stop_after(2))
    assert len(earlier) == 2


def test_points_that_missed_the_tolerance_are_solved_again(problem, file):
    settings = {"n_lams": 5, "tol": 1e-6, "checkpoint": file}
    rough = path(problem, **settings, max_iter=3, on_failure="ignore")
    assert not all(point.converged for point in rough)
    result = path(problem, **settings)
    assert all(point.converged for point in result)
    assert result.relative_gaps.max() <= 1e-6


def test_the_file_is_replaced_as_a_whole(problem, file, monkeypatch):
    path(problem, n_lams=4, checkpoint=file, callback=stop_after(2))
    before = file.read_bytes()

    def failing(*args):
        raise OSError("the disk is full")

    monkeypatch.setattr("cvxnn.files.os.replace", failing)
    with pytest.raises(OSError, match="disk is full"):
        path(problem, n_lams=4, checkpoint=file)
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


OTHER_SETTINGS = {
    "n_lams": {"n_lams": 4},
    "eps": {"eps": 0.2},
    "lams": {"lams": [0.1], "n_lams": None, "eps": None},
    "tol": {"tol": 1e-5},
}
OTHER_PROBLEMS = {
    "another kind": {"kind": "relu"},
    "another penalty": {"penalty": "l1"},
    "more outputs": {"C": 2},
    "fewer patterns": {"p": 14},
    "fewer rows": {"n": 29},
    "unit columns": {"normalize": True},
    "another loss": {"loss": "huber"},
    "an output bias": {"output_bias": True},
    "sample weights": {"sample_weight": np.arange(1, 31)},
}
OTHER_LOSSES = {
    "another loss": {"loss": "squared"},
    "another delta": {"huber_delta": 1.0},
    "no output bias": {"output_bias": False},
    "sample weights": {"sample_weight": np.arange(1, 31)},
}


@pytest.mark.parametrize("changes", OTHER_SETTINGS.values(), ids=OTHER_SETTINGS)
def test_the_checkpoint_of_another_grid_or_tolerance_is_refused(file, problem, changes):
    settings = {"n_lams": 3, "eps": 0.1, "checkpoint": file}
    path(problem, **settings)
    before = file.read_bytes()
    with pytest.raises(CheckpointError, match="belongs to another problem, grid or tolerance"):
        path(problem, **settings | changes)
    assert file.read_bytes() == before


@pytest.mark.parametrize("changes", OTHER_PROBLEMS.values(), ids=OTHER_PROBLEMS)
def test_the_checkpoint_of_another_problem_is_refused(file, problem, changes):
    path(problem, lams=[0.3], checkpoint=file)
    with pytest.raises(CheckpointError, match="belongs to another problem, grid or tolerance"):
        path(make(**changes), lams=[0.3], checkpoint=file)


@pytest.mark.parametrize("changes", OTHER_LOSSES.values(), ids=OTHER_LOSSES)
def test_the_checkpoint_of_another_loss_is_refused(file, changes):
    settings = {"loss": "huber", "output_bias": True}
    path(make(**settings), lams=[0.05], checkpoint=file)
    assert path(make(**settings), lams=[0.05], checkpoint=file).complete
    with pytest.raises(CheckpointError, match="belongs to another problem, grid or tolerance"):
        path(make(**settings | changes), lams=[0.05], checkpoint=file)


def test_one_number_makes_another_problem(file, problem):
    parts = {"X": problem.operator.rows(), "Y": problem.loss.Y, "mask": problem.patterns.mask}

    def run(X, Y, mask):
        patterns = cvxnn.Patterns.from_mask(mask)
        return path(cvxnn.CGReLU(X, Y, patterns, lam=0.7), lams=[0.3], checkpoint=file)

    run(**parts)
    for name, part in parts.items():
        changed = part.copy()
        changed[3, 0] = not changed[3, 0] if name == "mask" else changed[3, 0] * (1 + 1e-12)
        with pytest.raises(CheckpointError, match="another problem"):
            run(**parts | {name: changed})
    assert run(**parts).complete


def test_a_solver_of_ones_own_is_no_obstacle(file, problem, monkeypatch):
    class Mine(RFISTA):
        name = "mine"

    path(problem, n_lams=2, checkpoint=file, solver=Mine())
    monkeypatch.setattr(paths, "solve", forbid)
    assert path(problem, n_lams=2, checkpoint=file).complete


@pytest.fixture
def written(problem, file):
    """The settings of a path, and the content of its checkpoint."""
    settings = {"n_lams": 3, "eps": 0.1, "checkpoint": file}
    path(problem, **settings)
    return settings, file.read_bytes()


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.999])
def test_a_truncated_file_is_refused(problem, file, written, share):
    settings, content = written
    file.write_bytes(content[: int(share * len(content))])
    with pytest.raises(CheckpointError, match="not a path checkpoint, or damaged"):
        path(problem, **settings)


FOREIGN = {
    "text": b"lam,objective\n0.1,0.2\n",
    "pickle": b"\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94\x8c\x06system\x94\x93",
    "other tensors": serialize_tensors({"a": np.ones(2)}),
    "another program's": serialize_tensors({"a": np.ones(2)}, {"format": "pt"}),
    "no JSON": serialize_tensors({"a": np.ones(2)}, {"cvxnn-path": "os.system('ls')"}),
    "a list": serialize_tensors({"a": np.ones(2)}, {"cvxnn-path": "[1, 2]"}),
    "a deep list": serialize_tensors({"a": np.ones(2)}, {"cvxnn-path": "[" * 100_000}),
    "no points": serialize_tensors({"a": np.ones(2)}, {"cvxnn-path": '{"version": 1}'}),
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_foreign_files_are_refused(problem, file, content):
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match="not a path checkpoint, or damaged"):
        path(problem, checkpoint=file)
    assert file.read_bytes() == content


def test_a_model_file_is_refused(problem, file):
    solve(problem.with_lam(0.1)).network().save(file)
    with pytest.raises(CheckpointError, match="not a path checkpoint"):
        path(problem, checkpoint=file)
    assert cvxnn.load(file).n_neurons > 0


def rewrite(file, change):
    """Change the tensors and the header of a checkpoint."""
    content = file.read_bytes()
    tensors = {name: tensor.copy() for name, tensor in parse_tensors(content).items()}
    size = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["cvxnn-path"])
    change(tensors, header)
    file.write_bytes(serialize_tensors(tensors, {"cvxnn-path": json.dumps(header)}))


INCONSISTENT = {
    "a point without weights": lambda tensors, header: tensors.pop("2.rows"),
    "a point without a dual": lambda tensors, header: tensors.pop("1.dual"),
    "more points than lams": lambda tensors, header: header["points"].append({}),
    "a point too many": lambda tensors, header: header["points"].append(header["points"][0]),
    "no list of points": lambda tensors, header: header.update(points=3),
    "points that are no objects": lambda tensors, header: header.update(points=[1, 2, 3]),
    "no number of iterations": lambda tensors, header: header["points"][1].pop("n_iter"),
    "text for a number": lambda tensors, header: header["points"][1].update(n_iter="many"),
    "endless iterations": lambda tensors, header: header["points"][1].update(n_iter=float("inf")),
    "a solver without a name": lambda tensors, header: header["points"][1].update(solver=[]),
    "pairs beyond the last": lambda tensors, header: tensors.update(
        {"2.pairs": tensors["2.pairs"] + 1000}
    ),
    "pairs that are no integers": lambda tensors, header: tensors.update(
        {"2.pairs": tensors["2.pairs"] + 0.5}
    ),
    "fewer pairs than weights": lambda tensors, header: tensors.update(
        {"2.rows": np.concatenate([tensors["2.rows"]] * 2)}
    ),
    "NaN in the weights": lambda tensors, header: tensors["2.rows"].fill(np.nan),
    "NaN in the dual": lambda tensors, header: tensors["2.dual"].fill(np.nan),
    "a dual of other rows": lambda tensors, header: tensors.update(
        {"2.dual": tensors["2.dual"][:-1]}
    ),
}


@pytest.mark.parametrize("change", INCONSISTENT.values(), ids=INCONSISTENT)
def test_an_inconsistent_file_is_refused(problem, file, written, change):
    rewrite(file, change)
    with pytest.raises(CheckpointError, match="is inconsistent"):
        path(problem, **written[0])


def test_another_format_version_is_refused(problem, file, written):
    rewrite(file, lambda tensors, header: header.update(version=1))
    with pytest.raises(CheckpointError, match="has format version 1, not 2"):
        path(problem, **written[0])


def test_a_file_is_not_believed(file):
    """What it claims about weights is certified afresh, and what does not hold is solved again."""
    problem = make("gated")
    expected = path(problem, n_lams=4, checkpoint=file)

    def worse(tensors, header):
        tensors["2.rows"] *= 1.1

    rewrite(file, worse)
    result = path(problem, n_lams=4, checkpoint=file)
    assert result.relative_gaps.max() <= 1e-4
    np.testing.assert_allclose(result.objectives, expected.objectives, rtol=1e-4)


def test_weights_outside_their_cones_are_refused(file):
    problem = make("relu")
    path(problem, n_lams=3, checkpoint=file)

    def outside(tensors, header):
        tensors["2.rows"] *= -1

    rewrite(file, outside)
    with pytest.raises(CheckpointError, match="outside their cones"):
        path(problem, n_lams=3, checkpoint=file)


def test_a_checkpoint_holds_data_only(written):
    """Numbers and JSON: there is nothing in it that could be run."""
    _, content = written
    tensors = parse_tensors(content)
    assert {tensor.dtype.kind for tensor in tensors.values()} == {"f", "i"}
    size = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["cvxnn-path"])
    assert set(header) == {"version", "fingerprint", "points"}
    assert 8 + size + sum(tensor.nbytes for tensor in tensors.values()) == len(content)


def test_a_missing_folder_is_named_before_any_work(problem, tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "solve", forbid)
    with pytest.raises(FileNotFoundError, match=r"checkpoint: there is no folder .*nowhere"):
        path(problem, checkpoint=tmp_path / "nowhere" / "path.safetensors")
    with pytest.raises(IsADirectoryError, match=r"checkpoint: .* is a folder"):
        path(problem, checkpoint=tmp_path)
    with pytest.raises(TypeError, match="checkpoint must be the name of a file, got int"):
        path(problem, checkpoint=5)


# ---- mistakes ----------------------------------------------------------------------------------

MISTAKES = {
    "n_lams zero": ({"n_lams": 0}, ValueError, "^n_lams must be a positive integer, got 0"),
    "n_lams fraction": ({"n_lams": 2.5}, TypeError, "^n_lams must be an integer, got float"),
    "n_lams bool": ({"n_lams": True}, TypeError, "^n_lams must be an integer, got True"),
    "n_lams a list": ({"n_lams": [0.1]}, TypeError, "^n_lams must be an integer, got list"),
    "eps zero": ({"eps": 0}, ValueError, "^eps must be > 0"),
    "eps above one": ({"eps": 1.5}, ValueError, "^eps must be <= 1"),
    "eps negative": ({"eps": -0.1}, ValueError, "^eps must be > 0"),
    "eps nan": ({"eps": np.nan}, ValueError, "^eps must be finite"),
    "eps text": ({"eps": "0.1"}, TypeError, "^eps must be a real number"),
    "tol negative": ({"tol": -1e-4}, ValueError, "^tol must be >= 0"),
    "tol nan": ({"tol": np.nan}, ValueError, "^tol must be finite"),
    "tol None": ({"tol": None}, TypeError, "^tol must be a real number, got None"),
    "lams empty": ({"lams": []}, ValueError, "^lams must be a list of positive numbers"),
    "lams a number": ({"lams": 0.1}, ValueError, "^lams must be a list of positive numbers"),
    "lams zero": ({"lams": [0.1, 0]}, ValueError, "^lams must be a list of positive numbers"),
    "lams negative": ({"lams": [-0.1]}, ValueError, "^lams must be a list of positive numbers"),
    "lams a table": ({"lams": [[0.1]]}, ValueError, "^lams must be a list of positive numbers"),
    "lams nan": ({"lams": [0.1, np.nan]}, ValueError, "^lams holds NaN or infinity: nan at row 1"),
    "lams text": ({"lams": ["a"]}, TypeError, "^lams "),
    "min_loss negative": ({"min_loss": -1}, ValueError, "^min_loss must be >= 0"),
    "min_loss above one": ({"min_loss": 2}, ValueError, "^min_loss must be <= 1"),
    "max_seconds zero": ({"max_seconds": 0}, ValueError, "^max_seconds must be > 0"),
    "max_seconds text": ({"max_seconds": "1"}, TypeError, "^max_seconds must be a real number"),
    "callback": ({"callback": 5}, TypeError, "^callback must be callable, got int"),
    "progress": ({"progress": 1}, TypeError, "^progress must be True or False"),
    "unknown option": ({"min_los": 0.1}, TypeError, "neither solve nor .* has 'min_los'"),
    "unknown solver": ({"solver": "newtn"}, ValueError, "unknown solver 'newtn'; did you mean"),
    "no solver for it": ({"solver": "al"}, ValueError, "'al' does not handle C-GReLU"),
    "warm_start": ({"warm_start": None}, TypeError, "warm_start"),
}


@pytest.mark.parametrize(("settings", "error", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_named(problem, settings, error, message):
    with pytest.raises(error, match=message):
        path(problem, **settings)


@pytest.mark.parametrize("thing", [None, np.ones((3, 2)), "problem"])
def test_only_problems_have_paths(thing):
    with pytest.raises(TypeError, match=r"^problem must be a CGReLU or CReLU, got "):
        path(thing)


def test_a_path_is_carried_on_in_a_straight_line(monkeypatch):
    """Two points predict the third: fewer passes than from the last one alone."""
    problem = make(n=100, d=5, p=50)

    def passes():
        return sum(solution.n_products for solution in path(problem, 40, 0.02, 1e-4))

    carried = passes()
    monkeypatch.setattr(cvxnn.Newton, "carry_on", lambda self, problem, before, last, share: last)
    assert carried < 0.9 * passes()


@pytest.mark.parametrize(("d", "later"), [(4, "newton"), (70, "working-sets")])
def test_coupled_losses_have_the_method_that_goes_on_sooner(d, later):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, d))
    Y = np.eye(3)[np.digitize(X[:, 0] + X[:, 1] ** 2, (0.0, 1.5))]
    patterns = cvxnn.sample_patterns(X, 20, random_state=0)
    problem = cvxnn.CReLU(X, Y, patterns, lam=1.0, loss="softmax", output_bias=True)
    found = cvxnn.path(problem, 3, 0.1, tol=1e-5)
    assert [solution.solver.name for solution in found] == ["working-sets", later, later]
    for solution in found:
        assert solution.converged
        cold = cvxnn.solve(solution.problem, "working-sets", tol=1e-5)
        assert cold.certificate.lower_bound <= solution.certificate.objective
        assert solution.certificate.lower_bound <= cold.certificate.objective
