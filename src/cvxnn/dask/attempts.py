"""A fit on a Dask cluster, seen from the caller: parts are held by workers, one task on each worker
is a rank, and a worker that is lost ends the attempt, not the fit.

Dask places the parts and makes those again that a lost worker has held. What the ranks tell each
other does not go through Dask.
"""

from __future__ import annotations

import errno
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cvxnn.dask import worker
from cvxnn.dask.worker import PROGRESS, Held, Job, Task
from cvxnn.ranks import LostRankError, OtherRankError
from cvxnn.solvers.results import Progress

RESTARTS = 2  # after lost workers
FROZEN = 30.0  # seconds without a sign of life, while others give some
UNREACHED = 8.0  # seconds without the scheduler, after which it counts as lost
SETTLED = 20.0  # seconds until it is known what an error came from
POLL = 0.3  # seconds between two looks at the workers
PATIENCE = 600.0  # seconds that a rank waits for the others, unless it is told that one is lost
CHECKPOINT = 5.0  # seconds between two checkpoints


class ClusterError(RuntimeError):
    """The cluster did not hold out; the message says what was lost."""


class Lost(NamedTuple):
    """The end of an attempt that has lost workers."""

    what: str


@dataclass(eq=False)
class DaskFit:
    """One fit.

    job : what workers keep of the parts, and do with them.
    parts : what each part is made of, as futures, delayed objects, or data.
    sources : the names of the files of the parts, where they are known.
    on_iteration, on_alpha : called with the progress, in the caller's process.
    """

    client: Any
    job: Job
    parts: Sequence[tuple[Any, ...]]
    sources: Sequence[str] = ()
    on_iteration: Callable[[Progress], object] | None = None
    on_alpha: Callable[[int, int], object] | None = None
    name: str = field(default_factory=lambda: f"cvxnn-{uuid.uuid4().hex[:12]}")
    _reached_at: float = field(default_factory=time.monotonic)  # the scheduler was there then

    def run(self) -> Any:
        """The result of the job on rank 0."""
        topic = PROGRESS + self.name
        holds: list[Any] = []
        with _scheduler_there(self.client):
            try:
                self.client.subscribe_topic(topic, self._told)
                self._variable.set(b"")
                holds += self._hold()
                return self._attempts(holds)
            finally:
                if _reached(self.client):
                    self.client.unsubscribe_topic(topic)
                    self._clean_up(holds)

    def _hold(self) -> list[Any]:
        import dask

        hold = dask.delayed(worker.hold, pure=False)
        return self.client.compute(
            [hold(self.name, self.job, k, *part) for k, part in enumerate(self.parts)],
            optimize_graph=True,
        )

    def _attempts(self, holds: list[Any]) -> Any:
        lost: list[str] = []
        saved: bytes | None = None
        for attempt in range(RESTARTS + 1):
            held = self._held(holds)  # made again where a worker was lost
            outcome = self._attempt(attempt, held, saved)
            if not isinstance(outcome, Lost):
                return outcome
            lost.append(outcome.what)
            saved = self._checkpoint() or saved
        raise ClusterError(
            f"the fit was given up after {len(lost)} attempts, each of which lost a worker: "
            + "; ".join(lost)
        )

    def _held(self, holds: list[Any]) -> list[Held]:
        """Where the parts are, once all are made."""
        try:
            return self._waited_for(holds)
        except Exception as error:
            if _is_loss(error):
                raise ClusterError(
                    f"workers were lost while they read the rows: {error}"
                ) from error
            if isinstance(error, ClusterError) or not _reached(self.client):
                raise
            broken = [k for k, hold in enumerate(holds) if hold.status == "error"]
            if not broken or type(error).__module__.startswith("cvxnn"):
                raise
            where = f"part {broken[0]} of the rows"
            if self.sources:
                where += f", {self.sources[broken[0]]},"
            raise ValueError(
                f"{where} could not be read: {type(error).__name__}: {error}"
            ) from error

    def _waited_for(self, holds: list[Any]) -> list[Held]:
        while not all(hold.done() for hold in holds):
            self._check_scheduler()
            if any(hold.status == "error" for hold in holds):
                break
            time.sleep(POLL / 3)
        return self.client.gather(holds)

    def _attempt(self, attempt: int, held: list[Held], saved: bytes | None) -> Any:
        """The result, or what was lost."""
        d = self._columns(held)
        owners = sorted({part.address for part in held})
        with self._alone_on(owners):
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
                    self.job,
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
                if _reached(self.client):
                    self.client.cancel(ranks, force=True)

    @contextmanager
    def _alone_on(self, owners: list[str]) -> Iterator[None]:
        """One fit at a time on a worker: two might wait for each other's ranks."""
        from distributed import MultiLock

        lock = MultiLock(names=owners, client=self.client)
        lock.acquire()
        try:
            yield
        finally:
            if _reached(self.client):
                lock.release()

    def _outcome(self, ranks: list[Any], owners: list[str]) -> Any:
        interrupted = False
        while True:
            try:
                time.sleep(POLL)
                self._check_scheduler()
                states = [rank.status for rank in ranks]
                if all(state == "finished" for state in states):
                    result, said = ranks[0].result()
                    for category, message in said:
                        warnings.warn(message, category, stacklevel=6)
                    return result
                failed = [rank for rank in ranks if rank.status == "error"]
                gone = self._gone(owners)
                if failed or gone or "lost" in states or "cancelled" in states:
                    return self._why(ranks, owners, gone)
            except KeyboardInterrupt:
                first, interrupted = not interrupted, True
                if first and any(
                    self.client.run(worker.interrupt, self.name, workers=owners[:1]).values()
                ):
                    continue  # it ends with its best point
                self._abort(owners)
                raise

    def _check_scheduler(self) -> None:
        """Raise once the scheduler has been out of reach for a while."""
        if _reached(self.client):
            self._reached_at = time.monotonic()
            return
        if time.monotonic() - self._reached_at > UNREACHED or self.client.status == "closed":
            raise _no_scheduler(self.client)
        while not _reached(self.client) and time.monotonic() - self._reached_at <= UNREACHED:
            time.sleep(POLL)
        self._check_scheduler()

    def _why(self, ranks: list[Any], owners: list[str], gone: dict[str, str]) -> Lost:
        """What was lost, after all ranks have ended. An error of another kind is raised."""
        alive = [owner for owner in owners if owner not in gone]
        until = time.monotonic() + SETTLED
        while time.monotonic() < until:  # the first error may only follow from another one
            errors = [rank.exception() if rank.status == "error" else None for rank in ranks]
            first = next((k for k, error in enumerate(errors) if _is_own(error)), None)
            if first is not None:
                self._abort(alive)
                error = errors[first]
                assert error is not None
                raise _named(error, owners[first])
            gone = gone or self._gone(owners)
            if gone:
                break
            time.sleep(POLL)
        self._abort([owner for owner in owners if owner not in gone])
        for owner, why in gone.items():
            if why == "frozen":
                self._remove(owner)
        if not gone:
            return Lost("no worker is missing, but their connections broke")
        return Lost(", ".join(f"worker {owner} {why}" for owner, why in gone.items()))

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
        self.client.cancel(holds)
        self.client.run(worker.release, self.name, on_error="ignore")
        self._variable.delete()

    @property
    def _variable(self) -> Any:
        """Where the checkpoint is; empty before there is one."""
        from distributed import Variable

        return Variable(self.name, client=self.client)

    def _told(self, event: tuple[float, dict[str, Any]]) -> None:
        news = event[1]
        if self.on_iteration is not None and "progress" in news:
            self.on_iteration(Progress(**news["progress"]))
        if self.on_alpha is not None and "alphas" in news:
            self.on_alpha(*news["alphas"])

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


