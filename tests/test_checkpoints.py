"""Checkpoints of runs: they go on where they were, after any end; files of other runs are refused,
and no file is believed. Guesses at the time left."""

import json
import math
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from safetensors.numpy import load as parse_tensors
from safetensors.numpy import save as serialize_tensors

import cvxnn
from cvxnn import CheckpointError, Status, budget, checkpoints
from cvxnn.solvers import saving
from cvxnn.solvers.forecasts import seconds_left
from cvxnn.solvers.results import Progress
from cvxnn.solvers.working_sets import method


def make(kind="CGReLU", loss="squared", n=80, share=0.02, seed=0, **settings):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5))
    scores = np.maximum(X @ rng.standard_normal((5, 6)), 0) @ rng.standard_normal((6, 3))
    scores -= scores.mean(axis=0)
    Y = np.eye(3)[scores.argmax(axis=1)] if loss == "softmax" else scores
    patterns = cvxnn.sample_patterns(X, 20, random_state=seed)
    problem = getattr(cvxnn, kind)(X, Y, patterns, 1.0, loss=loss, **settings)
    return problem.with_lam(share * cvxnn.lambda_max(problem))


@pytest.fixture
def file(tmp_path):
    return tmp_path / "run.safetensors"


def stop_after(count):
    """A callback that ends a run after so many iterations that it has seen."""
    seen = []

    def callback(progress):
        seen.extend([] if progress.note else [progress])  # on a busy machine there are also notes
        return len(seen) >= count

    return callback


def everything_but_times(history):
    return [
        (p.n_iter, p.objective, p.lower_bound, p.relative_gap, p.residual, p.step_size)
        for p in history
    ]


EXACT = {
    "working sets": ({"loss": "softmax"}, {"solver": "working-sets"}),
    "working sets, squared loss": ({}, {"solver": "working-sets", "every": 3}),
    "working sets with a bias": (
        {"loss": "softmax", "output_bias": True},
        {"solver": "working-sets"},
    ),
    "working sets after a stochastic start": (
        {"loss": "softmax"},
        {"solver": "stochastic", "epochs": 2, "batch": 16},
    ),
    "R-FISTA": ({}, {"solver": "rfista"}),
    "R-FISTA, another penalty": ({"penalty": "l1"}, {"solver": "rfista", "restart": False}),
    "the paper's rule": ({}, {"solver": "rfista", "stop": "paper"}),
}


@pytest.mark.parametrize(("posed", "settings"), EXACT.values(), ids=EXACT)
def test_a_run_goes_on_as_if_nothing_had_happened(file, posed, settings):
    problem, settings = make(**posed), {"tol": 1e-6, **settings}
    whole = cvxnn.solve(problem, **settings)
    part = cvxnn.solve(problem, **settings, checkpoint=file, callback=stop_after(4))
    assert part.status is Status.STOPPED
    assert part.n_iter < whole.n_iter
    found = cvxnn.solve(problem, **settings, checkpoint=str(file))
    np.testing.assert_array_equal(found.weights, whole.weights)
    assert everything_but_times(found.history) == everything_but_times(whole.history)
    assert found.n_iter == whole.n_iter
    assert found.history[:4] == part.history
    assert [p.n_trials for p in found.history] == [p.n_trials for p in whole.history]
    assert np.all(np.diff([p.seconds for p in found.history]) >= 0)
    assert found.seconds > part.seconds
    assert whole.n_products <= found.n_products <= whole.n_products + 6  # bounds, computed again


def test_a_run_with_large_sets_goes_on_as_well(file, monkeypatch):
    monkeypatch.setattr(method, "MANY_WEIGHTS", 0)
    monkeypatch.setattr(method, "WORST", 0.5)
    test_a_run_goes_on_as_if_nothing_had_happened(file, *EXACT["working sets with a bias"])


