"""Solvers: one file an algorithm, one driver for all of them.

Names are loaded when first used: a module of this package can be imported without the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "AL": "augmented_lagrangian",
    "CVXPY": "conic",
    "ConeDecomposition": "decomposition",
    "Direct": "direct",
    "LSMR": "direct",
    "Newton": "newton.method",
    "NotConvergedError": "results",
    "Progress": "results",
    "RFISTA": "rfista",
    "Solution": "results",
    "Status": "results",
    "WorkingSets": "working_sets.method",
    "solve": "driver",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"cvxnn.solvers.{_HOME[name]}"), name)
    raise AttributeError(f"module 'cvxnn.solvers' has no attribute {name!r}")
