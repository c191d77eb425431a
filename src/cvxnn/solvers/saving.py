"""Runs in files, from which they go on after the process has ended, however it did.

A file holds the best weights and the best dual point so far, the history, and where the method was
(`Snapshot`). It is replaced every so often, and once more at the end of a run.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import fields, is_dataclass, replace
from os import PathLike
from typing import NamedTuple

import numpy as np

from cvxnn import budget
from cvxnn.arrays import Array, to_numpy
from cvxnn.checkpoints import CheckpointFile, Content, Store, packed, unpacked
from cvxnn.problems import ConvexProblem
from cvxnn.protocols import Problem
from cvxnn.ranks import failing_together
from cvxnn.solvers.base import Snapshot, Solver
from cvxnn.solvers.results import HISTORY, Progress, array_of_history, history_of_array
from cvxnn.validation import check_array, check_integer, check_number

INTERVAL = 60.0  # seconds between two writes, unless given
SHARE = 20.0  # times as long as a write takes, at least: a slow disk does not slow down the run


class Saved(NamedTuple):
    """A run so far. With rows in several processes there is no dual point: the rows may be in
    others when the run goes on."""

    weights: Array
    dual: Array | None
    history: tuple[Progress, ...]
    n_iter: int
    n_products: int
    seconds: float
    snapshot: Snapshot | None


class RunFile:
    """The file of one run.

    interval : seconds between two writes.
    """

    def __init__(
        self,
        file: str | PathLike[str] | Store,
        problem: Problem,
        method: Solver,
        stop: str,
        interval: float,
    ) -> None:
        if not isinstance(problem, ConvexProblem):
            raise TypeError("checkpoints are for CGReLU and CReLU problems")
        self.problem, self.interval = problem, interval
        self.across = problem.operator.base.across
        settings = f"{problem.lam!r} {_described(method)} {stop}"
        parts = "problem, lam, solver or stopping rule"
        with failing_together(self.across):
            if isinstance(file, Store):
                self._content: Store = file
            else:
                self._content = CheckpointFile(file, "run", problem, settings, parts=parts)
        if self.across.size > 1:
            self._content.identify()
        self.refusing = self._content.refusing
        self._next = budget.clock() + interval
        self._failed = False

    @property
    def is_due(self) -> bool:
        return budget.clock() >= self._next

    def write(self, saved: Saved) -> None:
        """Replace the file. A disk that is full does not end a run: it goes on, with a warning.
        Rank 0 writes for all."""
        if self.across.rank > 0:
            return
        arrays = {f"best.{name}": array for name, array in packed(to_numpy(saved.weights)).items()}
        if self.across.size == 1 and saved.dual is not None:
            arrays["best.dual"] = to_numpy(saved.dual)
        arrays["history"] = array_of_history(saved.history)
        arrays["trials"] = np.array([record.n_trials or 0 for record in saved.history], dtype=int)
        header: dict[str, object] = {
            "n_iter": saved.n_iter,
            "n_products": saved.n_products,
            "seconds": saved.seconds,
            **({} if self.across.size == 1 else {"ranks": self.across.size}),
            "method": None if saved.snapshot is None else saved.snapshot.method,
        }
        if saved.snapshot is not None:
            its = saved.snapshot.arrays
            arrays |= {f"method.{name}": to_numpy(value) for name, value in its.items()}
        begin = budget.clock()
        try:
            self._content.write(arrays, header)
        except OSError as error:
            if not self._failed:
                warnings.warn(
                    f"checkpoint {self._content.file} could not be written: "
                    f"{error.strerror or error}; the run goes on without it",
                    RuntimeWarning,
                    stacklevel=6,
                )
            self._failed = True
        now = budget.clock()
        self._next = now + max(self.interval, SHARE * (now - begin))

    def read(self) -> Saved | None:
        """The run so far; None without a file. Rank 0 reads for all."""
        found = None
        with failing_together(self.across):
            if self.across.rank == 0:
                found = self._content.read()
        found = self.across.gather(found)[0]
        if found is None:
            return None
        with self.refusing():
            return self._restored(found)

    def _restored(self, found: Content) -> Saved:
        arrays, header, shape = found.arrays, found.header, self.problem.weight_shape
        best = {name: arrays[f"best.{name}"] for name in ("pairs", "rows")}
        dual = None
        if self.across.size == 1 and "ranks" not in header:
            values = to_numpy(check_array(arrays["best.dual"], "dual"))
            dual = self.problem.operator_double.like(values.reshape(self.problem.loss.Y.shape))
        history = arrays["history"]
        if history.ndim != 2 or history.shape[1] != len(HISTORY):
            raise ValueError(f"a history of shape {history.shape}")
        trials = arrays.get("trials", np.zeros(len(history)))  # older files have none
        snapshot, method = None, header["method"]
        if method is not None:
            its = {
                name.removeprefix("method."): array
                for name, array in arrays.items()
                if name.startswith("method.")
            }
            snapshot = Snapshot(str(method), its)
        return Saved(
            weights=self.problem.check_weights(unpacked(best, shape)),
            dual=dual,
            history=tuple(
                replace(record, n_trials=int(count))
                for record, count in zip(history_of_array(history), trials, strict=True)
            ),
            n_iter=check_integer(header["n_iter"], "n_iter", minimum=0),
            n_products=check_integer(header["n_products"], "n_products", minimum=0),
            seconds=check_number(header["seconds"], "seconds", minimum=0, maximum=math.inf),
            snapshot=snapshot,
        )


def _described(method: Solver) -> str:
    """A solver and its settings, in words that are the same in every process."""
    if not is_dataclass(method):
        return method.name
    return f"{method.name} {[(f.name, getattr(method, f.name)) for f in fields(method)]}"
