"""
Optimal among all networks
==========================

So far every certificate spoke about the patterns that were sampled: no network *with these
patterns* is better. ``cvxnn.train`` goes further. It generates the patterns that pay, and where the
rows span few dimensions it proves that no ReLU network of any width, with any patterns, is better
by more than a stated gap. Training a network is not a convex problem, and still this is a theorem
about it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

import cvxnn

# %%
# One input
# ---------
#
# With a single column and a bias there are only two directions in which neurons can look, and one
# place for the kink of each. The price of every possible neuron is a sum over the rows on one side
# of its kink, so all of them are computed at once, and the proof is exact. The strength of the
# penalty decides how many kinks a network can afford.

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(-2, 2, 150))
y = np.sin(3 * x) + 0.5 * np.abs(x) + 0.2 * rng.standard_normal(150)
grid = np.linspace(-2, 2, 400)[:, None]

figure, axes = plt.subplots(1, 4, figsize=(11, 2.8), sharey=True, layout="constrained")
for ax, lam in zip(axes, (0.1, 0.03, 0.01, 0.001), strict=True):
    result = cvxnn.train(x[:, None], y, lam, tol=1e-6)
    assert result.bound.over_all_patterns
    ax.scatter(x, y, s=6, color="0.7")
    ax.plot(grid[:, 0], result.network.predict(grid), color="C0")
    for w, b in zip(result.network.W1[:, 0], result.network.b1, strict=True):
        if abs(w) > 0 and abs(b / w) < 2:
            ax.axvline(-b / w, color="C1", linewidth=0.6)  # where a neuron begins
    ax.set_title(
        f"lam = {lam:g}: {result.network.n_neurons} neurons\n"
        f"within {result.bound.relative_gap:.0e} of the best",
        fontsize=9,
    )

# %%
# Two inputs
# ----------
#
# Two columns and a bias make three dimensions. The directions in them are covered by cones, and a
# bound on the price of each cone is computed; cones whose bound is too high are cut in two. What
# remains is a tree of cones: a proof that can be saved and checked.

X, labels = make_moons(200, noise=0.2, random_state=0)
signs = np.where(labels == 1, 1.0, -1.0)
horizontal, vertical = np.meshgrid(np.linspace(-1.6, 2.6, 120), np.linspace(-1.2, 1.7, 120))
plane = np.column_stack([horizontal.ravel(), vertical.ravel()])

results = []
figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), sharey=True, layout="constrained")
for ax, lam in zip(axes, (0.03, 0.01, 0.003), strict=True):
    result = cvxnn.train(X, signs, lam, loss="logistic", tol=1e-4)
    results.append(result)
    outputs = result.network.predict(plane).reshape(horizontal.shape)
    ax.contourf(horizontal, vertical, outputs, levels=[-99, 0, 99], colors=["C1", "C0"], alpha=0.2)
    ax.contour(horizontal, vertical, outputs, levels=[0], colors="0.2")
    ax.scatter(*X.T, s=8, c=np.where(labels == 1, "C0", "C1"))
    ax.set_title(
        f"lam = {lam:g}: {result.network.n_neurons} neurons\n"
        f"within {result.bound.relative_gap:.0e} of the best",
        fontsize=9,
    )

# %%
# What it says, and what it does not
# ----------------------------------
#
# The words of a result name what its bound covers. The patterns of random gates, 500 of them, are
# a heuristic: their program has a certificate too, but over these patterns, and its value is higher
# than what generation has found.

print(results[-1])

lam = results[-1].lam
patterns = cvxnn.sample_patterns(X, 500, bias=True, random_state=0)
sampled = cvxnn.solve(cvxnn.CReLU(X, signs, patterns, lam, loss="logistic", bias=True))
print(f"500 random patterns: {sampled.certificate.objective:.5f}")
print(f"generated patterns:  {results[-1].bound.objective:.5f}")
print(f"all patterns:    >=  {results[-1].bound.lower_bound:.5f}")

# %%
# Optimal is a statement about the training objective. Whether the network predicts new rows well is
# another question, which the strength of the penalty decides, and cross-validation answers.
