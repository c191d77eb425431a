"""
Improving a network of scikit-learn
===================================

Networks that were trained by gradient steps have activation patterns too. With these fixed,
training is convex, and the given network is one of the candidates. `improve` goes from there to the
optimum. The training objective can only fall, and there is a bound on how far it could.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import cvxnn

X, y = make_moons(600, noise=0.25, random_state=0)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, random_state=0)

# %%
# The given network
# -----------------
#
# An `MLPClassifier` of 30 neurons, trained by Adam.

mlp = MLPClassifier(hidden_layer_sizes=(30,), max_iter=2000, random_state=0).fit(X, y)

# %%
# Improved
# --------
#
# `alpha` is the weight decay of the objective to improve. scikit-learn penalises a little
# differently, so its network was trained for another objective: part of what is gained here is no
# fault of its training.

result = cvxnn.improve(mlp, X, y, alpha=1e-3)
print(result)

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
for name, network, ax in zip(
    ("given", "improved"), (result.given, result.network), axes, strict=True
):
    cvxnn.plot_decision_boundary(network, X, y, ax)
    ax.set_title(f"{name}: {network.n_neurons} neurons", fontsize=10)

# %%
# More patterns
# -------------
#
# The bound speaks of networks with the patterns of the given one. Improving the result again moves
# on to neighbouring patterns, and sampled patterns can be added: the objective falls further, as it
# must. No step is worse than the one before.

steps = [result]
for _ in range(3):
    steps.append(cvxnn.improve(steps[-1].network, X, y, alpha=1e-3))
more = cvxnn.improve(mlp, X, y, alpha=1e-3, n_patterns=200, random_state=0)

names = ["given", "improved", "2 times", "3 times", "4 times", "with 200\npatterns"]
objectives = [result.before, *(step.after for step in steps), more.after]
figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
ax.bar(names, objectives, color="#0072B2")
ax.bar_label(ax.containers[0], fmt="%.4f", fontsize=8)
ax.set_ylabel("training objective")
ax.spines[["top", "right"]].set_visible(False)

# %%
# New data
# --------
#
# Nothing is promised about rows that were not trained on. They have to be asked:


def accuracy(network):
    predicted = result.classes[(network.predict(X_test) > 0).astype(int)]
    return np.mean(predicted == y_test)


for name, network in (
    ("given", result.given),
    ("improved", result.network),
    ("with 200 patterns", more.network),
):
    print(f"{name:>17}: test accuracy {accuracy(network):.3f}")

# %%
# With 300 test rows, differences of one or two hundredths are chance. What is guaranteed, and what
# is not: :doc:`/improving`.

plt.show()
