"""What Figures 9 to 17 are made of: profiles, passes, and what is watched inside of the AL."""

import math

import numpy as np
import pytest
from replication import ablations
from replication.figure9.experiment import ReleasedRFISTA
from replication.figure15.experiment import WatchedRFISTA

import cvxnn
from test_crelu import make_crelu


def test_profiles_count_unsolved_problems():
    rows = [{"solved": k < 8, "passes": 10 * (k + 1)} for k in range(10)]
    profile = ablations.Profile.of(reversed(rows))
    assert profile.share == 0.8
    assert profile.reaches(0.5) == 50
    assert profile.reaches(0.8) == 80
    assert profile.reaches(0.81) is None
    assert profile.within(35) == 0.3


def test_traces_keep_both_ends():
    columns = {"x": list(range(1000)), "y": [math.inf] * 1000}
    thin = ablations.thinned(columns)
    assert len(thin["x"]) <= ablations.POINTS
    assert (thin["x"][0], thin["x"][-1]) == (0, 999)
    assert thin["y"][0] is None


def test_the_released_momentum_is_another_one():
    t = 10.0
    assert ReleasedRFISTA().next_momentum(t) == pytest.approx(
        (1 + math.sqrt(401) / 2, 9 / (1 + math.sqrt(401) / 2))
    )
    assert cvxnn.RFISTA().next_momentum(t)[0] == pytest.approx((1 + math.sqrt(401)) / 2)


def test_watching_finds_the_rule_where_the_solver_stops():
    """The released rule is met at the last point and at none before; the printed one earlier."""
    problem = make_crelu()
    watched = WatchedRFISTA(every_gap=True)
    method = cvxnn.AL(gap_tol=1e-6, inner=watched)
    solution = cvxnn.solve(problem, method, stop="paper", on_failure="ignore")
    assert solution.converged
    assert watched.seen.first(1e-6) == solution.history[-1].n_trials - 2
    assert watched.seen.first(1e-3) <= watched.seen.first(1e-6)
    assert watched.seen.first(0.0) is None
    assert np.all(np.diff([trials for trials, _, _ in watched.seen]) >= 0)
