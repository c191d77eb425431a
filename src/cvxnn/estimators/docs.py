"""What the docstrings of the estimators say: parameters and attributes, each described once."""

from __future__ import annotations

PARAMETERS = {
    "alpha": """float, default=0.01
    Strength of the penalty, for columns (and targets of a regression) of zero mean and unit
    variance: loss + alpha/2 sum (||W1_j||^2 + ||W2_j||_1^2). `lambda_max_` is where the model
    becomes constant.""",
    "alphas": """array-like or None, default=None
    The strengths to choose from; None for a geometric grid below lambda_max.""",
    "n_alphas": """int, default=15
    Points of that grid.""",
    "eps": """float, default=3e-3
    Its smallest point, relative to lambda_max.""",
    "cv": """int, splitter or iterable, default=None
    Folds; None for 5. Given as a number, they are shuffled with `random_state`, of all classes
    alike. A row goes into one fold with its whole weight, and equal rows may go into different
    ones. The order of the rows does not matter. Other folds are taken as they are.""",
    "scoring": """str, callable or None, default=None
    What to choose by, as in scikit-learn; a function has to take `sample_weight`. None is the
    log-likelihood for the log-loss, accuracy for classifiers with the squared loss, and r2 for
    regressors.""",
    "rule": """{"best", "one_se"}, default="best"
    The alpha with the best mean score, or the largest whose mean is within one standard error.""",
    "n_jobs": """int or None, default=None
    Folds at a time, through joblib.""",
    "n_patterns": """int, default=500
    Activation patterns to sample. The program, and what is proven, is over these.""",
    "class_weight": """dict, "balanced" or None, default=None
    Weights of the classes, multiplied with sample weights.""",
    "huber_delta": """float, default=1.35
    Residual, in standard deviations of the target, beyond which the Huber loss is linear.
    Only loss="huber" reads it.""",
    "fit_intercept": """bool, default=True
    Give hidden neurons and outputs a bias. That of an output is not penalised.""",
    "scale": """bool, default=True
    Pose the program on columns (and targets of a regression) of zero mean and unit variance.
    The network takes raw rows all the same. Columns of sparse matrices are divided only.""",
    "gates": """gate distribution or None, default=None
    Where patterns come from, such as `SparseGates(3)`; None for Gaussian gates.""",
    "solver": """str or solver, default="auto"
    As for `cvxnn.solve`.""",
    "tol": """float, default=1e-4
    Relative duality gap at which training ends.""",
    "max_iter": """int or None, default=None
    Iterations, None for the solver's own limit.""",
    "warm_start": """bool, default=False
    Start from the last fit, if its program had the same shape.""",
    "random_state": """int, RandomState instance or None, default=0
    Of the patterns, and of the folds. Equal numbers give equal fits, to the last bit.""",
}
LOSS = {
    True: """{"log", "squared"}, default="log"
    "log" is the logistic loss for two classes and the softmax loss for more, and gives
    probabilities. "squared" is that of the targets -1 and 1, or one-hot rows.""",
    False: """{"squared", "huber"}, default="squared"
    "huber" is for targets with outliers.""",
}
ATTRIBUTES = {
    "network_": "ReLUNetwork or GatedReLUNetwork, for raw rows and raw outputs.",
    "certificate_": "Certificate of the convex program, over the sampled patterns, as scaled.",
    "alpha_": "The strength that was used.",
    "lambda_max_": "The smallest strength for which the model is constant.",
    "converged_": "Whether the certificate meets `tol`.",
    "n_iter_": "Iterations.",
    "n_patterns_": "Distinct patterns.",
    "history_": "One record an iteration: objective, lower bound, gap, passes over the data.",
    "alphas_": "The strengths compared, in falling order.",
    "cv_scores_": "Their scores: (folds, strengths).",
    "cv_neurons_": "The neurons of the models that were scored: (folds, strengths).",
    "best_index_, best_score_": "Of the chosen one; the score is the mean over the folds.",
    "scorer_": "What the scores were made with.",
    "classes_": "The labels.",
    "n_features_in_, feature_names_in_": "Of the columns.",
}
CV_ONLY = {"alphas_", "cv_scores_", "cv_neurons_", "best_index_, best_score_", "scorer_"}


def describe(kind: str, parameters: list[str], *, classifier: bool) -> str:
    """The docstring of an estimator with these parameters; `kind` is what it trains."""
    cv = "cv" in parameters
    task = "classifier" if classifier else "regressor"
    lines = [f"A {kind}, as a {task}, trained to a certified optimum."]
    if cv:
        lines += ["", "The strength of the penalty is chosen by cross-validation."]
    lines += ["", "Parameters", "----------"]
    known = {**PARAMETERS, "loss": LOSS[classifier]}
    lines += [f"{name} : {known[name]}" for name in parameters]
    lines += ["", "Attributes", "----------"]
    for name, text in ATTRIBUTES.items():
        if (cv or name not in CV_ONLY) and (classifier or name != "classes_"):
            lines.append(f"{name} : {text}")
    return "\n".join(lines) + "\n"
