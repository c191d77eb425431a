"""How good are the models? cvxnn's estimators and the learners of tables that people use.

Five random splits into 80 and 20 percent, stratified by class. A piece is one model on one split of
one set; it is written as soon as it is done, and a later run goes on with those that are missing.
The choice half comes first: defaults are decided on it, and variants of ours are measured on it
alone. The tables of regression and the confirmation half decide nothing. `--only choice --only
"split 0"` measures the pieces whose names have these words; `--only "glass|seeds"` takes either.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import click
import numpy as np
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit

from benchmarks import halves, regression_tables
from benchmarks.accuracy_pages import AGAIN, misses, present
from benchmarks.datasets import Dataset, available
from benchmarks.peers.protocol import Worker
from benchmarks.record import ROOT, Benchmark, Options, Row, Rows

NAME = "accuracy"
N_SPLITS, TEST_SHARE, SEED = 5, 0.2, 0
MAX_SECONDS = 600.0  # of processor time for a fit
QUICK_SETS = ("seeds",)
# In place of a package: the version whose `src` folder, with compiled kernels, CVXNN_OTHER names.
OTHER = "0.1.0"
CERTAIN = 1e-15  # probabilities below count as that, since forests say zero
N_BINS = 10


@dataclass(frozen=True)
class Learner:
    """A model: what makes it in peers/learners.py, with what settings, in which environment.

    variant : whether it is one of ours that is not the default, measured on the choice half alone.
    """

    name: str
    learner: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: str | None = None
    variant: bool = False

    @property
    def python(self) -> Path:
        if self.environment in (None, OTHER):
            return Path(sys.executable)
        return ROOT / f".venv-{self.environment}" / "bin" / "python"

    @property
    def can_run(self) -> bool:
        if self.environment == OTHER:
            folder = os.environ.get("CVXNN_OTHER")
            return folder is not None and any(Path(folder).glob("**/libcvxnn.*"))
        return self.python.exists()


def _variant(name: str, **settings: Any) -> Learner:
    return Learner(name, "cvxnn", settings, variant=True)


LEARNERS = (
    Learner("ReLU", "cvxnn"),
    Learner("CatBoost", "catboost", environment="catboost"),
    Learner("LightGBM", "lightgbm", environment="lightgbm"),
    Learner("XGBoost", "xgboost", environment="xgboost"),
    Learner("random forest", "forest"),
    Learner("HistGradientBoosting", "boosting"),
    Learner("SVM, tuned", "svm"),
    Learner("MLP, tuned", "mlp"),
    Learner("RealMLP", "realmlp", environment="pytabkit"),
    Learner("linear", "linear"),
    Learner("0.1.0", "cvxnn", environment=OTHER),
    _variant(AGAIN),
    _variant("mean of folds", ensemble="folds"),
    _variant("no categories", categorical_features=None),
    _variant("no categories, mean of folds", categorical_features=None, ensemble="folds"),
    _variant("no categories, variants", categorical_features=None, ensemble="variants"),
    _variant(
        "no categories, mixed gates, mean of folds",
        categorical_features=None,
        gates="mixed",
        ensemble="folds",
    ),
    _variant("gated", estimator="GatedReLU"),
    _variant("sparse gates", gates="sparse"),
    _variant("learned scales", feature_scaling="learned"),
)


@dataclass(frozen=True)
class Piece:
    """One model on one split of one set; `part` is choice, regression or confirmation."""

    part: str
    set: str
    split: int
    learner: Learner

    @property
    def case(self) -> str:
        return f"{self.part} {self.set} split {self.split}: {self.learner.name}"

    def wanted(self, words: tuple[str, ...]) -> bool:
        """Whether it has all words; one may be several with bars between them."""
        name = f" {self.case.replace(':', ' ')} "
        return all(any(f" {w} " in name for w in word.split("|")) for word in words)


def pieces(options: Options) -> Iterator[Piece]:
    """One split of every set after the other, so that what is there early speaks of all sets."""
    sets = {
        "choice": available(QUICK_SETS if options.quick else _by_size(halves.CHOICE)),
        "regression": () if options.quick else regression_tables.available(),
        "confirmation": () if options.quick else available(_by_size(halves.CONFIRMATION)),
    }
    learners = [learner for learner in LEARNERS if learner.can_run]
    if options.quick:
        learners = [learner for learner in learners if learner.environment is None]
    for learner in LEARNERS if not options.quick else ():
        if not learner.can_run:
            click.echo(f"{learner.name} cannot run: see the page on benchmarks", err=True)
    for part, names in sets.items():
        for split in range(1 if options.quick else N_SPLITS):
            for name in names:
                for learner in learners:
                    piece = Piece(part, name, split, learner)
                    if not (learner.variant and part != "choice") and piece.wanted(options.only):
                        yield piece


def _by_size(names: tuple[str, ...]) -> tuple[str, ...]:
    known = set(available(names))
    return tuple(sorted(names, key=lambda name: _data(name).X.size if name in known else 0))


def measure(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    left = [piece for piece in pieces(options) if piece.case not in rows]
    with ExitStack() as stack:
        benches: SimpleQueue[Bench] = SimpleQueue()
        for _ in range(options.jobs):
            benches.put(stack.enter_context(Bench(options)))

        def measured(piece: Piece) -> tuple[str, Row]:
            bench = benches.get()
            try:
                return piece.case, bench.measured(piece)
            finally:
                benches.put(bench)

        pool = ThreadPoolExecutor(options.jobs)
        stack.callback(pool.shutdown, cancel_futures=True)
        for future in as_completed([pool.submit(measured, piece) for piece in left]):
            yield future.result()


class Bench:
    """A process for each environment, which measure one piece after the other."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._stack = ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._workers: dict[str, Worker] = {}

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def _worker(self, learner: Learner) -> Worker:
        place = learner.environment or ""
        if place not in self._workers:
            extra = {"PYTHONPATH": os.environ["CVXNN_OTHER"]} if place == OTHER else {}
            worker = Worker(learner.python, "benchmarks.peers.learners", ROOT, extra)
            self._workers[place] = self._stack.enter_context(worker)
        return self._workers[place]

    def measured(self, piece: Piece) -> Row:
        X, y, n_classes = _table(piece)
        train, test = _split(X, y, n_classes, piece.split)
        data, weights = self._folder / "data.npz", self._folder / "found.npz"
        np.savez(data, X=X[train], y=y[train], test=X[test])
        settings = dict(piece.learner.settings)
        if self.options.quick and piece.learner.learner == "cvxnn":
            settings["n_patterns"] = 20
        answer = self._worker(piece.learner).ask(
            data=str(data),
            weights=str(weights),
            learner=piece.learner.learner,
            settings=settings,
            n_classes=n_classes,
            max_seconds=self.options.max_seconds or MAX_SECONDS,
        )
        row: Row = {
            "part": piece.part,
            "set": piece.set,
            "split": piece.split,
            "model": piece.learner.name,
            "variant": piece.learner.variant,
            "n": len(y),
            "d": X.shape[1],
            "classes": n_classes,
            **answer,
        }
        if answer["status"] == "ended":
            with np.load(weights) as content:
                row |= judged(content["found"], y[test], n_classes, y[train])
        return row


