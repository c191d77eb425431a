"""How times to a threshold are read off runs (replication/figure4)."""

from __future__ import annotations

import math

import pytest
from replication.experiment import Done, Judgement
from replication.figure4.convex import Moment, thinned
from replication.figure4.judging import LEAST, verdicts
from replication.figure4.profiles import FASTEST, FINAL, Contest, Passing, Profile, passing


def test_a_thinned_trace_passes_thresholds_when_the_run_did():
    """The levels (1 + r) times the last objective are met at their exact times."""
    points = [Moment(0.01 * k, 1.0 + 50 * 0.97**k, k) for k in range(400)]
    trace = thinned(points)
    assert len(trace) <= 40
    last = min(point.objective for point in points)
    for r in (1.0, 0.5, 0.1):
        level = (1 + r) * last * (1 + 1e-5)  # six digits are kept
        exact = next(point for point in points if point.objective <= level)
        assert passing(trace, level) == (pytest.approx(exact.seconds), exact.iterations)


def test_a_trace_keeps_the_best_objective_of_a_run_that_jumps():
    points = [Moment(0, 2.0, 0), Moment(1, 1.0, 1), Moment(2, 9.0, 2), Moment(3, math.inf, 3)]
    assert thinned(points) == [[0.0, 2.0, 0], [1.0, 1.0, 1]]
    assert passing(thinned(points), 0.5) == Passing(math.inf, math.inf)


def test_half_of_the_problems():
    profile = Profile([Passing(4.0, 40), Passing(), Passing(1.0, 10), Passing(2.0, 20)])
    assert profile.share == 0.75
    assert profile.half == Passing(2.0, 20)
    assert math.isinf(Profile([Passing(), Passing(), Passing(1.0, 1)]).half.seconds)


def _descent(objective: float | None, steady: bool, seconds: float) -> dict[str, object]:
    trace = [[0.0, 10.0, 0], [seconds, objective or 10.0, 5]]
    return {"objective": objective, "steady": steady, "trace": trace}


def test_which_run_of_gradient_descent_counts():
    """The fastest steady success, or the run that ends lowest; F* is over all of them."""
    runs = [
        _descent(1.9, steady=True, seconds=1.0),
        _descent(1.0, steady=True, seconds=3.0),
        _descent(1.5, steady=False, seconds=0.5),
        _descent(None, steady=False, seconds=0.1),
    ]
    failed = [_descent(None, steady=False, seconds=0.1), _descent(5.0, steady=True, seconds=1.0)]
    row = {
        "newton": {"objective": 1.2, "trace": [[0.0, 10.0, 0], [0.2, 1.2, 3]]},
        "rfista": {"objective": 2.5, "trace": [[0.0, 10.0, 0], [0.1, 2.5, 9]]},
        "descent": {"convex": {"adam": runs, "sgd": failed}},
    }
    contest = Contest({"kind": "gated"}, row)
    assert contest.best() == 1.0
    assert contest.passing("adam", 1.0, FASTEST) == Passing(1.0, 5)
    assert contest.passing("adam", 1.0, FINAL) == Passing(3.0, 5)
    assert contest.passing("sgd", 1.0) == Passing()
    assert contest.passing("rfista", 1.0) == Passing()
    assert contest.passing("newton", 0.5) == Passing(0.2, 3)


def _piece(kind: str, number: int, late: float) -> Done:
    """A problem that its convex method solves in a second, gradient descent `late` times later."""

    def solved(seconds: float) -> dict[str, object]:
        return {"objective": 1.0, "gap": 0.0, "trace": [[0.0, 10.0, 0], [seconds, 1.0, 9]]}

    run = {**_descent(1.0, steady=True, seconds=late), "rescaled": 1.0}
    row = {
        "zero": False,
        "outputs": 1,
        "patterns": 100,
        "newton": {**solved(0.1), "seconds": 0.1},
        "rfista" if kind == "gated" else "al": solved(1.0),
        "conic": {**solved(50.0), "seconds": 50.0, "megabytes": 1000},
        "descent": {"convex": {"adam": [run], "sgd": [run]}},
    }
    settings = {"part": "rivals", "kind": kind, "set": "glass", "lam": 1e-3}
    return Done(f"{kind}/{number}", settings, row, 1.0, "desk", "")


def test_verdicts_follow_the_times():
    def judged(late: float, problems: int = LEAST) -> dict[str, Judgement]:
        kinds = ("gated", "relu")
        pieces = [_piece(kind, k, late) for kind in kinds for k in range(problems)]
        return {verdict.claim: verdict.judgement for verdict in verdicts(pieces)}

    assert set(judged(100.0, LEAST - 1).values()) == {Judgement.OPEN}
    much_later, sooner = judged(100.0), judged(0.5)
    assert much_later["F4a"] == much_later["ABS"] == much_later["F4c"] == Judgement.HOLDS
    assert sooner["F4a"] == sooner["ABS"] == Judgement.FAILS
    assert much_later["F4b"] == Judgement.FAILS  # both solve all: none solves more
    assert judged(10.0)["F4a"] == Judgement.FAILS
    assert much_later["F7F8"] == Judgement.HOLDS
