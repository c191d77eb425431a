"""
A decision boundary, and the neurons behind it
==============================================

A ReLU network in the plane is made of linear pieces, and every neuron is a straight line: on one
side of it the neuron is off, on the other it is on. This lesson trains networks on two moons and
draws the boundary between the classes together with these lines.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs, make_moons

import cvxnn

X, y = make_moons(200, noise=0.25, random_state=0)

# %%
# One network
# -----------
#
# Training samples activation patterns, that is, ways in which a line can divide the rows into those
# where a neuron is on and those where it is off. With the patterns fixed, training is a convex
# problem, which is solved to its optimum. The certificate says how near: the objective is above the
# optimal value, the lower bound is below it.

model = cvxnn.ReLUClassifier(alpha=1e-2, n_patterns=200).fit(X, y)
print(model.certificate_)
print(f"{model.network_.n_neurons} neurons, accuracy {model.score(X, y):.3f} on the training rows")
cvxnn.plot_decision_boundary(model, X, y)

# %%
# Colours fade where the network is unsure. Dashed lines are the neurons; the wider a line, the
# sharper the function bends there. The solid boundary is straight between dashed lines and turns
# only where it meets one.
#
# The penalty
# -----------
#
# `alpha` is the strength of the weight decay. It decides how many neurons are worth their weight:
# at the optimum most of the sampled patterns have none.

figure, axes = plt.subplots(1, 3, figsize=(10, 3.3), layout="constrained", sharey=True)
for alpha, ax in zip((0.1, 1e-2, 1e-4), axes, strict=True):
    model = cvxnn.ReLUClassifier(alpha=alpha, n_patterns=200).fit(X, y)
    cvxnn.plot_decision_boundary(model, X, y, ax)
    ax.set_title(f"alpha = {alpha:g}: {model.network_.n_neurons} neurons", fontsize=10)
    ax.get_legend().remove()

# %%
# All three are optimal for their `alpha`, up to the gap that the certificate states. Which `alpha`
# is right for new data is another question: see :doc:`plot_04_cross_validation`.
#
# Gates, and more classes
# -----------------------
#
# A gated neuron has a line that training does not move, and weights of its own behind it. Such a
# network may jump at its lines, so its boundary is ragged. With more than two classes every class
# has neurons of its own.

centres = [[-4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [0.0, -4.0]]
X_four, y_four = make_blobs(200, centers=centres, cluster_std=1.7, random_state=0)
names = np.array(["west", "east", "north", "south"])[y_four]

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
gated = cvxnn.GatedReLUClassifier(alpha=5e-3, n_patterns=200).fit(X, y)
cvxnn.plot_decision_boundary(gated, X, y, left)
left.set_title("gated ReLU, two moons", fontsize=10)
four = cvxnn.ReLUClassifier(alpha=5e-3, n_patterns=200).fit(X_four, names)
cvxnn.plot_decision_boundary(four, X_four, names, right)
right.set_title("ReLU, four classes", fontsize=10)

# %%
# What is proven is that no network with these patterns (for the gated one: with these gates) has a
# training objective below the bound. Other patterns might have one, and nothing is proven about new
# data. :doc:`/certificates` says it in full.

plt.show()
