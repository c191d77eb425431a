"""
Images, patches and long runs
=============================

The rows of X may be pictures. Then gates need not look at all pixels: ``PatchGates`` draws gates
that look at one small patch each, as the first layer of a convolutional network does. A large set
of pictures takes hours to train on, so this lesson also shows how a run is watched, stopped, and
continued later. Our pictures are small: 1,797 digits of 8 x 8 pixels.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import cvxnn

pixels, digits = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(pixels / 16, digits, random_state=0)

# %%
# The mean picture
# ----------------
#
# All pixels are bright together, or dark together. That one direction outweighs all others, and has
# two effects: random gates become nearly equal, and methods of first order become slow. So the mean
# picture of the training set is subtracted, from new pictures as well. (The estimators do so by
# themselves; here we work with the convex program.)

mean = X.mean(axis=0)
targets = np.eye(10)[y]


def posed(rows, gates=None):
    """A gated network with ten classes, at a hundredth of the penalty where it would be zero."""
    patterns = cvxnn.sample_patterns(rows, 60, gates=gates, random_state=0)
    problem = cvxnn.CGReLU(rows, targets, patterns, lam=1.0, loss="softmax")
    return problem.with_lam(0.01 * cvxnn.lambda_max(problem))


bright, centred = (cvxnn.solve(posed(rows), tol=1e-2) for rows in (X, X - mean))
print(f"as they are: {bright.n_iter} iterations, less the mean: {centred.n_iter}")

# %%
# Gates on patches
# ----------------
#
# ``image_shape`` says how a row is a picture. For pictures in colour it has three numbers, and
# ``channel_axis`` says which of them counts the colours.

gates = cvxnn.PatchGates(image_shape=(8, 8), size=4)
problem = posed(X - mean, gates)

figure, axes = plt.subplots(2, 8, figsize=(8, 2.3), layout="constrained")
for ax, gate in zip(axes.flat, problem.patterns.gates.T, strict=False):
    ax.imshow(gate.reshape(8, 8), cmap="RdBu", vmin=-2, vmax=2)
    ax.set(xticks=[], yticks=[])
figure.suptitle("16 of the gates: which pixels they look at")

# %%
# A run that goes on
# ------------------
#
# With ``checkpoint`` the run is kept in a file, once a minute. Here a callback stops it at
# a gap of 0.1. It could as well be a time limit, Ctrl-C, or somebody who pulls the plug. The same
# call goes on from the file, with the steps that it would have taken anyway.


def rough(progress):
    return progress.relative_gap < 0.1


with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "digits.run"
    stopped = cvxnn.solve(problem, tol=1e-3, checkpoint=file, callback=rough)
    print(stopped)
    guesses = []
    solution = cvxnn.solve(
        problem,
        tol=1e-3,
        checkpoint=file,
        callback=lambda progress: guesses.append(progress.seconds_left),
    )
print(solution)

# %%
# Iterations, seconds and history are those of the whole run. ``seconds_left`` is a guess at what
# remains: the gap falls by about the same factor in the same time.

assert solution.n_iter > stopped.n_iter
assert solution.history[: len(stopped.history)] == stopped.history
cvxnn.plot_convergence(solution)

# %%
# What it is worth
# ----------------


def accuracy(found):
    return np.mean(found.network().predict(X_test - mean).argmax(axis=1) == y_test)


print(f"gates on patches:     test accuracy {accuracy(solution):.3f}")
print(f"gates on all pixels:  test accuracy {accuracy(centred):.3f}")
print(solution.certificate)

# %%
# Where the two networks differ is chance here: 450 test pictures tell apart hundredths at best.

wrong = np.flatnonzero(solution.network().predict(X_test - mean).argmax(axis=1) != y_test)[:8]
figure, axes = plt.subplots(1, 8, figsize=(10, 1.8), layout="constrained")
for ax, k in zip(axes, wrong, strict=False):
    scores = solution.network().predict(X_test[k : k + 1] - mean)[0]
    ax.imshow(X_test[k].reshape(8, 8), cmap="gray_r")
    ax.set_title(f"{y_test[k]}, taken\nfor {scores.argmax()}", fontsize=9)
for ax in axes:
    ax.axis("off")
# sphinx_gallery_thumbnail_number = 1
plt.show()
