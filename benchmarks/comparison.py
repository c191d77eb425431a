"""Classifiers on UCI sets: accuracy, log-loss and time of the default estimators and of others.

Five random splits into 80 and 20 percent, stratified; all columns are standardised on the training
rows for everybody who does not do so. The defaults of cvxnn were chosen on the sets of `CHOSEN_ON`,
which are left out.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import cvxnn
from benchmarks.datasets import Dataset, available
from benchmarks.record import Benchmark, Options, Row, Rows, markdown_table

NAME = "comparison"
CHOSEN_ON = ("pima", "glass", "ionosphere", "ecoli", "wine")
SETS = (
    "breast-cancer",
    "breast-cancer-wisc-diag",
    "congressional-voting",
    "conn-bench-sonar-mines-rocks",
    "credit-approval",
    "cylinder-bands",
    "dermatology",
    "energy-y1",
    "flags",
    "heart-cleveland",
    "heart-hungarian",
    "heart-va",
    "hepatitis",
    "horse-colic",
    "ilpd-indian-liver",
    "mammographic",
    "monks-2",
    "monks-3",
    "musk-1",
    "oocytes_merluccius_nucleus_4d",
    "oocytes_trisopterus_nucleus_2f",
    "parkinsons",
    "planning",
    "seeds",
    "statlog-australian-credit",
    "statlog-german-credit",
    "statlog-heart",
    "statlog-vehicle",
    "synthetic-control",
    "teaching",
    "tic-tac-toe",
    "vertebral-column-2clases",
)
QUICK_SETS = ("seeds",)
N_SPLITS, TEST_SHARE, SEED = 5, 0.2, 0
OURS, MLP, FOREST = "ReLUClassifierCV", "MLP", "random forest"
MLP_GRID = {
    "mlpclassifier__alpha": [1e-4, 1e-2, 1.0],
    "mlpclassifier__hidden_layer_sizes": [(100,), (300,)],
}
SVM_GRID = {"svc__C": [0.1, 1, 10, 100], "svc__gamma": [0.001, 0.01, 0.1, "scale"]}


def _scaled(model: Any) -> Any:
    return make_pipeline(StandardScaler(), model)


def _tuned_svm() -> Any:
    """C and gamma by accuracy, then probabilities by Platt's method, as is the custom."""
    grid = GridSearchCV(_scaled(SVC()), SVM_GRID, cv=5)
    return CalibratedClassifierCV(grid, method="sigmoid", cv=3, ensemble=False)


MODELS: dict[str, Callable[[], Any]] = {
    OURS: cvxnn.ReLUClassifierCV,
    "GatedReLUClassifierCV": cvxnn.GatedReLUClassifierCV,
    "ReLUClassifier": cvxnn.ReLUClassifier,
    MLP: lambda: _scaled(MLPClassifier(random_state=0)),
    "MLP, tuned": lambda: GridSearchCV(
        _scaled(MLPClassifier(random_state=0)), MLP_GRID, cv=3, scoring="neg_log_loss"
    ),
    FOREST: lambda: RandomForestClassifier(random_state=0),
    "SVM, tuned": _tuned_svm,
    "logistic regression": lambda: _scaled(LogisticRegression(max_iter=1000)),
    "gradient boosting": lambda: HistGradientBoostingClassifier(random_state=0),
}
# The scores of the squared loss, made probabilities by a softmax: what proper ones have to beat.
SQUARED = "squared loss, softmaxed"