def _reached(client: Any) -> bool:
    """Whether the client is connected to its scheduler."""
    return client.status == "running"


def _no_scheduler(client: Any) -> ClusterError:
    address = getattr(client.scheduler, "address", "") or getattr(client, "_start_arg", "")
    return ClusterError(f"the scheduler {address} is lost: it does not answer any more")


@contextmanager
def _scheduler_there(client: Any) -> Iterator[None]:
    """Say that the scheduler is lost where an operation has failed for that reason."""
    try:
        yield
    except ClusterError:
        raise
    except Exception as error:
        if _reached(client) or isinstance(error, KeyboardInterrupt):
            raise
        raise _no_scheduler(client) from error


def _is_own(error: BaseException | None) -> bool:
    """Whether this is an error of a rank itself, not one that follows from another's."""
    if error is None or isinstance(error, LostRankError | OtherRankError):
        return False
    return not _is_loss(error)


def _named(error: BaseException, owner: str) -> BaseException:
    """An error, with the name of the worker where it depends on that."""
    if not isinstance(error, OSError | MemoryError):
        return error
    full = isinstance(error, OSError) and error.errno == errno.ENOSPC
    what = "has no space left on its disk" if full else f"failed with {type(error).__name__}"
    found = ClusterError(f"worker {owner} {what}: {error}")
    found.__cause__ = error
    return found


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