@functools.lru_cache(maxsize=4)
def _data(name: str) -> Dataset:
    return Dataset.load(name)


def _table(piece: Piece) -> tuple[np.ndarray, np.ndarray, int]:
    if piece.part == "regression":
        X, y = regression_tables.load(piece.set)
        return X, y, 0
    data = _data(piece.set)
    return data.X, data.labels, data.n_classes


def _split(X: np.ndarray, y: np.ndarray, n_classes: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    kind = StratifiedShuffleSplit if n_classes else ShuffleSplit
    splitter = kind(N_SPLITS, test_size=TEST_SHARE, random_state=SEED)
    return list(splitter.split(X, y))[k]


def judged(found: np.ndarray, y: np.ndarray, n_classes: int, train: np.ndarray) -> Row:
    """What predictions for test rows are worth. R² is relative to the mean of the training rows'
    targets, which anybody could predict."""
    if n_classes == 0:
        return {"r2": 1 - float(np.sum((y - found) ** 2) / np.sum((y - train.mean()) ** 2))}
    chosen = found[np.arange(len(y)), y]
    right = found.argmax(axis=1) == y
    return {
        "accuracy": float(np.mean(right)),
        "log_loss": float(-np.mean(np.log(np.clip(chosen, CERTAIN, 1.0)))),
        "brier": float(np.mean(np.sum((found - np.eye(n_classes)[y]) ** 2, axis=1))),
        "bins": bins(found.max(axis=1), right),
    }


def bins(confidence: np.ndarray, right: np.ndarray) -> list[list[float]]:
    """For ten intervals of confidence: rows, their confidences added, and how many are right. The
    bins of several splits add up."""
    place = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
    return [
        np.bincount(place, weights=values, minlength=N_BINS).round(6).tolist()
        for values in (np.ones(len(place)), confidence, right.astype(float))
    ]


BENCHMARK = Benchmark(
    NAME, "Accuracy and log-loss on new rows", measure, present, misses, resumable=True
)
