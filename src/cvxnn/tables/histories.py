"""How training went, as arrays of a model file: iterations of a solver, or rounds of generation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import numpy as np

from cvxnn.generation.rounds import KINDS, Round
from cvxnn.solvers.results import HISTORY, Progress, array_of_history, history_of_array

# What files keep of a round. Only signs of life have notes.
ROUND = tuple(f.name for f in fields(Round) if f.name != "note")
_WHOLE = ("n_round", "n_patterns", "n_neurons")


def arrays_of(history: tuple[Progress, ...] | tuple[Round, ...]) -> dict[str, np.ndarray]:
    """`history` (k, len(HISTORY)), and `rounds` (r, len(ROUND)) where there are any; kinds of
    rounds are their places among KINDS."""
    rounds = [record for record in history if isinstance(record, Round)]
    arrays = {
        "history": array_of_history(record for record in history if isinstance(record, Progress))
    }
    if rounds:
        rows = [
            [KINDS.index(value) if name == "kind" else value for name, value in _values(record)]
            for record in rounds
        ]
        arrays["rounds"] = np.array(rows, dtype=np.float64)
    return arrays


def history_of(arrays: Mapping[str, np.ndarray]) -> tuple[Progress, ...] | tuple[Round, ...]:
    """The history of such arrays."""
    for name, width in (("history", len(HISTORY)), ("rounds", len(ROUND))):
        array = arrays.get(name, np.zeros((0, width)))
        if array.dtype != np.float64 or array.ndim != 2 or array.shape[1] != width:
            raise ValueError(f"{name} has dtype {array.dtype} and shape {array.shape}")
    if "rounds" in arrays:
        return tuple(map(_round, arrays["rounds"]))
    return history_of_array(arrays["history"])


def _values(record: Round) -> list[tuple[str, object]]:
    return [(name, getattr(record, name)) for name in ROUND]


def _round(row: np.ndarray) -> Round:
    values = dict(zip(ROUND, row.tolist(), strict=True))
    if values["kind"] not in range(len(KINDS)):
        raise ValueError(f"there is no round of kind {values['kind']:g}")
    whole = {name: int(values[name]) for name in _WHOLE}
    return Round(**{**values, **whole, "kind": KINDS[int(values["kind"])]})
