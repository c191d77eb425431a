"""
Comparing solvers with a performance profile
============================================

Which solver is the quickest depends on the problem, so one table of times says little. A
performance profile (Dolan and Moré, 2002) shows many problems at once: for each solver the share of
them that it solves within so many times the time of the quickest.
"""

import itertools

import matplotlib.pyplot as plt
import numpy as np

import cvxnn

# %%
# A small contest
# ---------------
#
# Random gated problems of three sizes, three penalties and two seeds. All solvers have to reach the
# same certified gap within the same time, otherwise they have failed: the times are inf.

TOLERANCE, SECONDS = 1e-4, 0.2


def problems():
    for (n, d), share, seed in itertools.product(
        ((50, 5), (100, 10), (200, 20)), (0.3, 0.1, 0.03), range(2)
    ):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n, d))
        y = np.maximum(X @ rng.standard_normal((d, 3)), 0) @ rng.standard_normal(3)
        patterns = cvxnn.sample_patterns(X, 50, random_state=seed)
        problem = cvxnn.CGReLU(X, y, patterns, lam=1.0)
        yield problem.with_lam(share * cvxnn.lambda_max(problem))


def seconds(problem, solver):
    limits = {"tol": TOLERANCE, "max_seconds": SECONDS, "max_iter": 10**6}
    solution = cvxnn.solve(problem, solver, **limits, on_failure="ignore")
    return solution.seconds if solution.converged else np.inf


solvers = {
    "newton": cvxnn.Newton(),
    "rfista": cvxnn.RFISTA(),
    "rfista without restarts": cvxnn.RFISTA(restart=False),
    "plain proximal gradient": cvxnn.RFISTA(acceleration=False, restart=False),
}
times = {name: [] for name in solvers}
for problem in problems():
    for name, solver in solvers.items():
        times[name].append(seconds(problem, solver))

cvxnn.plot_performance_profile(times)

# %%
# Read the left edge first: how often each solver is the quickest. The height at the right is how
# often it succeeds at all. In between, a curve that is further left is better.
#
# These are small problems, solved once each by the machine that built this page. They show how to
# compare, not which solver to take. Times that were taken with care are in :doc:`/benchmarks`.

plt.show()
