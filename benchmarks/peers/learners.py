"""Learners of tables, ours and others', each fitted in a process of its own (see protocol).

Whoever does not scale columns gets them standardised on the training rows. Everything else is at
its defaults, but for one thread and a seed; the tuned ones choose from a grid by cross-validation
on at most TUNED_ROWS rows, and are then fitted to all.
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
TUNED_ROWS = 4000
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


class _Tuned:
    """The settings of the grid that cross-validation prefers, on some rows where there are many;
    then the model with these settings, finished by `finish`, on all rows."""

    def __init__(
        self,
        model: Any,
        grid: dict[str, list[Any]],
        classifies: bool,
        folds: int,
        scoring: str | None = None,
        finish: Callable[[Any], Any] = lambda model: model,
    ) -> None:
        self.model, self.classifies, self.folds = _scaled(model, classifies), classifies, folds
        name = type(model).__name__.lower()
        place = name if classifies else "transformedtargetregressor__regressor"
        self.grid = {f"{place}__{key}": values for key, values in grid.items()}
        self.scoring, self.finish = scoring, finish

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold

        # stratified for classes; shuffled for values, since some tables are sorted
        cv = (
            StratifiedKFold(self.folds)
            if self.classifies
            else KFold(self.folds, shuffle=True, random_state=0)
        )
        search = GridSearchCV(self.model, self.grid, cv=cv, scoring=self.scoring, refit=False)
        search.fit(*_some(X, y, self.classifies))
        self.model = self.finish(self.model.set_params(**search.best_params_)).fit(X, y)

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.model.predict(X)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.model.predict_proba(X)


def _some(X: np.ndarray, y: np.ndarray, classifies: bool) -> tuple[np.ndarray, np.ndarray]:
    """TUNED_ROWS rows, with classes in their shares, or all if there are no more."""
    if len(y) <= TUNED_ROWS:
        return X, y
    from sklearn.model_selection import train_test_split

    some, _ = train_test_split(
        np.arange(len(y)), train_size=TUNED_ROWS, stratify=y if classifies else None, random_state=0
    )
    return X[some], y[some]


def _svm(classifies: bool) -> Any:
    """C and gamma by accuracy, then probabilities by Platt's method, as is the custom."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.svm import SVC, SVR

    if not classifies:
        return _Tuned(SVR(), SVM_GRID, classifies, folds=5)

    def with_probabilities(model: Any) -> Any:
        return CalibratedClassifierCV(model, method="sigmoid", cv=3, ensemble=False)

    return _Tuned(SVC(), SVM_GRID, classifies, folds=5, finish=with_probabilities)


def _mlp(classifies: bool) -> Any:
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    model = (MLPClassifier if classifies else MLPRegressor)(random_state=0)
    scoring = "neg_log_loss" if classifies else "r2"
    return _Tuned(model, MLP_GRID, classifies, folds=3, scoring=scoring)


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
