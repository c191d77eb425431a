"""scikit-learn estimators: rows become a program, its solution a network for the raw rows."""

from cvxnn.estimators.cross_validation import (
    GatedReLUClassifierCV,
    GatedReLURegressorCV,
    ReLUClassifierCV,
    ReLURegressorCV,
)
from cvxnn.estimators.plain import (
    GatedReLUClassifier,
    GatedReLURegressor,
    ReLUClassifier,
    ReLURegressor,
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
