"""scikit-learn estimators: rows become a program, its solution a network for the raw rows."""

from cvxnn.estimators.plain import (
    GatedReLUClassifier,
    GatedReLUClassifierCV,
    GatedReLURegressor,
    GatedReLURegressorCV,
    ReLUClassifier,
    ReLUClassifierCV,
    ReLURegressor,
    ReLURegressorCV,
)

__all__ = [
    "GatedReLUClassifier",
    "GatedReLUClassifierCV",
    "GatedReLURegressor",
    "GatedReLURegressorCV",
    "ReLUClassifier",
    "ReLUClassifierCV",
    "ReLURegressor",
    "ReLURegressorCV",
]
