"""Processes that share the rows of a problem, and what they tell each other.

Every process, called a rank, runs the same program on rows of its own. What is computed for rows
stays with them; sums over rows are sums over the ranks, which all of them ask for at the same point
of the program. All get the same answer, to the last bit. Decisions follow from such sums or are
those of rank 0, so that no rank waits for a sum that another does not ask for.

A process that has all rows is `ALONE`. `TorchRanks` speaks through torch.distributed: gloo between
processors, nccl between GPUs.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain
from time import monotonic, sleep
from typing import Any, Protocol

import numpy as np

MEETING = 2.0  # seconds of one try to reach process 0


class Ranks(Protocol):
    """Collective operations: a call on one rank waits for that of all the others."""

    rank: int  # of this process
    size: int  # how many there are

    def sum(self, x: Any) -> Any:
        """The sum over all ranks, entry by entry, of arrays of one shape."""

    def max(self, x: Any) -> Any:
        """The largest value of each entry."""

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, in their order."""

    def agree(self, x: Any) -> Any:
        """The array of rank 0."""


class Alone:
    """One process with all the rows."""

    rank, size = 0, 1

    def sum(self, x: Any) -> Any:
        return x

    def max(self, x: Any) -> Any:
        return x

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def agree(self, x: Any) -> Any:
        return x


ALONE = Alone()


class LostRankError(RuntimeError):
    """Another process of the group has ended, or does not answer."""


class TorchRanks:
    """The ranks of a process group of torch.distributed, by default the one that
    `torch.distributed.init_process_group` has made.

    n_calls, n_bytes : what has gone through it so far.
    """

    def __init__(self, group: Any = None) -> None:
        import torch
        from torch import distributed

        if group is None:
            group = distributed.group.WORLD
            if group is None:
                raise RuntimeError(
                    "there is no process group: call torch.distributed.init_process_group first"
                )
        self._torch, self._distributed, self._group = torch, distributed, group
        on_gpu = group.name() == "nccl"
        self._device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else "cpu"
        self.rank, self.size = group.rank(), group.size()
        self.n_calls = self.n_bytes = 0

    @classmethod
    def connect(
        cls,
        name: str,
        rank: int,
        size: int,
        address: tuple[str, int],
        *,
        host: str = "",
        seconds: float = 600.0,
        given_up: Callable[[], bool] = lambda: False,
    ) -> TorchRanks:
        """A group of its own over gloo, beside any other that a process is in. Rank 0 listens at
        `address`; `host` is where this process is reached, and no operation waits longer than so
        many `seconds`. Until all have met, it is asked now and then whether to give up."""
        from torch import distributed

        until = monotonic() + seconds

        def waiting() -> bool:
            if given_up():
                raise LostRankError(f"process {rank} stopped waiting for the others")
            return monotonic() < until

        def found_store() -> Any:
            while True:
                try:
                    return distributed.TCPStore(
                        *address,
                        is_master=rank == 0,
                        timeout=timedelta(seconds=MEETING),
                        wait_for_workers=False,
                    )
                except RuntimeError as error:  # nobody listens there yet
                    if rank == 0 or not waiting():
                        raise LostRankError(
                            f"process {rank} did not find process 0 at {address}: {error}"
                        ) from error

        store = distributed.PrefixStore(name, found_store())
        store.set(f"{rank} is here", "")
        everybody = [f"{other} is here" for other in range(size)]
        while not store.check(everybody):
            if not waiting():
                absent = [k for k, key in enumerate(everybody) if not store.check([key])]
                raise LostRankError(f"processes {absent} did not come within {seconds:.0f} s")
            sleep(MEETING / 20)
        return cls.of_store(store, rank, size, host=host or address[0], seconds=seconds)

    @classmethod
    def of_store(
        cls, store: Any, rank: int, size: int, *, host: str = "", seconds: float = 600.0
    ) -> TorchRanks:
        """A group over gloo of the processes that share a store of torch.distributed."""
        from torch import distributed

        gloo, wait = distributed.ProcessGroupGloo, timedelta(seconds=seconds)
        options = gloo._Options()
        device = gloo.create_device(hostname=host) if host else gloo.create_default_device()
        options._devices, options._timeout = [device], wait
        try:
            return cls(gloo(store, rank, size, options))
        except RuntimeError as error:
            raise LostRankError(f"process {rank} found no group: {error}") from error

    def close(self) -> None:
        """Leave the group: whoever waits for this rank gets an error, now or later."""
        abort = getattr(self._group, "abort", None)  # which early versions do not have
        if abort is not None:
            abort()

    def sum(self, x: Any) -> Any:
        return self._reduced(x, self._distributed.ReduceOp.SUM)

    def max(self, x: Any) -> Any:
        return self._reduced(x, self._distributed.ReduceOp.MAX)

    def gather(self, value: Any) -> list[Any]:
        torch, content = self._torch, pickle.dumps(value)
        sizes = self._gathered(torch.tensor([len(content)], device=self._device))
        padded = np.zeros(max(map(int, sizes)), dtype=np.uint8)
        padded[: len(content)] = np.frombuffer(content, dtype=np.uint8)
        parts = self._gathered(torch.from_numpy(padded).to(self._device))
        return [
            pickle.loads(part.cpu().numpy().tobytes()[: int(size)])
            for part, size in zip(parts, sizes, strict=True)
        ]

    def agree(self, x: Any) -> Any:
        options = self._distributed.BroadcastOptions()
        options.rootRank = 0
        return self._exchanged(x, lambda tensor: self._group.broadcast([tensor], options))

    def _reduced(self, x: Any, operation: Any) -> Any:
        options = self._distributed.AllreduceOptions()
        options.reduceOp = operation
        return self._exchanged(x, lambda tensor: self._group.allreduce([tensor], options))

    def _exchanged(self, x: Any, begin: Any) -> Any:
        array = np.array(x, dtype=np.float64)  # a copy, which is overwritten
        tensor = self._torch.from_numpy(array.reshape(-1)).to(self._device)
        if array.size:
            self._wait(begin, tensor)
        found = tensor.cpu().numpy().reshape(array.shape)
        return float(found) if np.ndim(x) == 0 else found

    def _gathered(self, tensor: Any) -> list[Any]:
        parts = [self._torch.empty_like(tensor) for _ in range(self.size)]
        self._wait(lambda its: self._group.allgather([parts], [its]), tensor)
        return parts

    def _wait(self, begin: Any, tensor: Any) -> None:
        self.n_calls += 1
        self.n_bytes += tensor.numel() * tensor.element_size()
        try:
            begin(tensor).wait()
        except RuntimeError as error:
            raise LostRankError(f"another process is lost: {error}") from error


