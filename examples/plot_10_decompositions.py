"""
From gates to ReLUs: cone decompositions
========================================

Gated networks are quicker to train than ReLU networks, because their weights are free. A ReLU
neuron with a given activation pattern is not: its weights lie in a cone. A cone decomposition
writes a gated weight `u` as a difference `v - w` of two weights in the cone. Two ReLU neurons then
do what one gated neuron does.
"""

import matplotlib.pyplot as plt
import numpy as np

import cvxnn


def gated_solution(n):
    """A gated network on n rows with two features; fewer rows are the first of more."""
    X = np.random.default_rng(1).standard_normal((n, 2))
    y = np.maximum(X[:, 0], 0) - np.maximum(X[:, 1] - X[:, 0], 0)
    patterns = cvxnn.sample_patterns(X, 20, random_state=0)
    return cvxnn.solve(cvxnn.CGReLU(X, y, patterns, lam=0.01), tol=1e-6)


# %%
# One neuron
# ----------
#
# The shaded cone is the set of weights with which a ReLU neuron is on for the rows that the gate
# switches on, and off for the others. `u` is outside. `v` and `w` are inside, and `v - w = u`:
# follow the dotted lines.

gated = gated_solution(6)
relu = cvxnn.decompose(gated)
cvxnn.plot_decomposition(relu)

# %%
# On the training rows the two networks agree, so the loss is the same.

X = gated.problem.operator.X
difference = np.abs(relu.network().predict(X) - gated.network().predict(X)).max()
print(f"largest difference of the predictions: {difference:.1e}")

# %%
# What it costs
# -------------
#
# The penalty is on norms, and `v` and `w` together are longer than `u`. Every row is a constraint,
# so the more rows, the narrower the cones, and in a narrow cone it takes long vectors to have a
# given difference. The neurons with the largest growth:

figure, axes = plt.subplots(1, 3, figsize=(10, 3.8), layout="constrained")
for n, ax in zip((5, 10, 40), axes, strict=True):
    relu = cvxnn.decompose(gated_solution(n))
    cvxnn.plot_decomposition(relu, int(np.argmax(relu.block_ratios)), ax)
    ax.set_xlabel(f"{n} rows")
    print(f"{n} rows: {relu.norm_ratio:.2g} times the norm over all neurons")

# %%
# So a decomposition is feasible for the ReLU problem and not optimal. Its certificate says how far
# it may be from the optimum; solving the ReLU problem closes the gap.

optimal = cvxnn.solve(relu.problem, tol=1e-6)
print("decomposed:", relu.certificate)
print("solved:    ", optimal.certificate)

# %%
# The ways to decompose, and their bounds: :doc:`/decompositions`.

plt.show()
