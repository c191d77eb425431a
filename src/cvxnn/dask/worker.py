"""What runs on Dask workers: parts of the rows are held, and a rank of a fit trains on them.

What a worker holds is in this module, by the name of the fit. Tasks return nothing large.
"""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from safetensors.numpy import load, save

from cvxnn.checkpoints import Content
from cvxnn.estimators.base import NetworkEstimator, Watch, train
from cvxnn.ranks import TorchRanks, failing_together
from cvxnn.sharded import ShardedRows
from cvxnn.solvers.results import Progress
from cvxnn.stored import StoredRows, is_stored

PROGRESS = "cvxnn-"  # the topic of a fit's progress begins with this


class PartError(ValueError):
    """A part that cannot be used; the message says which."""


class Part(NamedTuple):
    """Rows, their targets, and their weights if there are any."""

    X: Any
    y: np.ndarray
    weight: np.ndarray | None


class Held(NamedTuple):
    """Where a part is, and what it is like."""

    address: str
    n: int
    d: int


class Job(Protocol):
    """What a fit does on the workers."""

    def held(self, k: int, *given: Any) -> tuple[Any, int, int]:
        """Part k as it is kept, and the numbers of its rows and columns."""

    def run(
        self, ranks: TorchRanks, kept: dict[int, Any], parts: Sequence[int], d: int, watch: Watch
    ) -> Any:
        """The result of a rank that has these parts among those that are kept, where equal ones
        may take their place."""


@dataclass(eq=False)
class Running:
    """A rank that is here: it waits for others, or works with them."""

    ranks: TorchRanks | None = None
    given_up: threading.Event = field(default_factory=threading.Event)
    interrupted: threading.Event = field(default_factory=threading.Event)
    has_point: bool = False


_held: dict[str, dict[int, Any]] = {}
_running: dict[str, Running] = {}


def hold(fit: str, job: Job, k: int, *given: Any) -> Held:
    """Keep part k of the rows on this worker."""
    from distributed import get_worker

    address = get_worker().address
    try:
        kept, n, d = job.held(k, *given)
    except OSError as error:
        raise PartError(f"part {k} could not be kept on worker {address}: {error}") from error
    _held.setdefault(fit, {})[k] = kept
    return Held(address, n, d)


@dataclass(frozen=True)
class Training:
    """Training an estimator on parts of numbers, in files if asked for."""

    estimator: NetworkEstimator
    in_file: bool

    def held(self, k: int, *given: Any) -> tuple[Part, int, int]:
        X, y, weight = given
        rows = numbers(X, k)
        targets = np.asarray(y)
        if targets.ndim == 2 and targets.shape[1] == 1:
            targets = targets[:, 0]
        weights = None if weight is None else np.asarray(weight, dtype=np.float64).reshape(-1)
        if len(targets) != len(rows) or (weights is not None and len(weights) != len(rows)):
            raise PartError(f"part {k} of X, y and sample_weight have different numbers of rows")
        kept: Any = StoredRows.from_array(rows) if self.in_file and len(rows) else rows
        return Part(kept, targets, weights), *rows.shape

    def run(
        self, ranks: TorchRanks, kept: dict[int, Part], parts: Sequence[int], d: int, watch: Watch
    ) -> NetworkEstimator:
        X, y, weight = _assembled(kept, parts, d)
        rows: Any = X if ranks.size == 1 else ShardedRows(X, ranks)
        train(self.estimator, rows, y, weight, watch)
        return self.estimator


def numbers(X: Any, k: int) -> np.ndarray:
    """A part of X as an array of numbers."""
    if hasattr(X, "dtypes"):
        for name, dtype in X.dtypes.items():
            if getattr(dtype, "kind", "O") not in "biuf":
                raise PartError(
                    f"column {name!r} of X holds {dtype} in part {k}, and numbers are expected"
                )
        X = X.to_numpy()
    try:
        rows = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise PartError(f"part {k} of X does not hold numbers: {error}") from error
    if rows.ndim != 2:
        raise PartError(f"X must be 2-dimensional, part {k} has shape {rows.shape}")
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise PartError(f"X holds NaN or infinity, first in part {k}, row {row}, column {column}")
    return rows


def release(fit: str) -> None:
    """Forget all that this worker has of a fit."""
    _held.pop(fit, None)


def interrupt(fit: str) -> bool:
    """Ask the rank that is here to end with its best point; whether it has any."""
    running = _running.get(fit)
    if running is None or not running.has_point:
        return False
    running.interrupted.set()
    return True


