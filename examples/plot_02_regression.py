"""
A function of one variable, optimal among all networks
======================================================

With one feature a ReLU network is a line with kinks, which its neurons make. So it is easy to see
what is learned. It also is the rare case in which *all* activation patterns can be listed, so that
the certificate holds for every network there is, of any width.
"""

import matplotlib.pyplot as plt
import numpy as np

import cvxnn

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(-3, 3, 80))[:, None]
y = np.sin(2 * x[:, 0]) + 0.2 * rng.standard_normal(80)

# %%
# Weight decay chooses the kinks
# ------------------------------
#
# The kinks are not placed by hand. The penalty makes each of them cost something, and the optimum
# keeps those that are worth it.

figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained", sharey=True)
for alpha, ax in zip((0.03, 3e-3, 1e-5), axes, strict=True):
    model = cvxnn.ReLURegressor(alpha=alpha).fit(x, y)
    cvxnn.plot_function(model, x, y, ax)
    ax.set_title(f"alpha = {alpha:g}: {model.network_.n_neurons} neurons", fontsize=10)
    ax.get_legend().remove()

# %%
# Circles are kinks, dots are data. There are fewer kinks than neurons because some neurons share
# one. With much penalty the function is too plain, with very little it runs after the noise.
#
# All patterns
# ------------
#
# The estimator samples patterns. In one dimension there is no need to: a neuron is on to the right
# of a point or to the left of it, and only the rows in between matter. That leaves about two
# patterns for each row. Given all of them, the convex program is training itself: no ReLU network,
# whatever its neurons, has an objective below the bound. (The data are scaled as the estimator
# scales them, so that the objectives can be compared.)

columns = (x - x.mean()) / x.std()
targets = (y - y.mean()) / y.std()
thresholds = np.concatenate([[columns[0, 0] - 1], (columns[1:, 0] + columns[:-1, 0]) / 2])
signs = np.repeat([1.0, -1.0], len(thresholds))
patterns = cvxnn.Patterns.from_gates(columns, signs[None, :], -signs * np.tile(thresholds, 2))
settings = {"lam": 3e-3, "bias": True, "output_bias": True}
everything = cvxnn.solve(cvxnn.CReLU(columns, targets, patterns, **settings), tol=1e-8)
print(f"{len(patterns)} patterns for {len(x)} rows")
print(everything.certificate)
cvxnn.plot_function(everything.network(), columns, targets)
# sphinx_gallery_thumbnail_number = 2

# %%
# So we can tell what it costs to sample patterns, as the estimator does:

sampled = cvxnn.ReLURegressor(alpha=3e-3).fit(x, y)
bound = everything.certificate.lower_bound
above = sampled.certificate_.objective / bound - 1
print(f"{sampled.n_patterns_} of {len(patterns)} patterns were sampled")
print(f"their network is above the bound for all networks by {above:.1e} of it")

# %%
# In higher dimensions there are far too many patterns to list, and this comparison cannot be made:
# there the certificate is about the sampled patterns only.
#
# Gated networks jump
# -------------------
#
# The neurons of a gated network have fixed gates, and weights that need not vanish there.

gated = cvxnn.GatedReLURegressor(alpha=3e-3, n_patterns=60).fit(x, y)
cvxnn.plot_function(gated, x, y)
plt.show()