NEARLY = {
    "Newton": ({}, {"solver": "newton"}),
    "Newton, coupled outputs": ({"loss": "softmax"}, {"solver": "newton"}),
    "Newton with cones": ({"kind": "CReLU"}, {"solver": "newton"}),
    "working sets with cones": ({"kind": "CReLU", "loss": "softmax"}, {"solver": "working-sets"}),
}


@pytest.mark.parametrize(("posed", "settings"), NEARLY.values(), ids=NEARLY)
def test_a_run_goes_on_near_where_it_was(file, posed, settings):
    problem = make(**posed)
    whole = cvxnn.solve(problem, tol=1e-6, **settings)
    part = cvxnn.solve(problem, tol=1e-6, checkpoint=file, callback=stop_after(4), **settings)
    found = cvxnn.solve(problem, tol=1e-6, checkpoint=file, **settings)
    assert found.converged
    assert found.history[:4] == part.history
    assert found.n_iter > part.n_iter
    assert found.n_iter <= 1.5 * whole.n_iter + 10
    gaps = [p.relative_gap for p in found.history]
    assert max(gaps[4:]) <= 1.01 * gaps[3]  # nothing is lost
    assert found.certificate.objective <= whole.certificate.objective * (1 + 1e-6)
    assert "went on from the best weights" not in found.message


def test_a_method_that_cannot_go_on_says_where_it_began(file):
    problem = make("CReLU", share=0.1)
    part = cvxnn.solve(problem, "al", tol=1e-3, checkpoint=file, callback=stop_after(3))
    found = cvxnn.solve(problem, "al", tol=1e-3, checkpoint=file)
    assert found.converged
    assert "it went on from the best weights of its checkpoint" in found.message
    assert found.history[:3] == part.history
    assert found.n_iter > part.n_iter


def test_fewer_columns_go_on_from_the_best_weights(file):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 400))
    patterns = cvxnn.sample_patterns(X, 60, random_state=0)
    problem = cvxnn.CGReLU(X, rng.standard_normal((20, 2)), patterns, lam=0.05)
    part = cvxnn.solve(problem, "rfista", tol=1e-6, checkpoint=file, callback=stop_after(5))
    found = cvxnn.solve(problem, "rfista", tol=1e-6, checkpoint=file)
    assert found.converged
    assert found.history[:5] == part.history
    assert "went on from the best weights" in found.message


# ---- ends


PROGRAM = """
    import sys
    sys.path.insert(0, {folder!r})
    import time
    import cvxnn
    from test_checkpoints import make

    def slowly(progress):
        time.sleep(0.2)

    cvxnn.solve(make({posed}), {solver!r}, tol=1e-6, callback=slowly, checkpoint={file!r},
                checkpoint_seconds={seconds})
"""


@pytest.mark.parametrize("solver", ["working-sets", "rfista", "newton"])
def test_a_killed_process_loses_no_more_than_the_interval(file, solver, request):
    program = PROGRAM.format(
        folder=str(request.path.parent),
        posed="loss='softmax'",
        solver=solver,
        file=str(file),
        seconds=0.0,
    )
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)])
    while n_saved(file) < 3:
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait(timeout=60) == -signal.SIGKILL
    kept = n_saved(file)
    problem = make(loss="softmax")
    whole = cvxnn.solve(problem, solver, tol=1e-6)
    seen = []
    found = cvxnn.solve(problem, solver, tol=1e-6, checkpoint=file, callback=seen.append)
    assert found.converged
    assert len(found.history) == kept + len([p for p in seen if not p.note])
    n_iter = [p.n_iter for p in found.history]
    assert n_iter == sorted(n_iter)
    assert np.all(np.diff([p.seconds for p in found.history]) >= 0)
    assert found.certificate.objective == pytest.approx(whole.certificate.objective, rel=1e-6)
    if solver != "newton":
        np.testing.assert_array_equal(found.weights, whole.weights)


def n_saved(file):
    """Iterations in a file, which may be replaced at any moment."""
    return len(parse_tensors(file.read_bytes())["history"]) if file.exists() else 0


