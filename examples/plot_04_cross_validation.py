"""
Choosing the penalty by cross-validation
========================================

The estimators whose names end in CV choose `alpha` themselves. They divide the rows into folds,
follow a path on all folds but one, score every point of it on the fold that was left out, and train
once more on all rows with the strength that scores best.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

import cvxnn

X, y = load_diabetes(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

settings = {"n_patterns": 50, "n_alphas": 9, "eps": 3e-3}
model = cvxnn.ReLURegressorCV(**settings).fit(X_train, y_train)
cvxnn.plot_cv(model)

# %%
# With much penalty, on the left, the network is nearly constant; with little it learns the noise of
# the training rows, and the score falls again. The grey lines are the folds. They differ more from
# each other than neighbouring strengths do, so the best mean is not known to be better than those
# near it. The bars are standard errors of the mean.
#
# A smaller network that is about as good
# ---------------------------------------
#
# `rule="one_se"` takes that into account: it chooses the largest penalty whose mean score is within
# one standard error of the best.

cautious = cvxnn.ReLURegressorCV(**settings, rule="one_se").fit(X_train, y_train)
cvxnn.plot_cv(cautious)

for name, fitted in (("best", model), ("one_se", cautious)):
    print(
        f"{name:>7}: alpha {fitted.alpha_:.2g}, {fitted.network_.n_neurons} neurons, "
        f"test r2 {fitted.score(X_test, y_test):.3f}"
    )

# %%
# The scores of the folds were used to choose `alpha`, so the best of them is no estimate of what to
# expect. The score on the test rows is one, as uncertain as 111 rows make it.
#
# The certificate
# ---------------
#
# The network that is returned is certified like any other. The certificate knows nothing of folds:
# it is about the training objective at the chosen `alpha`. `history_` has the steps of that last
# training.

print(model.certificate_)
cvxnn.plot_convergence(model)
plt.show()
