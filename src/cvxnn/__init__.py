"""Two-layer ReLU networks, trained to a certified optimum by convex optimization.

The data's way through the package::

    data -> patterns -> operator -> problem (loss + penalty) -> solver -> certificate -> network

Names are loaded when first used (PEP 562), so importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# The public surface: name -> the module that defines it.
_HOME = {
    "sample_patterns": "patterns",
    "Patterns": "patterns",
    "StoredRows": "stored",
    "ShardedRows": "sharded",
    "GaussianGates": "gates",
    "MixedGates": "gates",
    "SparseGates": "gates",
    "PatchGates": "gates",
    "CGReLU": "problems",
    "CReLU": "problems",
    "PatternWarning": "cones.singular",
    "lambda_max": "problems",
    "solve": "solvers.driver",
    "Solution": "solvers.results",
    "Status": "solvers.results",
    "ConvergenceWarning": "solvers.convergence",
    "NotConvergedError": "solvers.results",
    "path": "paths",
    "Path": "paths",
    "CheckpointError": "checkpoints",
    "Newton": "solvers.newton.method",
    "WorkingSets": "solvers.working_sets.method",
    "Stochastic": "solvers.stochastic",
    "RFISTA": "solvers.rfista",
    "AL": "solvers.augmented_lagrangian",
    "ConeDecomposition": "solvers.decomposition",
    "decompose": "decompositions",
    "Decomposition": "decompositions",
    "Direct": "solvers.direct",
    "LSMR": "solvers.direct",
    "CVXPY": "solvers.conic",
    "Bound": "bounds.base",
    "bound_over_all_patterns": "bounds.choice",
    "enumerate_patterns": "bounds.enumeration",
    "Certificate": "certificates",
    "CertificateError": "certificates",
    "certify": "certificates",
    "verify": "verification.checks",
    "Verification": "verification.checks",
    "GatedReLUNetwork": "networks",
    "ReLUNetwork": "networks",
    "load": "loading",
    "prune": "pruning",
    "ModelFileError": "modelfile",
    "train": "generation.training",
    "Training": "generation.rounds",
    "improve": "improvement",
    "Improvement": "improvement",
    "ReLUClassifier": "estimators",
    "ReLURegressor": "estimators",
    "GatedReLUClassifier": "estimators",
    "GatedReLURegressor": "estimators",
    "ReLUClassifierCV": "estimators",
    "ReLURegressorCV": "estimators",
    "GatedReLUClassifierCV": "estimators",
    "GatedReLURegressorCV": "estimators",
    "Model": "tables.model",
    "TableEncoder": "tables.transformer",
    "read_table": "tables.reading",
    "Table": "tables.table",
    "TableError": "tables.table",
    "TableWarning": "tables.notes",
    "plot_convergence": "plots",
    "plot_path": "plots",
    "plot_cv": "plots",
    "plot_decision_boundary": "plots",
    "plot_function": "plots",
    "plot_decomposition": "plots",
    "plot_performance_profile": "plots",
    "report": "reports",
}

# Modules of objects that settings may be, such as `cvxnn.losses.Huber(delta=0.5)`.
_MODULES = ("losses", "penalties")

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"cvxnn.{name}")
    if name in _HOME:
        value = getattr(import_module(f"cvxnn.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'cvxnn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_MODULES})


if TYPE_CHECKING:  # for type checkers and editors, which do not run __getattr__
    from cvxnn import losses as losses
    from cvxnn import penalties as penalties
    from cvxnn.bounds.base import Bound as Bound
    from cvxnn.bounds.choice import bound_over_all_patterns as bound_over_all_patterns
    from cvxnn.bounds.enumeration import enumerate_patterns as enumerate_patterns
    from cvxnn.certificates import Certificate as Certificate
    from cvxnn.certificates import CertificateError as CertificateError
    from cvxnn.certificates import certify as certify
    from cvxnn.checkpoints import CheckpointError as CheckpointError
    from cvxnn.cones.singular import PatternWarning as PatternWarning
    from cvxnn.decompositions import Decomposition as Decomposition
    from cvxnn.decompositions import decompose as decompose
    from cvxnn.estimators import GatedReLUClassifier as GatedReLUClassifier
    from cvxnn.estimators import GatedReLUClassifierCV as GatedReLUClassifierCV
    from cvxnn.estimators import GatedReLURegressor as GatedReLURegressor
    from cvxnn.estimators import GatedReLURegressorCV as GatedReLURegressorCV
    from cvxnn.estimators import ReLUClassifier as ReLUClassifier
    from cvxnn.estimators import ReLUClassifierCV as ReLUClassifierCV
    from cvxnn.estimators import ReLURegressor as ReLURegressor
    from cvxnn.estimators import ReLURegressorCV as ReLURegressorCV
    from cvxnn.gates import GaussianGates as GaussianGates
    from cvxnn.gates import MixedGates as MixedGates
    from cvxnn.gates import PatchGates as PatchGates
    from cvxnn.gates import SparseGates as SparseGates
    from cvxnn.generation.rounds import Training as Training
    from cvxnn.generation.training import train as train
    from cvxnn.improvement import Improvement as Improvement
    from cvxnn.improvement import improve as improve
    from cvxnn.loading import load as load
    from cvxnn.modelfile import ModelFileError as ModelFileError
    from cvxnn.networks import GatedReLUNetwork as GatedReLUNetwork
    from cvxnn.networks import ReLUNetwork as ReLUNetwork
    from cvxnn.paths import Path as Path
    from cvxnn.paths import path as path
    from cvxnn.patterns import Patterns as Patterns
    from cvxnn.patterns import sample_patterns as sample_patterns
    from cvxnn.plots import plot_convergence as plot_convergence
    from cvxnn.plots import plot_cv as plot_cv
    from cvxnn.plots import plot_decision_boundary as plot_decision_boundary
    from cvxnn.plots import plot_decomposition as plot_decomposition
    from cvxnn.plots import plot_function as plot_function
    from cvxnn.plots import plot_path as plot_path
    from cvxnn.plots import plot_performance_profile as plot_performance_profile
    from cvxnn.problems import CGReLU as CGReLU
    from cvxnn.problems import CReLU as CReLU
    from cvxnn.problems import lambda_max as lambda_max
    from cvxnn.pruning import prune as prune
    from cvxnn.reports import report as report
    from cvxnn.sharded import ShardedRows as ShardedRows
    from cvxnn.solvers.augmented_lagrangian import AL as AL
    from cvxnn.solvers.conic import CVXPY as CVXPY
    from cvxnn.solvers.convergence import ConvergenceWarning as ConvergenceWarning
    from cvxnn.solvers.decomposition import ConeDecomposition as ConeDecomposition
    from cvxnn.solvers.direct import LSMR as LSMR
    from cvxnn.solvers.direct import Direct as Direct
    from cvxnn.solvers.driver import solve as solve
    from cvxnn.solvers.newton.method import Newton as Newton
    from cvxnn.solvers.results import NotConvergedError as NotConvergedError
    from cvxnn.solvers.results import Solution as Solution
    from cvxnn.solvers.results import Status as Status
    from cvxnn.solvers.rfista import RFISTA as RFISTA
    from cvxnn.solvers.stochastic import Stochastic as Stochastic
    from cvxnn.solvers.working_sets.method import WorkingSets as WorkingSets
    from cvxnn.stored import StoredRows as StoredRows
    from cvxnn.tables.model import Model as Model
    from cvxnn.tables.notes import TableWarning as TableWarning
    from cvxnn.tables.reading import read_table as read_table
    from cvxnn.tables.table import Table as Table
    from cvxnn.tables.table import TableError as TableError
    from cvxnn.tables.transformer import TableEncoder as TableEncoder
    from cvxnn.verification.checks import Verification as Verification
    from cvxnn.verification.checks import verify as verify
