"""Runs the pieces of an experiment that are not done yet, and says how long it will take.

Pieces run in processes of their own, one thread each, so that one that dies, for lack of memory for
instance, is told and left out, and the others go on. Ctrl-C ends a run at once; the pieces that
were at work are done again the next time.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

import click

from cvxnn import budget
from replication.data import MissingData
from replication.experiment import Experiment, Piece, Row
from replication.results import Results, environment


def run(experiment: Experiment, results: Results, *, jobs: int = 1, limit: float = 3600e3) -> int:
    """Do what is missing, starting no piece after `limit` seconds; how many pieces failed."""
    pieces = list(experiment.pieces(results.profile))
    check_keys(pieces)
    failed = 0
    with results.writing():
        missing = results.missing(pieces)
        around = environment()
        watch = Progress(experiment.name, pieces, missing, jobs)
        begin = time.monotonic()
        for piece, outcome in _outcomes(experiment.name, missing, jobs, begin + limit):
            if isinstance(outcome, str):
                failed += 1
                watch.failed(piece, outcome)
            else:
                row, seconds = outcome
                results.append(piece, row, seconds, around)
                watch.finished(piece, seconds)
    return failed


def check_keys(pieces: list[Piece]) -> None:
    keys = [piece.key for piece in pieces]
    twice = {key for key in keys if keys.count(key) > 1}
    if twice:
        raise ValueError(f"two pieces have the key {min(twice)!r}")


Outcome = tuple[Row, float] | str  # a row and its processor seconds, or why there is none


def _outcomes(
    name: str, pieces: list[Piece], jobs: int, end: float
) -> Iterator[tuple[Piece, Outcome]]:
    """As they come; a process that dies takes its piece with it, and no other."""
    waiting = list(reversed(pieces))
    while waiting and time.monotonic() < end:
        # a new pool after a death: a broken one does nothing any more
        with _pool(min(jobs, len(waiting))) as pool:
            running: dict[Future[Outcome], Piece] = {}
            try:
                while (waiting and time.monotonic() < end) or running:
                    while waiting and len(running) < jobs and time.monotonic() < end:
                        piece = waiting.pop()
                        running[pool.submit(compute, name, piece.settings)] = piece
                    ready, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in ready:
                        outcome = future.result()
                        yield running.pop(future), outcome
            except BrokenProcessPool:
                # which one died cannot be told: each is tried once more, alone
                for piece in running.values():
                    yield piece, _alone(name, piece)
            except BaseException:
                for process in multiprocessing.active_children():
                    process.terminate()
                raise


def _alone(name: str, piece: Piece) -> Outcome:
    with _pool(1) as pool:
        try:
            return pool.submit(compute, name, piece.settings).result()
        except BrokenProcessPool:
            return "its process died, perhaps for lack of memory"


def _pool(processes: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(
        processes, mp_context=context, initializer=_end_with, initargs=(os.getpid(),)
    )


def _end_with(parent: int) -> None:
    """Has this process end soon after its parent, which may be killed without a chance to tell."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def find(name: str) -> Experiment:
    found: Experiment = importlib.import_module(f"replication.{name}.experiment").EXPERIMENT
    return found


def compute(name: str, settings: Row) -> Outcome:
    """The row of a piece and its processor seconds; runs in a process of its own."""
    experiment = find(name)
    budget.clock = time.process_time  # time limits mean the same on a busy machine
    begin = time.process_time()
    try:
        row = experiment.run(settings)
    except MissingData as error:
        return str(error)
    except Exception:
        return traceback.format_exc()
    return row, time.process_time() - begin


class Progress:
    """Lines on what is done and what is left, by the expected costs of pieces and how far these
    have been off so far."""

    def __init__(self, name: str, pieces: list[Piece], missing: list[Piece], jobs: int) -> None:
        self.name, self.jobs, self.total = name, jobs, len(pieces)
        self.left = {piece.key: piece.cost for piece in missing}
        self.expected = self.taken = 0.0
        if self.left:
            self._say(f"{len(self.left)} of {self.total} pieces to do, {self._time_left()}")

    def finished(self, piece: Piece, seconds: float) -> None:
        self.expected += self.left.pop(piece.key)
        self.taken += seconds
        done = self.total - len(self.left)
        self._say(f"{piece.key} in {seconds:.1f} s; {done} of {self.total}, {self._time_left()}")

    def failed(self, piece: Piece, why: str) -> None:
        self.left.pop(piece.key)
        self._say(f"{piece.key} FAILED: {why}")

    def _time_left(self) -> str:
        off = self.taken / self.expected if self.expected > 0 else 1.0
        seconds = off * sum(self.left.values()) / self.jobs
        return f"about {seconds / 60:.0f} minutes left" if seconds >= 60 else "a minute left"

    def _say(self, text: str) -> None:
        click.echo(f"{time.strftime('%H:%M:%S')} {self.name}: {text}", err=True)
