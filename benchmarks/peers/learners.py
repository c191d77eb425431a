"""Learners of tables, ours and others', each fitted in a process of its own (see protocol).

Whoever does not scale columns gets them standardised on the training rows. Everything else is at
its defaults, but for one thread and a seed; the tuned ones choose from a grid by cross-validation.
"""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks.peers.protocol import serve_contained

SVM_GRID = {"C": [0.1, 1, 10, 100], "gamma": [0.001, 0.01, 0.1, "scale"]}
MLP_GRID = {"alpha": [1e-4, 1e-2, 1.0], "hidden_layer_sizes": [(100,), (300,)]}
PACKAGES = ("cvxnn", "sklearn", "catboost", "lightgbm", "xgboost", "pytabkit")
Maker = Callable[[bool], Any]  # says whether a classifier is wanted


def _ours(settings: dict[str, Any]) -> Maker:
    """Settings of an estimator; gates by a name."""
    import cvxnn

    settings = dict(settings)
    kind = settings.pop("estimator", "ReLU")
    if "gates" in settings:
        sparse = cvxnn.SparseGates(2, active_share=(0.1, 0.9))
        mixed = cvxnn.MixedGates((cvxnn.GaussianGates(), sparse))
        settings["gates"] = {"sparse": sparse, "mixed": mixed}[settings["gates"]]

    def make(classifies: bool) -> Any:
        name = f"{kind}{'Classifier' if classifies else 'Regressor'}CV"
        return getattr(cvxnn, name)(**settings)

    return make


def _sklearn(module: str, name: str, **settings: Any) -> Maker:
    def make(classifies: bool) -> Any:
        kind = f"{name}{'Classifier' if classifies else 'Regressor'}"
        return getattr(import_module(f"sklearn.{module}"), kind)(**settings)

    return make


def _scaled(model: Any, classifies: bool) -> Any:
    """On standardised columns, and for a regression on a standardised target."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if not classifies:
        model = TransformedTargetRegressor(model, transformer=StandardScaler())
    return make_pipeline(StandardScaler(), model)


def _grid(grid: dict[str, list[Any]], model: Any, classifies: bool) -> dict[str, list[Any]]:
    place = type(model).__name__.lower() if classifies else "transformedtargetregressor__regressor"
    return {f"{place}__{name}": values for name, values in grid.items()}


def _svm(classifies: bool) -> Any:
    """C and gamma by accuracy, then probabilities by Platt's method, as is the custom."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC, SVR

    model = SVC() if classifies else SVR()
    search = GridSearchCV(
        _scaled(model, classifies), _grid(SVM_GRID, model, classifies), cv=_folds(5, classifies)
    )
    if not classifies:
        return search
    return CalibratedClassifierCV(search, method="sigmoid", cv=3, ensemble=False)


def _mlp(classifies: bool) -> Any:
    from sklearn.model_selection import GridSearchCV
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    model = (MLPClassifier if classifies else MLPRegressor)(random_state=0)
    return GridSearchCV(
        _scaled(model, classifies),
        _grid(MLP_GRID, model, classifies),
        cv=_folds(3, classifies),
        scoring="neg_log_loss" if classifies else "r2",
    )


def _folds(n: int, classifies: bool) -> Any:
    """Stratified for classes; shuffled for values, since some tables are sorted."""
    from sklearn.model_selection import KFold

    return n if classifies else KFold(n, shuffle=True, random_state=0)


def _linear(classifies: bool) -> Any:
    from sklearn.linear_model import LogisticRegression, RidgeCV

    model = LogisticRegression(max_iter=1000) if classifies else RidgeCV(np.logspace(-3, 3, 13))
    return _scaled(model, classifies)


def _package(package: str, name: str, **settings: Any) -> Maker:
    def make(classifies: bool) -> Any:
        kind = name.format("Classifier" if classifies else "Regressor")
        return getattr(import_module(package), kind)(**settings)

    return make


MAKERS: dict[str, Maker] = {
    "forest": _sklearn("ensemble", "RandomForest", random_state=0),
    "boosting": _sklearn("ensemble", "HistGradientBoosting", random_state=0),
    "svm": _svm,
    "mlp": _mlp,
    "linear": _linear,
    "catboost": _package(
        "catboost",
        "CatBoost{}",
        thread_count=1,
        random_seed=0,
        verbose=False,
        allow_writing_files=False,
    ),
    "lightgbm": _package("lightgbm", "LGBM{}", n_jobs=1, random_state=0, verbose=-1),
    "xgboost": _package("xgboost", "XGB{}", n_jobs=1, random_state=0),
    "realmlp": _package(
        "pytabkit", "RealMLP_TD_{}", device="cpu", n_threads=1, random_state=0, verbosity=0
    ),
}


def run(
    data: str,
    weights: str,
    learner: str,
    settings: dict[str, Any],
    n_classes: int,
    max_seconds: float,
) -> dict[str, Any]:
    """Fit, and keep what is predicted for the test rows: (n, K) probabilities of all classes, of
    which those that no training row has are 0, or (n,) values. `n_classes` is 0 for values."""
    content = np.load(data)
    X, y, test = content["X"], content["y"], content["test"]
    classifies = n_classes > 0
    classes, places = np.unique(y, return_inverse=True) if classifies else (None, y)
    maker = _ours(settings) if learner == "cvxnn" else MAKERS[learner]
    model = maker(classifies)
    started = time.process_time()
    model.fit(X, places)
    fitted = time.process_time()
    if classifies:
        found = np.zeros((len(test), n_classes))
        found[:, classes] = model.predict_proba(test)
    else:
        found = np.asarray(model.predict(test), dtype=float).reshape(-1)
    answer: dict[str, Any] = {
        "seconds": fitted - started,
        "predict_seconds": time.process_time() - fitted,
        "version": _version(learner),
    }
    if learner == "cvxnn":
        members = getattr(model, "members_", ())
        certificates = [m.certificate for m in members] or [model.certificate_]
        answer["gap"] = max(c.relative_gap for c in certificates)
        answer["neurons"] = model.network_.n_neurons
    np.savez(weights, found=found)
    return answer


def _version(learner: str) -> str:
    package = {"cvxnn": "cvxnn", "realmlp": "pytabkit"}.get(learner, learner)
    if package not in PACKAGES:
        package = "scikit-learn"
    return f"{package} {version(package)}"


def _import_all() -> None:
    """In the parent of all runs, so that no fit waits for an import."""
    for package in PACKAGES:
        if importlib.util.find_spec(package) is not None:
            import_module(package)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    _import_all()
    serve_contained(run)
