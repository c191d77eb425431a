"""Processes that share rows, for tests: each runs the same function, over gloo."""

from __future__ import annotations

import multiprocessing
import socket
import traceback
from contextlib import contextmanager
from itertools import count
from multiprocessing.connection import Connection

from cvxnn.ranks import TorchRanks

SECONDS = 300  # after which a process counts as hanging


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Group:
    """`run(function, size, *args)` calls function(ranks, *args) in `size` processes, and returns
    what each of them has found, or raises what the first of them has raised."""

    def __init__(self, most: int) -> None:
        context = multiprocessing.get_context("spawn")
        pipes = [context.Pipe() for _ in range(most)]
        self._names, self._pipes = count(), [mine for mine, _ in pipes]
        self._processes = [
            context.Process(target=_serve, args=(theirs,), daemon=True) for _, theirs in pipes
        ]
        for process in self._processes:
            process.start()

    def run(self, function, size, *args):
        task = (function, str(next(self._names)), size, ("127.0.0.1", free_port()), args)
        for rank in range(size):
            self._pipes[rank].send((rank, task))
        found = []
        for pipe in self._pipes[:size]:
            name, found_here = "", None
            while name != task[1]:  # what an earlier task has left is not for this one
                assert pipe.poll(SECONDS), "a process hangs"
                name, found_here = pipe.recv()
            found.append(found_here)
        for result, text in found:
            if isinstance(result, Exception):
                raise AssertionError(text) from result
        return [result for result, _ in found]

    def close(self):
        for process in self._processes:
            process.terminate()
            process.join()


def _serve(pipe: Connection) -> None:
    while True:
        rank, (function, name, size, address, args) = pipe.recv()
        try:
            ranks = TorchRanks.connect(name, rank, size, address, seconds=SECONDS / 2)
            try:
                pipe.send((name, (function(ranks, *args), "")))
            finally:
                ranks.close()
        except Exception as error:
            pipe.send((name, (RuntimeError(repr(error)), traceback.format_exc())))


@contextmanager
def group(most):
    made = Group(most)
    try:
        yield made
    finally:
        made.close()