def test_the_file_is_written_every_so_often(file, monkeypatch):
    now, writes = [0.0], []
    monkeypatch.setattr(saving.budget, "clock", lambda: now[0])
    write = checkpoints.CheckpointFile.write

    def slow(*arguments):
        write(*arguments)
        writes.append(now[0])
        now[0] += 1.0

    monkeypatch.setattr(checkpoints.CheckpointFile, "write", slow)

    def tick(progress):
        now[0] += 0.0 if progress.note else 7.0

    solution = cvxnn.solve(
        make(), "rfista", max_iter=40, callback=tick, checkpoint=file, checkpoint_seconds=15,
        on_failure="ignore",
    )  # fmt: skip
    assert solution.status is Status.MAX_ITER
    # due 15 s after the start, then 20 times the second that a write takes; the last at the end
    assert writes[0] == 21.0
    assert set(np.diff(writes[:-1])) == {1.0 + 21.0}
    assert len(writes) == 14  # after every third of 41, and at the end


def test_limits(file):
    """Iterations are those of the whole run, the time is that of a call."""
    problem = make()
    settings = {"solver": "rfista", "tol": 1e-6, "checkpoint": file, "on_failure": "ignore"}
    assert cvxnn.solve(problem, max_iter=10, **settings).n_iter == 10
    assert cvxnn.solve(problem, max_iter=10, **settings).n_iter == 10
    assert cvxnn.solve(problem, max_iter=20, **settings).n_iter == 20
    hasty = cvxnn.solve(problem, max_seconds=1e-6, **settings)
    assert hasty.status is Status.TIME_LIMIT
    assert n_saved(file) == 21  # which was not replaced by less
    assert hasty.n_iter == 20
    assert hasty.certificate.objective < problem.loss.zero_value / 2
    assert cvxnn.solve(problem, max_seconds=60, **settings).converged


def test_what_was_proven_before_counts_without_time_for_more(file, monkeypatch):
    """A run that goes on and finds no time for an iterate ends with the bounds of its file."""
    problem, now = make(loss="softmax"), [0.0]
    settings = {"solver": "working-sets", "tol": 1e-6, "checkpoint": file, "on_failure": "ignore"}
    part = cvxnn.solve(problem, callback=stop_after(4), **settings)
    assert 0 < part.certificate.relative_gap < 0.5

    def slow(*arguments):
        now[0] += 1000.0
        budget.look()
        yield

    monkeypatch.setattr(budget, "clock", lambda: now[0])
    monkeypatch.setattr(cvxnn.WorkingSets, "resumed", slow)
    found = cvxnn.solve(problem, max_seconds=100.0, **settings)
    assert found.status is Status.TIME_LIMIT
    attained = pytest.approx(part.certificate.objective, rel=1e-14)  # another thread may add it up
    assert found.certificate.objective == attained
    assert found.certificate.lower_bound == part.certificate.lower_bound
    np.testing.assert_array_equal(found.weights, part.weights)


def test_a_finished_run_is_returned(file, monkeypatch):
    problem = make(loss="softmax")
    first = cvxnn.solve(problem, checkpoint=file)
    with monkeypatch.context() as patch:
        patch.setattr(cvxnn.WorkingSets, "iterates", None)
        patch.setattr(cvxnn.WorkingSets, "resumed", None)
        second = cvxnn.solve(problem, checkpoint=file)
        looser = cvxnn.solve(problem, checkpoint=file, tol=1e-2)
    assert second.status is looser.status is Status.CONVERGED
    np.testing.assert_array_equal(second.weights, first.weights)
    assert second.history == first.history
    assert second.certificate.relative_gap <= first.certificate.relative_gap + 1e-12
    closer = cvxnn.solve(problem, checkpoint=file, tol=1e-7)
    assert closer.converged
    assert closer.history[: len(first.history)] == first.history
    assert len(closer.history) > len(first.history)


