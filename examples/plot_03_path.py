"""
A regularisation path
=====================

How much penalty is right? A path solves the problem for many strengths `lam`, from the smallest at
which the network is zero down to a hundredth of that. Each point starts from the one before, which
saves most of the work, and each has a certificate of its own.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

import cvxnn

X, y = load_diabetes(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, random_state=0)
centre, spread = X.mean(axis=0), X.std(axis=0)
X, X_test = (X - centre) / spread, (X_test - centre) / spread
y, y_test = (y - y.mean()) / y.std(), (y_test - y.mean()) / y.std()

patterns = cvxnn.sample_patterns(X, 100, bias=True, random_state=0)
problem = cvxnn.CReLU(X, y, patterns, lam=1.0, bias=True)  # this lam is not used
path = cvxnn.path(problem, n_lams=30, eps=1e-2, tol=1e-4)
print(path)

# %%
# Neurons join one by one
# -----------------------
#
# Read the picture from left to right, as the penalty falls. At `lambda_max` everything is zero.
# Then neurons become active one after another; some of them leave again.

cvxnn.plot_path(path)

# %%
# What is certified
# -----------------
#
# Objective and lower bound of every point, drawn together. They look like one curve because the
# relative gap is at most 1e-4 all along.

cvxnn.plot_path(path, show="objective")

# %%
# Which point to take
# -------------------
#
# The objective cannot say: it falls all the way. Rows that were not used for training can.

errors = [np.mean((point.network().predict(X_test) - y_test) ** 2) for point in path]
training = [np.mean((point.network().predict(X) - y) ** 2) for point in path]
best = int(np.argmin(errors))

figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
ax.semilogx(path.lams, training, label="training rows")
ax.semilogx(path.lams, errors, label="other rows")
ax.axvline(path.lams[best], color="grey", linestyle="--", label="best on other rows")
ax.invert_xaxis()
ax.set(xlabel="lam", ylabel="mean squared error")
ax.grid(alpha=0.25)
ax.legend(frameon=False)

print(f"lam = {path.lams[best]:.3g}: {path[best].n_active} neurons, error {errors[best]:.3f}")

# %%
# The error at the chosen point is a little too good to be true, because the point was chosen for
# it. An honest estimate needs rows that took no part in the choice either. More about paths:
# :doc:`/paths`.

plt.show()