class OtherRankError(RuntimeError):
    """Another process has met an error, which the message quotes."""


@contextmanager
def failing_together(across: Ranks) -> Iterator[None]:
    """Make an error on one rank one of all. Nothing inside may wait for other ranks."""
    error: Exception | None = None
    try:
        yield
    except Exception as caught:
        if across.size == 1:
            raise
        error = caught
    found = across.gather(None if error is None else str(error))
    if error is not None:
        raise error
    for rank, message in enumerate(found):
        if message is not None:
            raise OtherRankError(f"process {rank}: {message}")


def total(x: Any, across: Ranks) -> float:
    """The sum of all entries on all ranks."""
    return float(across.sum(np.sum(x)))


def norm(x: np.ndarray, across: Ranks) -> float:
    """The Euclidean norm of the entries on all ranks."""
    here = float(np.linalg.norm(x))
    return here if across.size == 1 else math.sqrt(across.sum(here**2))


def first_largest(values: np.ndarray, across: Ranks) -> int | None:
    """Where the first of the largest entries on all ranks is, or None if it is not here."""
    if across.size == 1:
        return int(np.argmax(values))
    here = int(np.argmax(values)) if len(values) else None
    largest = across.gather(-math.inf if here is None else float(values[here]))
    return here if largest.index(max(largest)) == across.rank else None


def orthogonal(columns: np.ndarray, across: Ranks) -> tuple[np.ndarray, np.ndarray]:
    """The left singular vectors and the singular values of few columns, whose rows all ranks have:
    those of the triangular factors of each, one below the other."""
    if across.size == 1:
        basis, sizes, _ = np.linalg.svd(columns, full_matrices=False)
        return basis, sizes
    own, triangle = np.linalg.qr(columns)
    triangles = across.gather(triangle)
    start = sum(len(part) for part in triangles[: across.rank])
    basis, sizes, _ = np.linalg.svd(np.concatenate(triangles), full_matrices=False)
    basis = across.agree(basis)[start : start + len(triangle)]
    return own @ basis, across.agree(sizes)


def exact_sum(values: np.ndarray, across: Ranks) -> float:
    """The sum of doubles on all ranks, correctly rounded."""
    if across.size == 1:
        return math.fsum(values)
    parts = [part for parts in across.gather(_parts(values)) for part in parts]
    if math.inf in parts:
        raise OverflowError("a sum beyond the largest double")
    return math.fsum(parts)


def _parts(values: np.ndarray) -> list[float]:
    """A few doubles with exactly the same sum; infinity if that is out of range, or no number."""
    if not np.all(np.isfinite(values)):
        return [math.inf]
    parts: list[float] = []
    try:
        while (left := math.fsum(chain(values, (-part for part in parts)))) != 0:
            parts.append(left)
    except OverflowError:
        return [math.inf]
    return parts
