"""Random forests and support vector machines with the paper's grids and its cross-validation:
the mean accuracy of five folds decides, and the last of equal ones wins."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.svm import SVC

from replication.data import Task
from replication.experiment import Row

GRIDS: dict[str, list[Row]] = {
    "random_forest": [
        {"n_estimators": trees, "max_depth": depth}
        for trees, depth in product((5, 10, 100, 1000), (2, 4, 10, 25, 50))
    ],
    "linear_svm": [{"kernel": "linear", "C": 1 / lam} for lam in np.logspace(-5, 0, 6).tolist()],
    "rbf_svm": [
        {"kernel": "rbf", "C": 1 / lam, "gamma": gamma}
        for lam, gamma in product(np.logspace(-5, 0, 5).tolist(), np.logspace(-4, 2, 6).tolist())
    ],
}


def run(piece: Row) -> Row:
    kind, seed = piece["kind"], piece["random_state"]
    grid, folds, task = GRIDS[kind], list(Task.folds(piece["set"])), Task.of(piece["set"])
    scores = [
        np.mean([_share(_fitted(kind, one, seed, fold), fold) for fold in folds]) for one in grid
    ]
    best = max(range(len(grid)), key=lambda k: (scores[k], k))
    return {
        "n": len(task.X),
        "n_test": len(task.X_test),
        "accuracy": round(100 * _share(_fitted(kind, grid[best], seed, task), task), 4),
        "chosen": grid[best],
        "cv_accuracy": round(100 * float(scores[best]), 4),
    }


def _fitted(kind: str, settings: Row, seed: int, task: Task) -> Any:
    model = RandomForestClassifier if kind == "random_forest" else SVC
    return model(random_state=seed, **settings).fit(task.X, task.labels)


def _share(model: Any, task: Task) -> float:
    return float(np.mean(model.predict(task.X_test) == task.labels_test))