def test_a_finished_run_of_the_published_rule_is_returned(file, monkeypatch):
    problem = make()
    first = cvxnn.solve(problem, "rfista", stop="paper", checkpoint=file)
    monkeypatch.setattr(cvxnn.RFISTA, "_from", None)
    second = cvxnn.solve(problem, "rfista", stop="paper", checkpoint=file)
    assert second.converged
    np.testing.assert_array_equal(second.weights, first.weights)


def test_a_full_disk_does_not_end_a_run(file, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "write_atomically", full)
    with pytest.warns(RuntimeWarning, match="could not be written: No space left") as caught:
        solution = cvxnn.solve(make(), "rfista", checkpoint=file, checkpoint_seconds=0)
    assert solution.converged
    assert len(caught) == 1
    assert not file.exists()


# ---- files of something else


CHANGES = {
    "another lam": ({"share": 0.03}, {}),
    "other data": ({"seed": 1}, {}),
    "fewer rows": ({"n": 79}, {}),
    "another loss": ({"loss": "huber"}, {}),
    "another penalty": ({"penalty": "l1"}, {}),
    "a bias": ({"output_bias": True}, {}),
    "another solver": ({}, {"solver": "newton"}),
    "other settings of the solver": ({}, {"restart": False}),
    "another rule": ({}, {"stop": "paper"}),
    "other weights of rows": ({"sample_weight": np.arange(1.0, 81.0)}, {}),
}


@pytest.mark.parametrize(("posed", "settings"), CHANGES.values(), ids=CHANGES)
def test_the_file_of_another_run_is_refused(file, posed, settings):
    usual = {"solver": "rfista", "max_iter": 5, "on_failure": "ignore", "checkpoint": file}
    cvxnn.solve(make(), **usual)
    before = file.read_bytes()
    match = "belongs to another problem, lam, solver or stopping rule: remove it, or choose"
    with pytest.raises(CheckpointError, match=match):
        cvxnn.solve(make(**posed), **usual | settings)
    assert file.read_bytes() == before


def test_files_of_other_kinds_are_refused(file):
    problem = make()
    file.write_text("notes of mine\n")
    with pytest.raises(CheckpointError, match="is not a run checkpoint, or damaged"):
        cvxnn.solve(problem, checkpoint=file)
    file.unlink()
    cvxnn.path(problem, n_lams=2, checkpoint=file)
    with pytest.raises(CheckpointError, match="is not a run checkpoint"):
        cvxnn.solve(problem, checkpoint=file)
    with pytest.raises(FileNotFoundError, match="checkpoint: there is no folder"):
        cvxnn.solve(problem, checkpoint=file / "nowhere" / "file")
    with pytest.raises(TypeError, match="checkpoint must be the name of a file, got int"):
        cvxnn.solve(problem, checkpoint=3)
    with pytest.raises(TypeError, match="checkpoint_seconds is given, but no checkpoint"):
        cvxnn.solve(problem, checkpoint_seconds=3)
    with pytest.raises(ValueError, match="checkpoint_seconds"):
        cvxnn.solve(problem, checkpoint="run", checkpoint_seconds=-1)


def rewrite(file, change):
    content = file.read_bytes()
    tensors = {name: tensor.copy() for name, tensor in parse_tensors(content).items()}
    size = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["cvxnn-run"])
    change(tensors, header)
    file.write_bytes(serialize_tensors(tensors, {"cvxnn-run": json.dumps(header)}))


INCONSISTENT = {
    "no weights": lambda tensors, header: tensors.pop("best.rows"),
    "no dual": lambda tensors, header: tensors.pop("best.dual"),
    "NaN in the dual": lambda tensors, header: tensors["best.dual"].fill(np.nan),
    "NaN in the weights": lambda tensors, header: tensors["best.rows"].fill(np.nan),
    "pairs beyond the last": lambda tensors, header: tensors["best.pairs"].fill(10**6),
    "a history of something else": lambda tensors, header: tensors.update(
        history=tensors["history"][:, :3]
    ),
    "no place of the method": lambda tensors, header: tensors.pop("method.curvature"),
    "text for a number": lambda tensors, header: header.update(n_iter="many"),
    "negative time": lambda tensors, header: header.update(seconds=-1.0),
    "no method": lambda tensors, header: header.pop("method"),
}


