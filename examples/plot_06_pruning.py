"""
Fewer neurons, the same predictions
===================================

A network with more neurons than rows is redundant on these rows: what one neuron adds can be made
up by others. `prune` leaves out neurons until none can go, keeps the predictions on the rows that
it is given, and never raises the objective.
"""

import matplotlib.pyplot as plt
import numpy as np

import cvxnn

# %%
# A wide network
# --------------
#
# 300 random neurons on 25 rows, with the second layer fitted by least squares. Its curve goes
# through all the data.

rng = np.random.default_rng(0)
x = np.linspace(-2, 2, 25)[:, None]
y = np.cos(3 * x[:, 0]) * x[:, 0]

W1 = rng.standard_normal((300, 1))
b1 = 2 * rng.standard_normal(300)
hidden = np.maximum(x @ W1.T + b1, 0)
W2 = np.linalg.lstsq(hidden, y[:, None])[0]
wide = cvxnn.ReLUNetwork(W1=W1, b1=b1, W2=W2, flat_output=True)

# %%
# Pruned
# ------

small = cvxnn.prune(wide, x)
change = np.abs(small.predict(x) - wide.predict(x)).max()
print(f"{wide.n_neurons} -> {small.n_neurons} neurons, largest change on the rows {change:.1e}")
for name, network in (("wide", wide.balanced()), ("small", small)):
    print(f"{name}: objective {network.objective(x, y, lam=1e-3):.4f}")

figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained", sharey=True)
for network, ax in zip((wide, small), axes, strict=True):
    cvxnn.plot_function(network, x, y, ax)
    ax.set_title(f"{network.n_neurons} neurons", fontsize=10)

# %%
# Both curves go through the same data. Between them they differ a little, because nothing that
# `prune` was given says what should be there. That is the price, and the reason to check the result
# on rows that were kept back.
#
# More rows to agree on
# ---------------------
#
# The rows need no targets, so they may be any that matter. On a fine grid fewer neurons can go, and
# the function stays what it was.

grid = np.linspace(-2, 2, 200)[:, None]
careful = cvxnn.prune(wide, grid)
for name, network in (("on 25 rows", small), ("on 200 rows", careful)):
    change = np.abs(network.predict(grid) - wide.predict(grid)).max()
    print(f"pruned {name}: {network.n_neurons} neurons, largest change on the grid {change:.1e}")

# %%
# Minimal means that no neuron of the result can go, however the others are scaled. A network of
# other neurons may be smaller still, and one that may deviate a little from the data smaller yet.
# Training with a penalty finds such a one:

trained = cvxnn.ReLURegressor(alpha=1e-3).fit(x, y)
print(f"trained with a penalty: {trained.network_.n_neurons} neurons")
cvxnn.plot_function(trained, x, y)

# %%
# How it works, and a bound on how much predictions can change elsewhere: :doc:`/pruning`.

plt.show()
