"""Gated networks trained on a Dask cluster, after the conventions of `xgboost.dask`.

An estimator here has the parameters of the one that it stands for, trains that one where the rows
are, and keeps the result, which is an ordinary estimator: `to_local`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from importlib.util import find_spec
from inspect import Parameter, Signature, signature
from time import monotonic
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from cvxnn.estimators import (
    GatedReLUClassifier,
    GatedReLUClassifierCV,
    GatedReLURegressor,
    GatedReLURegressorCV,
)
from cvxnn.estimators.base import NetworkEstimator
from cvxnn.progress import FIRST, SELDOM, log
from cvxnn.solvers.results import Progress
from cvxnn.validation import suggest

for _package in ("dask", "distributed", "torch"):
    if find_spec(_package) is None:
        raise ImportError(f"cvxnn.dask needs {_package}: pip install 'cvxnn[dask]'")


class _DaskNetwork(BaseEstimator):
    """What these estimators share."""

    _kind: ClassVar[type[NetworkEstimator]]

    def __init__(self, **parameters: Any) -> None:
        known = self._parameters()
        for name in parameters:
            if name not in known:
                hint = suggest(name, known)
                raise TypeError(f"{type(self).__name__} has no parameter {name!r}; {hint}")
        for name, default in known.items():
            setattr(self, name, parameters.get(name, default))

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls.__signature__ = Signature(
            [
                Parameter(name, Parameter.KEYWORD_ONLY, default=default)
                for name, default in cls._parameters().items()
            ]
        )

    @classmethod
    def _parameters(cls) -> dict[str, Any]:
        """The names of all parameters, with their defaults."""
        its = signature(cls._kind).parameters
        return {"client": None, "callback": None} | {
            name: parameter.default for name, parameter in its.items()
        }

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted(cls._parameters())

    def __sklearn_clone__(self) -> Self:
        """With the same client, of which there is one."""
        return type(self)(**self.get_params(deep=False))

    def __sklearn_is_fitted__(self) -> bool:
        return "_fitted" in vars(self)

    def __getattr__(self, name: str) -> Any:
        """What the fit has left: `network_`, `certificate_` and the like."""
        if name.endswith("_") and not name.startswith("_"):
            if "_fitted" not in vars(self):
                raise NotFittedError(f"{type(self).__name__} is not fitted yet: call fit first")
            return getattr(self._fitted, name)
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __getstate__(self) -> dict[str, Any]:
        """Without the client and the callback, which are of this process."""
        return {**vars(self), "client": None, "callback": None}

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train the network where the rows are.

        X : a Dask array (n, d) or a Dask DataFrame of numbers.
        y : labels, or one number or several for each row: a Dask array, Series or DataFrame.
        sample_weight : weights of the rows, >= 0: a Dask array or Series.
        """
        from cvxnn.dask.attempts import DaskFit
        from cvxnn.dask.worker import Training

        its = {name: getattr(self, name) for name in signature(self._kind).parameters}
        local = self._kind(**{**its, "verbose": False})  # workers have nobody to tell
        parts = list(_parts(X, y, sample_weight))
        sayer = _Sayer() if self.verbose else None
        callback = _both(self.callback, sayer) if sayer else self.callback
        alphas = sayer.alphas if sayer else None
        job = Training(local, local.max_memory is not None)
        fitted = DaskFit(
            self._client(), job, parts, _files_of(X, len(parts)), callback, alphas
        ).run()
        fitted.set_params(verbose=self.verbose)
        names = _names(X)
        if names is not None and all(isinstance(name, str) for name in names):
            fitted.feature_names_in_ = np.array(names, dtype=object)
        self._fitted = fitted
        return self

    def _client(self) -> Any:
        if self.client is not None:
            return self.client
        from distributed import get_client

        try:
            return get_client()
        except ValueError as error:
            raise ValueError(
                "there is no Dask client: pass client=Client(...), or make one before fit"
            ) from error

    def to_local(self) -> NetworkEstimator:
        """The trained network as an ordinary estimator, for arrays and DataFrames."""
        if "_fitted" not in vars(self):
            raise NotFittedError(f"{type(self).__name__} is not fitted yet: call fit first")
        return deepcopy(self._fitted)

    def _lazily(self, method: str, X: Any, dtype: Any, n_columns: int) -> Any:
        """A method of the local estimator for all parts of X, as a Dask array."""
        local = self.to_local()
        names = _names(X)
        if names is not None and list(names) != list(getattr(local, "feature_names_in_", names)):
            expected = ", ".join(map(str, local.feature_names_in_))
            raise ValueError(f"X has other columns than in fit: {expected} are expected")
        X = _as_array(X)
        if X.shape[1] != local.n_features_in_:
            raise ValueError(f"X has {X.shape[1]} columns, but {local.n_features_in_} are expected")
        local.__dict__.pop("feature_names_in_", None)  # blocks are arrays
        apply = partial(_applied, local, method)
        if n_columns == 0:
            return X.map_blocks(apply, dtype=dtype, drop_axis=1)
        return X.map_blocks(apply, dtype=dtype, chunks=(X.chunks[0], (n_columns,)))

    def predict(self, X: Any) -> Any:
        """The predictions, as a Dask array that is computed when it is asked for."""
        raise NotImplementedError


