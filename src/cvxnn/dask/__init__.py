"""Estimators on Dask clusters; needs `pip install 'cvxnn[dask]'`."""

from cvxnn.dask.attempts import ClusterError
from cvxnn.dask.estimators import (
    DaskGatedReLUClassifier,
    DaskGatedReLUClassifierCV,
    DaskGatedReLURegressor,
    DaskGatedReLURegressorCV,
)

__all__ = [
    "ClusterError",
    "DaskGatedReLUClassifier",
    "DaskGatedReLUClassifierCV",
    "DaskGatedReLURegressor",
    "DaskGatedReLURegressorCV",
]
