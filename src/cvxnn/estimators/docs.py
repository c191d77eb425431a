"""What the docstrings of the estimators say: parameters and attributes, each described once."""

from __future__ import annotations

PARAMETERS = {
    "alpha": """float, default=0.01
    Strength of the penalty, for columns (and targets of a regression) of zero mean and unit
    variance: loss + alpha/2 sum (||W1_j||^2 + ||W2_j||_1^2). `lambda_max_` is where the model
    becomes constant.""",
    "alphas": """array-like or None, default=None
    The strengths to choose from, all of which are compared; None for a geometric grid below
    lambda_max.""",
    "n_alphas": """int, default=15
    Number of strengths on that grid from lambda_max to `eps` times it. The comparison ends sooner,
    once two strengths in a row have not improved the mean score, and goes on below while the last
    strength is the best, to twice as many.""",
    "eps": """float, default=3e-3
    The smallest strength planned for that grid, relative to lambda_max.""",
    "cv": """int, splitter or iterable, default=None
    Number of folds, None for 5, or the folds themselves. A number gives folds that are shuffled
    with `random_state`, stratified by class, and independent of the order of the rows. A row goes
    into one fold with its whole weight; equal rows may go into different folds. Every fold samples
    patterns of its own.""",
    "scoring": """str, callable or None, default=None
    The score to choose by, as in scikit-learn; a function must accept `sample_weight`. None is
    the log-likelihood for the log-loss, accuracy for classifiers with the squared loss, and r2
    for regressors.""",
    "rule": """{"best", "one_se"}, default="best"
    The alpha with the best mean score, or the largest alpha whose mean score is within one
    standard error of it.""",
    "ensemble": """{"folds", "variants"} or None, default=None
    Predict by the mean of several networks: "folds" is the network of all rows and those of the
    folds, all at the chosen strength; "variants" is that of the estimator as it is, with learned
    column scales and with sparse gates, weighted by their losses on the rows that folds hold out.
    The mean is one network again, with the neurons of all of them. Each of these networks is
    certified, in `members_`; the mean is not. Other attributes are about the first of them.""",
    "n_jobs": """int or None, default=None
    Number of folds to run at the same time, through joblib; results do not depend on it.""",
    "patterns": """{"sample", "generate"}, default="sample"
    Where the activation patterns come from. "sample" draws `n_patterns` random ones. "generate"
    searches for those that pay, adds them and solves again, until a search finds no more: the
    objective is lower, with fewer patterns, and training takes longer. Gated networks get the gates
    that a ReLU network needs at the same alpha beside `n_patterns` random ones, which is seldom
    worth the time: "sample" is for them.""",
    "n_patterns": """int, default=500
    Number of activation patterns to sample; ReLU networks with generated patterns need none. What
    is proven is about networks with these patterns.""",
    "class_weight": """dict, "balanced" or None, default=None
    Weights of the classes; they multiply the sample weights.""",
    "huber_delta": """float, default=1.35
    Residual, in standard deviations of the target, beyond which the Huber loss is linear.
    It has no effect on other losses.""",
    "fit_intercept": """bool, default=True
    Give hidden neurons and outputs a bias. The bias of an output is not penalised.""",
    "scale": """bool, default=True
    Train on columns (and targets of a regression) of zero mean and unit variance. The network
    itself takes raw rows. Columns of sparse matrices are only divided, which keeps their
    zeros.""",
    "feature_scaling": """{"unit", "learned"}, default="unit"
    "learned" fits twice. The first fit, on columns of unit variance, says how much each column
    matters: by the root mean square of the derivative of the network along it. The second fit has
    columns that are multiplied by that.""",
    "categorical_features": """list or None, default=None
    Columns whose numbers are codes: their places or names, or a mask over all columns. Each becomes
    one column of zeros and ones for each of its values, of which a value that was never seen is
    none. The network takes encoded rows, `categories_.encode(X)`; the methods of the estimator take
    raw ones. X must be dense.""",
    "n_components": """int or None, default=None
    Train on so many leading principal components of the columns, scaled or at least centred, which
    is quicker where there are many columns. The network itself takes raw rows, and the certificate
    says how much of the variance the components hold. X must be dense.""",
    "gates": """gate distribution or None, default=None
    How to sample the patterns, for instance `SparseGates(3)`; None for Gaussian gates. No effect
    on ReLU networks with generated patterns.""",
    "solver": """str or solver, default="auto"
    As for `cvxnn.solve`.""",
    "tol": """float, default=1e-4
    Relative duality gap at which training ends. With generated patterns it ends when, besides, no
    search finds a pattern with a price above (1 + tol) alpha. The folds on which
    strengths are compared are solved less precisely: to 0.005, or less where little is gained.""",
    "prove": """bool or {"auto", "exact", "branching", "semidefinite", "enumeration"}, default=False
    Try to prove a bound over all patterns, hence over all ReLU networks of any width, for the last
    fit with generated patterns; True or "auto" for the method that suits the data. It takes up to
    `max_seconds`, or a minute. `bound_` is what was proven, its `scope` whether it covers all
    patterns: that takes few columns, or a large alpha.""",
    "max_iter": """int or None, default=None
    Largest number of iterations; None for the solver's own limit. With generated patterns, largest
    number of rounds, None for 100.""",
    "max_seconds": """float or None, default=None
    Time limit of a fit, with generated patterns its proof included: the best network until then is
    taken. With folds, these share 70 % of it, from the largest strength down: those that are not
    reached in all folds are left out, with a warning.""",
    "max_memory": """int, str or None, default=None
    Bytes that training may take beside X as it is given, for instance "2GB". Where training in
    memory may need more, the rows of a dense X are written to a temporary file and a gated network
    is trained from there; see the page on large data. None for no limit.""",
    "device": """str or None, default=None
    Where to train: "cuda", "cuda:1" or "mps", or "cpu" to try it without a GPU; needs PyTorch and
    `patterns="sample"`. The fitted estimator is the same as without it. Experimental; see the page
    on GPUs.""",
    "warm_start": """bool, default=False
    Start from the weights of the last fit, if its program had the same shape; with generated
    patterns, from its neurons.""",
    "verbose": """bool, default=False
    Say how far the fit is: within two seconds, then ever more seldom, and at its end. The lines go
    to the logger "cvxnn", and to stderr if logging is not configured.""",
    "random_state": """int, RandomState instance or None, default=0
    Seed for the patterns, or for the search for them, and for the folds. Equal seeds give equal
    fits, to the last bit.""",
}
AUTO_CATEGORIES = (
    PARAMETERS["categorical_features"].replace(
        "list or None, default=None", '"auto", list or None, default="auto"'
    )
    + """
    "auto" compares two encodings on the folds: all columns with 3 to 10 distinct values as
    categories, and none. The one with the better mean score is taken. Where there are such columns
    it takes about twice the time; more than 500 encoded columns are not tried."""
)
LOSS = {
    True: """{"log", "squared"}, default="log"
    "log" is the logistic loss for two classes and the softmax loss for more, and gives
    probabilities. "squared" is that of the targets -1 and 1, or one-hot rows.""",
    False: """{"squared", "huber"}, default="squared"
    "huber" is for targets with outliers.""",
}
ATTRIBUTES = {
    "network_": "ReLUNetwork or GatedReLUNetwork, for raw rows and raw outputs; for encoded rows "
    "where there are columns of categories.",
    "categories_": "The columns of categories, with the values that they had; None without any. "
    "`categories_.encode(X)` are the rows of `network_`.",
    "members_": "With `ensemble`: the networks whose mean `network_` is, with their certificates, "
    "the numbers of their distinct rows and their shares; that of all rows first, then those of "
    "the folds, of the best variant and then of others.",
    "certificate_": "Certificate of the convex program over its patterns, on scaled data.",
    "bound_": "Bound on the training problem of the network itself; its `scope` says whether that "
    "is over the given patterns or over all. Without the dual point and the evidence behind it.",
    "alpha_": "The strength that was used.",
    "column_factors_": "What scaled columns were multiplied by, where that was learned; else None.",
    "lambda_max_": "The smallest strength for which the model is constant over its patterns. With "
    "generated patterns: the highest price at the constant model that a search found, which is a "
    "heuristic and may be too small.",
    "converged_": "Whether the certificate meets `tol`; with generated patterns, also whether no "
    "search found a pattern that pays.",
    "n_iter_": "Number of iterations, or of rounds of generation.",
    "n_patterns_": "Number of distinct patterns.",
    "history_": "One record for each iteration: objective, lower bound, gap, passes over the data; "
    "for ReLU networks over generated patterns one `Round` each.",
    "alphas_": "The strengths compared, in falling order.",
    "cv_scores_": "Their scores: (folds, strengths).",
    "cv_neurons_": "The numbers of neurons of the models that were scored: (folds, strengths).",
    "best_index_, best_score_": "Place of the chosen strength, and its mean score over the folds.",
    "scorer_": "The function that computed the scores.",
    "classes_": "The labels.",
    "n_features_in_, feature_names_in_": "Number and names of the columns.",
}
CV_ONLY = {
    "members_",
    "alphas_",
    "cv_scores_",
    "cv_neurons_",
    "best_index_, best_score_",
    "scorer_",
}


def describe(kind: str, parameters: list[str], *, classifier: bool) -> str:
    """The docstring of an estimator with these parameters; `kind` is what it trains."""
    cv = "cv" in parameters
    task = "classifier" if classifier else "regressor"
    lines = [f"A {kind}, as a {task}, trained to a certified optimum."]
    if cv:
        lines += ["", "The strength of the penalty is chosen by cross-validation."]
    lines += ["", "Parameters", "----------"]
    known = {**PARAMETERS, "loss": LOSS[classifier]}
    if cv:
        known["categorical_features"] = AUTO_CATEGORIES
    lines += [f"{name} : {known[name]}" for name in parameters]
    lines += ["", "Attributes", "----------"]
    for name, text in ATTRIBUTES.items():
        if (cv or name not in CV_ONLY) and (classifier or name != "classes_"):
            lines.append(f"{name} : {text}")
    return "\n".join(lines) + "\n"