class _Sayer:
    """Says now and then how far a fit is."""

    def __init__(self) -> None:
        self._next = monotonic() + FIRST

    def __call__(self, progress: Progress) -> None:
        self._say(progress.words)

    def alphas(self, done: int, planned: int) -> None:
        self._say(f"alpha {done} of {planned}")

    def _say(self, words: str) -> None:
        if monotonic() >= self._next:
            self._next = monotonic() + SELDOM / 3
            log(f"training on the cluster: {words}")


def _both(
    first: Callable[[Progress], object] | None, second: Callable[[Progress], object]
) -> Callable[[Progress], object]:
    def call(progress: Progress) -> None:
        if first is not None:
            first(progress)
        second(progress)

    return call


def _applied(local: NetworkEstimator, method: str, block: np.ndarray) -> np.ndarray:
    if len(block) == 0:  # of filtered frames
        found = getattr(local, method)(np.zeros((1, local.n_features_in_)))
        return found[:0]
    return getattr(local, method)(block)


class DaskGatedReLUClassifier(_DaskNetwork):
    """`GatedReLUClassifier` for Dask arrays and DataFrames.

    Parameters
    ----------
    client : a `distributed.Client`; the one that is active unless given.
    callback : called in this process with a `Progress`, in every iteration.

    The others are those of `GatedReLUClassifier`; `max_memory` is for each worker. After `fit` it
    has the attributes of that estimator.
    """

    _kind: ClassVar[type[NetworkEstimator]] = GatedReLUClassifier
    _estimator_type = "classifier"

    def predict(self, X: Any) -> Any:
        """The predicted labels (n,), lazily."""
        return self._lazily("predict", X, self.classes_.dtype, 0)

    def predict_proba(self, X: Any) -> Any:
        """The probabilities of the classes (n, K), lazily."""
        self._fitted_has_probabilities()
        return self._lazily("predict_proba", X, np.float64, len(self.classes_))

    def decision_function(self, X: Any) -> Any:
        """The outputs of the network, (n,) for two classes, else (n, K), lazily."""
        K = len(self.classes_)
        return self._lazily("decision_function", X, np.float64, 0 if K == 2 else K)

    def score(self, X: Any, y: Any) -> float:
        """The share of rows whose label is predicted."""
        return float((self.predict(X) == _as_array(y)).mean().compute())

    def _fitted_has_probabilities(self) -> None:
        if self.loss != "log":
            raise AttributeError(f"probabilities need loss='log', but this is loss={self.loss!r}")


class DaskGatedReLURegressor(_DaskNetwork):
    """`GatedReLURegressor` for Dask arrays and DataFrames.

    Parameters
    ----------
    client : a `distributed.Client`; the one that is active unless given.
    callback : called in this process with a `Progress`, in every iteration.

    The others are those of `GatedReLURegressor`; `max_memory` is for each worker. After `fit` it
    has the attributes of that estimator.
    """

    _kind: ClassVar[type[NetworkEstimator]] = GatedReLURegressor
    _estimator_type = "regressor"

    def predict(self, X: Any) -> Any:
        """The outputs of the network: (n,), or (n, C) if there were several targets; lazily."""
        network = self.network_
        return self._lazily(
            "predict", X, np.float64, 0 if network.flat_output else network.n_outputs
        )

    def score(self, X: Any, y: Any) -> float:
        """The coefficient of determination, averaged over targets."""
        y, predicted = _as_array(y), self.predict(X)
        if y.ndim == 2 and predicted.ndim == 1:
            y = y[:, 0]
        left = ((y - predicted) ** 2).sum(axis=0)
        spread = ((y - y.mean(axis=0)) ** 2).sum(axis=0)
        return float((1 - left / spread).mean().compute())


