"""
What a certificate says, and how to check it
============================================

Most training ends when somebody runs out of patience. Here it ends with two numbers: the objective
of the weights, and a lower bound that no weights for the same patterns can get below. This lesson
watches the two meet, stops early on purpose, and has a certificate checked by a second program.
"""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np

import cvxnn

rng = np.random.default_rng(0)
X = rng.standard_normal((300, 6))
y = np.maximum(X[:, 0] + X[:, 1], 0) - np.maximum(X[:, 2], 0) + 0.2 * rng.standard_normal(300)
patterns = cvxnn.sample_patterns(X, 150, random_state=0)
problem = cvxnn.CGReLU(X, y, patterns, lam=0.01)

# %%
# Two curves that meet
# --------------------
#
# In every iteration the solver has weights, whose objective is an upper bound, and a point of the
# dual problem, whose value is a lower bound. The optimal value is in between.

solution = cvxnn.solve(problem, tol=1e-8)
print(solution)
cvxnn.plot_convergence(solution)

# %%
# Stopping early
# --------------
#
# A first-order method that is stopped after 30 iterations has not converged, and says so. Its
# certificate is as true as any other. It only says less: the interval is wider.

hasty = cvxnn.solve(problem, "rfista", max_iter=30, on_failure="ignore")
print(hasty.status, "-", hasty.message)
print(hasty.certificate)
assert hasty.certificate.lower_bound <= solution.certificate.objective

# %%
# A second opinion
# ----------------
#
# Bounds are computed by programs, and programs have bugs. `verify` recomputes everything that a
# certificate claims from the data, the weights and the dual point, in plain NumPy and SciPy. It
# shares no code with the solvers.

print(cvxnn.verify(solution))

# %%
# It notices what is wrong. Suppose the bound had been a hundredth better than what is true:

certificate = solution.certificate
boast = replace(certificate, lower_bound=1.01 * certificate.lower_bound)
print(cvxnn.verify(replace(solution, certificate=boast)))

# %%
# What it does not say
# --------------------
#
# The certificate is about these 150 patterns. Other patterns are another problem, with another
# optimal value. More of them can only help, and the picture shows how much they do here: the value
# of each problem is known to all digits that can be seen, what further patterns would bring is not.

counts = [10, 30, 100, 300, 1000]
everything = cvxnn.sample_patterns(X, counts[-1], random_state=0)
values = []
for count in counts:
    part = cvxnn.CGReLU(X, y, everything.select(slice(count)), lam=0.01)
    values.append(cvxnn.solve(part, tol=1e-6).certificate.objective)

figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
ax.semilogx(counts, values, "o-")
ax.set(xlabel="sampled patterns", ylabel="optimal value")
ax.grid(alpha=0.25)
plt.show()
