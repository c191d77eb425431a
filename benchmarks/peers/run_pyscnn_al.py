"""One timed run of pyscnn's augmented Lagrangian, in pyscnn's own environment (see protocol).

Uses pyscnn through its public interface only, with its default settings but for a cap on the
iterations.
"""

from __future__ import annotations

import signal
import time
from importlib.metadata import version
from types import FrameType
from typing import Any

import numpy as np
import torch
from scnn.metrics import Metrics
from scnn.models import ConvexReLU
from scnn.optimize import optimize_model
from scnn.regularizers import NeuronGL1
from scnn.solvers import AL

from benchmarks import THREADS
from benchmarks.peers.protocol import serve


def run(
    data: str, network: str, lam: float, dtype: str, max_iters: int, max_seconds: float
) -> dict[str, Any]:
    """Solve, with at most `max_iters` iterations of R-FISTA over all subproblems, which is what
    pyscnn's `max_primal_iters` limits. The network goes to the file `network`; a run that exceeds
    `max_seconds` of processor time is ended and has none."""
    instance = np.load(data)
    X, Y, gates = instance["X"], instance["Y"], instance["gates"]

    signal.signal(signal.SIGPROF, _out_of_time)
    signal.setitimer(signal.ITIMER_PROF, max_seconds)
    start = time.perf_counter(), time.process_time()
    try:
        model = ConvexReLU(gates, c=Y.shape[1])
        net, _ = optimize_model(
            model,
            AL(model, max_primal_iters=max_iters),
            Metrics(),
            X,
            Y,
            regularizer=NeuronGL1(lam),
            return_convex=False,
            unitize_data=False,
            dtype=dtype,
        )
    except TimeoutError:
        net = None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    elapsed, seconds = time.perf_counter() - start[0], time.process_time() - start[1]

    answer = {
        "seconds": seconds,
        "elapsed": elapsed,
        "max_iters": max_iters,
        "versions": {name: version(name) for name in ("pyscnn", "torch", "numpy")},
    }
    if net is None:
        return {**answer, "status": "time_limit"}
    W1, W2 = (np.asarray(part, dtype=np.float64) for part in net.parameters[:2])
    np.savez(network, W1=W1, W2=W2.T)
    return {**answer, "status": "ended", "neurons": W1.shape[0]}


def _out_of_time(number: int, frame: FrameType | None) -> None:
    raise TimeoutError


if __name__ == "__main__":
    torch.set_num_threads(THREADS)
    serve(run)