class DaskGatedReLUClassifierCV(DaskGatedReLUClassifier):
    """`GatedReLUClassifierCV` for Dask arrays and DataFrames: alpha is chosen by cross-validation.

    Parameters
    ----------
    client : a `distributed.Client`; the one that is active unless given.
    callback : called in this process with a `Progress`, in every iteration of the last fit.

    The others are those of `GatedReLUClassifierCV`; folds are trained one after the other, each on
    all workers, so that `n_jobs` stays 1. After `fit` it has the attributes of that estimator.
    """

    _kind = GatedReLUClassifierCV


class DaskGatedReLURegressorCV(DaskGatedReLURegressor):
    """`GatedReLURegressorCV` for Dask arrays and DataFrames: alpha is chosen by cross-validation.

    Parameters
    ----------
    client : a `distributed.Client`; the one that is active unless given.
    callback : called in this process with a `Progress`, in every iteration of the last fit.

    The others are those of `GatedReLURegressorCV`; folds are trained one after the other, each on
    all workers, so that `n_jobs` stays 1. After `fit` it has the attributes of that estimator.
    """

    _kind = GatedReLURegressorCV


def _parts(X: Any, y: Any, sample_weight: Any) -> Iterator[tuple[Any, Any, Any]]:
    """The parts of X with those of y and of the weights, as delayed objects."""
    if not hasattr(X, "to_delayed"):
        raise TypeError(
            f"X must be a Dask array or DataFrame, got {type(X).__name__}; "
            "dask.array.from_array(X, chunks=...) makes one of an array"
        )
    columns = [_rows_of(X, "X")]
    for other, name in ((y, "y"), (sample_weight, "sample_weight")):
        if other is None:
            if name == "y":
                raise TypeError("y is None; labels or values are expected")
            columns.append([None] * len(columns[0]))
            continue
        if not hasattr(other, "to_delayed"):
            raise TypeError(f"{name} must be a Dask collection, got {type(other).__name__}")
        columns.append(_rows_of(_like(other, X, name), name))
        if len(columns[-1]) != len(columns[0]):
            raise ValueError(
                f"X has {len(columns[0])} parts, but {name} has {len(columns[-1])}: "
                "repartition one of them like the other"
            )
    yield from zip(*columns, strict=True)


def _files_of(X: Any, n: int) -> list[str]:
    """The Parquet files of the parts of a DataFrame, for messages. Dask does not offer them, so
    that there may be none."""
    with suppress(Exception):
        from dask.dataframe.dask_expr.io.parquet import ReadParquet

        (read,) = X.expr.find_operations(ReadParquet)
        files = [str(part["piece"][0]) for part in read._plan["parts"]]
        return files if len(files) == n else []
    return []


def _like(other: Any, X: Any, name: str) -> Any:
    """Targets or weights in the parts of X, where their sizes are known."""
    mine, its = getattr(X, "chunks", None), getattr(other, "chunks", None)
    if mine is None or its is None or mine[0] == its[0] or _unknown(mine[0]) or _unknown(its[0]):
        return other
    if sum(mine[0]) != sum(its[0]):
        raise ValueError(f"X has {sum(mine[0])} rows, but {name} has {sum(its[0])}")
    return other.rechunk({0: mine[0]})


def _unknown(sizes: Sequence[float]) -> bool:
    return any(size != size for size in sizes)  # NaN


def _rows_of(values: Any, name: str) -> list[Any]:
    """The parts, each with whole rows."""
    if getattr(values, "ndim", 2) == 2 and hasattr(values, "numblocks"):
        if values.numblocks[1] > 1:
            values = values.rechunk({1: -1})
    elif getattr(values, "ndim", 2) > 2:
        raise ValueError(f"{name} must have one row for each sample, got {values.ndim} dimensions")
    with _parts_kept():
        return list(np.ravel(np.array(values.to_delayed(), dtype=object)))


def _parts_kept() -> Any:
    """Keeps Dask from reading several Parquet files as one part where few columns are asked for: y
    would have fewer parts than X."""
    import dask

    return dask.config.set({"optimization.tune.active": False})


def _names(X: Any) -> list[Any] | None:
    columns = getattr(X, "columns", None)
    return None if columns is None else list(columns)


def _as_array(values: Any) -> Any:
    """A Dask array of a collection."""
    with _parts_kept():
        array = values.to_dask_array() if hasattr(values, "to_dask_array") else values
    if array.ndim == 2 and array.numblocks[1] > 1:
        return array.rechunk({1: -1})
    return array