@pytest.mark.parametrize("change", INCONSISTENT.values(), ids=INCONSISTENT)
def test_an_inconsistent_file_is_refused(file, change):
    problem = make(loss="softmax")
    cvxnn.solve(problem, checkpoint=file, callback=stop_after(3))
    rewrite(file, change)
    with pytest.raises(CheckpointError, match="is inconsistent"):
        cvxnn.solve(problem, checkpoint=file)


@pytest.mark.parametrize("kind", ["CGReLU", "CReLU"])
def test_a_file_is_not_believed(file, kind):
    problem = make(kind)
    honest = cvxnn.solve(problem, tol=1e-6, checkpoint=file)

    def worse(tensors, header):
        tensors["best.rows"] *= 1.1
        tensors["history"][:, 2:5] = 0.0  # objective, bound and gap

    rewrite(file, worse)
    found = cvxnn.solve(problem, tol=1e-6, checkpoint=file)
    assert found.certificate.relative_gap <= 1e-6
    again = cvxnn.certify(problem, found.weights, found.dual)
    assert again.relative_gap <= 1e-6
    assert found.certificate.objective == pytest.approx(honest.certificate.objective, rel=2e-6)


def test_weights_outside_their_cones_are_refused(file):
    problem = make("CReLU")
    cvxnn.solve(problem, checkpoint=file)
    rewrite(file, lambda tensors, header: np.negative(*[tensors["best.rows"]] * 2))
    with pytest.raises(CheckpointError, match="outside their cones"):
        cvxnn.solve(problem, checkpoint=file)


# ---- the time left


def history_of(gaps, seconds):
    return [
        Progress(k, s, 1.0, 1 - g, g, None, None, k)
        for k, (g, s) in enumerate(zip(gaps, seconds, strict=True))
    ]


def test_the_time_left_follows_the_trend():
    seconds = np.arange(0.0, 21.0)
    history = history_of(10 ** (-seconds / 10), seconds)  # 1e-2 after 20 s
    assert seconds_left(history, 1e-3) == pytest.approx(10.0)
    assert seconds_left(history, 1e-2) == 0.0
    assert seconds_left(history, 0.0) is None
    early = np.where(seconds < 10, 1.0, 10 ** (-(seconds - 9) / 5))
    assert seconds_left(history_of(early, seconds), 1e-3) == pytest.approx(4.0)


def test_the_time_left_is_unknown_without_a_trend():
    assert seconds_left([], 1e-3) is None
    assert seconds_left(history_of([1.0] * 9, range(9)), 1e-3) is None
    assert seconds_left(history_of([0.5] * 9, range(9)), 1e-3) is None
    assert seconds_left(history_of([0.5, 0.4], [0, 1]), 1e-3) is None
    assert seconds_left(history_of([0.5, 0.4, 0.3, 0.2, 0.1], [1.0] * 5), 1e-3) is None
    residuals = [Progress(k, k, 1.0, 0.0, 1.0, 10.0**-k, None, k) for k in range(9)]
    assert seconds_left(residuals, 1e-10, "paper") == pytest.approx(2.0)
    assert seconds_left(residuals, 1e-10) is None


def test_callbacks_see_the_time_left():
    seen = []
    solution = cvxnn.solve(make(), "rfista", tol=1e-6, callback=seen.append)
    guesses = [p.seconds_left for p in seen if p.seconds_left is not None]
    assert len(guesses) > len(seen) / 2
    assert min(guesses) >= 0
    halfway = seen[len(seen) // 2]
    assert halfway.seconds_left is not None
    rest = solution.seconds - halfway.seconds
    assert rest / 20 < halfway.seconds_left < 20 * rest + 0.1
    assert not math.isnan(halfway.seconds_left)