def abort(fit: str) -> None:
    """End the waiting of the rank that is here for one that is lost."""
    running = _running.get(fit)
    if running is not None:
        running.given_up.set()
        if running.ranks is not None:
            running.ranks.close()


@dataclass(frozen=True)
class Task:
    """What all ranks of an attempt share.

    fit, attempt : names.
    address : where rank 0 listens.
    d : the number of columns.
    saved : the last checkpoint of an earlier attempt.
    """

    fit: str
    attempt: int
    size: int
    address: tuple[str, int]
    seconds: float
    d: int
    checkpoint_seconds: float
    saved: bytes | None


def run_rank(
    task: Task, rank: int, host: str, parts: Sequence[int], job: Job
) -> tuple[Any, list[tuple[type[Warning], str]]]:
    """Do the job on the parts that are here, together with the other ranks. Rank 0 returns its
    result, and the warnings."""
    running = _running[task.fit] = Running()
    try:
        ranks = running.ranks = TorchRanks.connect(
            f"{task.fit}-{task.attempt}",
            rank,
            task.size,
            task.address,
            host=host,
            seconds=task.seconds,
            given_up=running.given_up.is_set,
        )
        mine = _held.get(task.fit, {})
        with failing_together(ranks):
            missing = [k for k in parts if k not in mine]
            if missing:
                raise RuntimeError(f"parts {missing} of the rows are no longer on this worker")
        teller = _Teller(task, running)
        watch = Watch(on_iteration=teller, on_alpha=teller.alphas, checkpoint=_Store(task))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = job.run(ranks, mine, parts, task.d, watch)
        said = [(entry.category, str(entry.message)) for entry in caught]
        return (result, said) if rank == 0 else (None, [])
    finally:
        if _running.get(task.fit) is running:
            del _running[task.fit]
        if running.ranks is not None:
            running.ranks.close()


def _assembled(
    kept: dict[int, Part], parts: Sequence[int], d: int
) -> tuple[Any, np.ndarray, np.ndarray | None]:
    """The rows of these parts, one after the other. Parts in memory become views of them, so that
    they are there once."""
    found = [kept[k] for k in parts]
    y = np.concatenate([part.y for part in found])
    weights = [part.weight for part in found]
    weight = None if weights[0] is None else np.concatenate([w for w in weights if w is not None])
    if any(is_stored(part.X) for part in found):
        blocks = (X for part in found if is_stored(part.X) for _, X in part.X.chunks())
        return StoredRows.from_chunks(blocks), y, weight
    X = np.empty((len(y), d))
    start = 0
    for k, part in zip(parts, found, strict=True):
        place = slice(start, start + len(part.y))
        X[place] = part.X
        kept[k] = Part(X[place], y[place], None if weight is None else weight[place])
        start = place.stop
    return X, y, weight


class _Teller:
    """Sends progress to the caller, on rank 0."""

    def __init__(self, task: Task, running: Running) -> None:
        from distributed import get_worker

        self._worker, self._topic, self._running = get_worker(), PROGRESS + task.fit, running

    def alphas(self, done: int, planned: int) -> None:
        ranks = self._running.ranks
        if ranks is not None and ranks.rank == 0:
            self._worker.log_event(self._topic, {"alphas": (done, planned)})

    def __call__(self, progress: Progress) -> None:
        self._running.has_point = True
        if self._running.interrupted.is_set():
            self._running.interrupted.clear()
            raise KeyboardInterrupt
        self._worker.log_event(self._topic, {"progress": asdict(progress)})


class _Store:
    """A checkpoint in the scheduler's memory: whoever goes on may be on another machine."""

    def __init__(self, task: Task) -> None:
        self.file, self._saved = task.fit, task.saved
        self.seconds = task.checkpoint_seconds

    def identify(self) -> None:
        """It is of one fit, by its name."""

    def refusing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def write(self, arrays: Mapping[str, np.ndarray], header: Mapping[str, object]) -> None:
        from distributed import Variable, get_client

        tensors = {name: np.asarray(array, order="C") for name, array in arrays.items()}
        content = save(tensors, {"header": json.dumps(dict(header))})
        Variable(self.file, client=get_client()).set(content)

    def read(self) -> Content | None:
        if self._saved is None:
            return None
        size = int.from_bytes(self._saved[:8], "little")
        header = json.loads(self._saved[8 : 8 + size])["__metadata__"]["header"]
        return Content(load(self._saved), json.loads(header))