def measure(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    """One split of every set after the other, so that what is there early speaks of all sets."""
    sets = {name: Dataset.load(name) for name in available(QUICK_SETS if options.quick else SETS)}
    for k in range(1 if options.quick else N_SPLITS):
        for name, data in sets.items():
            case = f"{name} split {k}"
            n, d = data.X.shape
            empty = {"set": name, "n": n, "d": d, "classes": data.n_classes, "models": {}}
            row = rows.get(case, empty)
            missing = [label for label in _names() if label not in row["models"]]
            for label in missing:
                model = {**MODELS, SQUARED: _squared}[label]()
                if options.quick and hasattr(model, "n_patterns"):
                    model.set_params(n_patterns=20)
                row["models"][label] = _result(model, data, *_split(data, k))
            if missing:
                yield case, row


def _split(data: Dataset, k: int) -> tuple[np.ndarray, np.ndarray]:
    splitter = StratifiedShuffleSplit(N_SPLITS, test_size=TEST_SHARE, random_state=SEED)
    return list(splitter.split(data.X, data.labels))[k]


def _squared() -> Any:
    return cvxnn.ReLUClassifierCV(loss="squared")


def _result(model: Any, data: Dataset, train: np.ndarray, test: np.ndarray) -> dict[str, Any]:
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(data.X[train], data.labels[train])
    seconds = time.process_time() - started
    probabilities = np.zeros((len(test), data.n_classes))
    probabilities[:, model.classes_] = _probabilities(model, data.X[test])
    found = {
        "accuracy": float(np.mean(model.predict(data.X[test]) == data.labels[test])),
        "log_loss": _log_loss(probabilities, data.labels[test]),
        "seconds": seconds,
    }
    if hasattr(model, "certificate_"):
        found["gap"] = model.certificate_.relative_gap
        found["neurons"] = model.network_.n_neurons
    return found


def _probabilities(model: Any, X: np.ndarray) -> np.ndarray:
    """The model's own, or its scores through a softmax."""
    if hasattr(model, "predict_proba"):
        return model.predict_proba(X)
    scores = model.decision_function(X)
    scores = np.column_stack([-scores, scores]) if scores.ndim == 1 else scores
    return softmax(scores, axis=1)


def _log_loss(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """With probabilities of at least 1e-15, since forests say zero."""
    chosen = probabilities[np.arange(len(labels)), labels]
    return float(-np.mean(np.log(np.clip(chosen, 1e-15, 1.0))))


def table(rows: Rows, key: str) -> tuple[list[str], np.ndarray]:
    """The sets, and their means over splits: (sets, models). Rows that lack a model wait."""
    by_set: dict[str, list[list[float]]] = {}
    for row in rows.values():
        if len(row["models"]) == len(_names()):
            values = [row["models"][name][key] for name in _names()]
            by_set.setdefault(row["set"], []).append(values)
    return list(by_set), np.array([np.mean(values, axis=0) for values in by_set.values()])


def _names() -> list[str]:
    return [*MODELS, SQUARED]


def mean_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1 for the smallest, ties shared, averaged over the sets."""
    below = (values[:, None, :] < values[:, :, None]).sum(axis=2)
    ties = (values[:, None, :] == values[:, :, None]).sum(axis=2)
    return np.mean(below + (ties + 1) / 2, axis=0)


def present(rows: Rows) -> str:
    sets, accuracy = table(rows, "accuracy")
    _, losses = table(rows, "log_loss")
    _, seconds = table(rows, "seconds")
    names = _names()
    ranked = len(MODELS)  # the squared loss is a comparison of its own
    lines = []
    ranks = mean_ranks(-accuracy[:, :ranked]), mean_ranks(losses[:, :ranked])
    for j, name in enumerate(names):
        rank = [f"{r[j]:.2f}" if j < ranked else "" for r in ranks]
        lines.append(
            [
                name,
                f"{100 * accuracy[:, j].mean():.2f}",
                rank[0],
                f"{np.mean(losses[:, j]):.3f}",
                f"{np.median(losses[:, j]):.3f}",
                rank[1],
                f"{np.median(seconds[:, j]):.2f}",
            ]
        )
    better = int(np.sum(losses[:, 0] < losses[:, names.index(SQUARED)]))
    details = [
        [
            name,
            *(
                f"{100 * a:.1f} / {loss:.3f}"
                for a, loss in zip(accuracy[i], losses[i], strict=True)
            ),
        ]
        for i, name in enumerate(sets)
    ]
    return "\n\n".join(
        [
            f"{len(sets)} UCI sets, the means of {_splits(rows)} stratified splits into 80 and 20 "
            "percent. cvxnn's estimators have their default settings, which were chosen on other "
            f"sets ({', '.join(CHOSEN_ON)}). MLP, forest, boosting and logistic regression are "
            "those of scikit-learn with default settings (logistic regression with 1000 "
            f"iterations); the tuned MLP and SVM choose from {_size(MLP_GRID)} and "
            f"{_size(SVM_GRID)} settings by cross-validation (three and five folds). Everybody but "
            "trees sees "
            "standardised columns. Probabilities below 1e-15 count as that.",
            markdown_table(
                ["", "accuracy %", "mean rank", "log-loss", "median", "mean rank", "median s"],
                lines,
            ),
            f"Seconds are processor seconds of a fit on one thread. `{OURS}` has a smaller "
            f"log-loss than the softmaxed scores of the squared loss on {better} of {len(sets)} "
            "sets.",
            f"![Accuracy and log-loss by set.]({NAME}.png)",
            "Accuracy in percent and log-loss, by set:",
            markdown_table(["", *names], details),
        ]
    )


def _splits(rows: Rows) -> int:
    return max(Counter(row["set"] for row in rows.values()).values())


def _size(grid: dict[str, list[Any]]) -> int:
    return int(np.prod([len(values) for values in grid.values()]))


def misses(rows: Rows) -> list[str]:
    sets, accuracy = table(rows, "accuracy")
    _, losses = table(rows, "log_loss")
    names = _names()
    ours, mlp, forest = (names.index(name) for name in (OURS, MLP, FOREST))
    found = []
    if len(sets) < 30:
        found.append(f"{len(sets)} sets, wanted at least 30")
    wanted = max(accuracy[:, mlp].mean(), accuracy[:, forest].mean())
    if accuracy[:, ours].mean() < wanted:
        found.append(f"mean accuracy {accuracy[:, ours].mean():.4f}, wanted {wanted:.4f}")
    if np.median(losses[:, ours]) >= np.median(losses[:, mlp]):
        found.append("median log-loss is not below that of the MLP")
    better = np.mean(losses[:, ours] < losses[:, names.index(SQUARED)])
    if better < 12 / 15:
        found.append(
            f"log-loss better than the squared loss's on {better:.0%} of sets, wanted 80 %"
        )
    return found


def draw(rows: Rows, path: Path) -> None:
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
    names = _names()
    for ax, key, label in zip(
        axes, ("accuracy", "log_loss"), ("accuracy", "log-loss"), strict=True
    ):
        _, values = table(rows, key)
        for other, colour, marker in ((MLP, "#c65d1e", "o"), (FOREST, "#3c7a3c", "^")):
            ax.scatter(
                values[:, names.index(other)],
                values[:, names.index(OURS)],
                s=22,
                color=colour,
                marker=marker,
                label=other,
            )
        low, high = values[:, :5].min(), values[:, [0, names.index(MLP)]].max()
        ax.plot([low, high], [low, high], color="grey", lw=0.8, zorder=0)
        ax.set(xlabel=f"{label} of the other", ylabel=f"{label} of {OURS}")
        if key == "log_loss":
            ax.set(xscale="log", yscale="log")
        ax.legend(frameon=False)
    fig.savefig(path, dpi=150)
    plt.close(fig)


BENCHMARK = Benchmark(
    NAME,
    "Classifiers on UCI sets",
    measure,
    present,
    misses,
    resumable=True,
    draw=draw,
)
