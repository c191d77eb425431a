"""A fit on a Dask cluster, seen from the caller: parts are held by workers, one task on each worker
is a rank, and a worker that is lost ends the attempt, not the fit.

Dask places the parts and makes those again that a lost worker has held. What the ranks tell each
other does not go through Dask.
"""

from __future__ import annotations

import time
import uuid
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cvxnn.dask import worker
from cvxnn.dask.worker import PROGRESS, Held, Task
from cvxnn.estimators.base import NetworkEstimator
from cvxnn.ranks import LostRankError
from cvxnn.solvers.results import Progress

RESTARTS = 2  # after lost workers
FROZEN = 60.0  # seconds without a sign of life, while others give some
SETTLED = 20.0  # seconds until it is known what an error came from
POLL = 0.3  # seconds between two looks at the workers
PATIENCE = 600.0  # seconds that a rank waits for the others, unless it is told that one is lost
CHECKPOINT = 5.0  # seconds between two checkpoints


class ClusterError(RuntimeError):
    """The cluster did not hold out; the message says what was lost."""


@dataclass(eq=False)
class DaskFit:
    """One fit.

    parts : of X, y and the weights (or None), as futures or delayed objects.
    in_file : whether workers keep their rows in files.
    on_iteration : called with the progress, in the caller's process.
    """

    client: Any
    estimator: NetworkEstimator
    parts: Sequence[tuple[Any, Any, Any]]
    on_iteration: Callable[[Progress], object] | None = None
    name: str = field(default_factory=lambda: f"cvxnn-{uuid.uuid4().hex[:12]}")

    def run(self) -> NetworkEstimator:
        """The fitted estimator."""
        topic = PROGRESS + self.name
        if self.on_iteration is not None:
            self.client.subscribe_topic(topic, self._told)
        self._variable.set(b"")
        holds = self._hold()
        try:
            return self._attempts(holds)
        finally:
            if self.on_iteration is not None:
                self.client.unsubscribe_topic(topic)
            self._clean_up(holds)

    def _hold(self) -> list[Any]:
        import dask

        hold = dask.delayed(worker.hold, pure=False)
        in_file = self.estimator.max_memory is not None
        return self.client.compute(
            [hold(self.name, k, *part, in_file) for k, part in enumerate(self.parts)],
            optimize_graph=True,
        )

    def _attempts(self, holds: list[Any]) -> NetworkEstimator:
        lost: list[str] = []
        saved: bytes | None = None
        for attempt in range(RESTARTS + 1):
            held = self.client.gather(holds)  # made again where a worker was lost
            outcome = self._attempt(attempt, held, saved)
            if isinstance(outcome, NetworkEstimator):
                return outcome
            lost.append(outcome)
            saved = self._checkpoint() or saved
        raise ClusterError(
            f"the fit was given up after {len(lost)} attempts, each of which lost a worker: "
            + "; ".join(lost)
        )

    def _attempt(
        self, attempt: int, held: list[Held], saved: bytes | None
    ) -> NetworkEstimator | str:
        """The fitted estimator, or what was lost."""
        from distributed import MultiLock

        d = self._columns(held)
        owners = sorted({part.address for part in held})
        with MultiLock(names=owners, client=self.client):
            port = self.client.run(_free_port, workers=owners[:1])[owners[0]]
            host = _host(owners[0])
            task = Task(
                self.name,
                attempt,
                len(owners),
                (host, port),
                PATIENCE,
                d,
                CHECKPOINT,
                saved,
            )
            ranks = [
                self.client.submit(
                    worker.run_rank,
                    task,
                    rank,
                    _host(owner),
                    [k for k, part in enumerate(held) if part.address == owner],
                    self.estimator,
                    workers=[owner],
                    allow_other_workers=False,
                    pure=False,
                    retries=0,
                )
                for rank, owner in enumerate(owners)
            ]
            try:
                return self._outcome(ranks, owners)
            finally:
                self.client.cancel(ranks, force=True)

    def _outcome(self, ranks: list[Any], owners: list[str]) -> NetworkEstimator | str:
        interrupted = False
        while True:
            try:
                time.sleep(POLL)
                states = [rank.status for rank in ranks]
                if all(state == "finished" for state in states):
                    estimator, said = ranks[0].result()
                    for category, message in said:
                        warnings.warn(message, category, stacklevel=6)
                    return estimator
                failed = [rank for rank in ranks if rank.status == "error"]
                gone = self._gone(owners)
                if failed or gone or "lost" in states or "cancelled" in states:
                    return self._why(ranks, owners, gone)
            except KeyboardInterrupt:
                if interrupted:
                    self._abort(owners)
                    raise
                interrupted = True
                self.client.run(worker.interrupt, self.name, workers=owners[:1])

    def _why(self, ranks: list[Any], owners: list[str], gone: dict[str, str]) -> str:
        """What was lost, after all ranks have ended. An error of another kind is raised."""
        alive = [owner for owner in owners if owner not in gone]
        until = time.monotonic() + SETTLED
        while time.monotonic() < until:  # the first error may only follow from another one
            errors = [rank.exception() for rank in ranks if rank.status == "error"]
            own = [error for error in errors if not isinstance(error, LostRankError)]
            if own and not _is_loss(own[0]):
                self._abort(alive)
                raise own[0]
            gone = gone or self._gone(owners)
            if gone:
                break
            time.sleep(POLL)
        self._abort([owner for owner in owners if owner not in gone])
        for owner, why in gone.items():
            if why == "frozen":
                self._remove(owner)
        if not gone:
            return "no worker is missing, but their connections broke"
        return ", ".join(f"worker {owner} {why}" for owner, why in gone.items())

    def _gone(self, owners: list[str]) -> dict[str, str]:
        """Workers that are no longer there, or do not answer."""
        silence = self.client.run_on_scheduler(_silence)
        return {
            owner: "lost" if owner not in silence else "frozen"
            for owner in owners
            if silence.get(owner, FROZEN) >= FROZEN
        }

    def _abort(self, owners: list[str]) -> None:
        if owners:
            self.client.run(worker.abort, self.name, workers=owners, on_error="ignore")

    def _remove(self, owner: str) -> None:
        """Have the scheduler forget a worker that does not answer, so that its parts are made again
        elsewhere."""

        async def remove(dask_scheduler: Any) -> None:
            await dask_scheduler.remove_worker(owner, stimulus_id=f"cvxnn-frozen-{time.time()}")

        self.client.run_on_scheduler(remove)

    def _checkpoint(self) -> bytes | None:
        return bytes(self._variable.get(timeout=10)) or None

    def _clean_up(self, holds: list[Any]) -> None:
        if self.client.status != "running":
            return
        self.client.cancel(holds)
        self.client.run(worker.release, self.name, on_error="ignore")
        self._variable.delete()

    @property
    def _variable(self) -> Any:
        """Where the checkpoint is; empty before there is one."""
        from distributed import Variable

        return Variable(self.name, client=self.client)

    def _told(self, event: tuple[float, dict[str, Any]]) -> None:
        if self.on_iteration is not None:
            self.on_iteration(Progress(**event[1]["progress"]))

    @staticmethod
    def _columns(held: list[Held]) -> int:
        widths = sorted({part.d for part in held})
        if len(widths) > 1:
            raise ValueError(f"parts of X have different numbers of columns: {widths}")
        if sum(part.n for part in held) == 0:
            raise ValueError("X is empty: there are no rows")
        return widths[0]


def _silence(dask_scheduler: Any) -> dict[str, float]:
    """Seconds since each worker gave a sign of life, as the scheduler knows."""
    now = time.time()
    return {address: now - its.last_seen for address, its in dask_scheduler.workers.items()}


def _is_loss(error: BaseException) -> bool:
    """Whether an error says that a worker is lost."""
    return type(error).__name__ in ("KilledWorker", "CancelledError", "FutureCancelledError")


def _host(address: str) -> str:
    return address.rpartition("://")[2].rpartition(":")[0].strip("[]")


def _free_port() -> int:
    import socket

    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])
