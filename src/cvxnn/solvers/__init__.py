"""Solvers: one file an algorithm, one driver for all of them."""

from cvxnn.solvers.augmented_lagrangian import AL
from cvxnn.solvers.conic import CVXPY
from cvxnn.solvers.decomposition import ConeDecomposition
from cvxnn.solvers.direct import LSMR, Direct
from cvxnn.solvers.driver import solve
from cvxnn.solvers.newton.method import Newton
from cvxnn.solvers.results import NotConvergedError, Progress, Solution, Status
from cvxnn.solvers.rfista import RFISTA

__all__ = [
    "AL",
    "CVXPY",
    "LSMR",
    "RFISTA",
    "ConeDecomposition",
    "Direct",
    "Newton",
    "NotConvergedError",
    "Progress",
    "Solution",
    "Status",
    "solve",
]
