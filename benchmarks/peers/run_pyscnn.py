"""One timed run of pyscnn's R-FISTA, in pyscnn's own environment (see protocol).

Uses pyscnn through its public interface only, except to count its passes over the data.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from scnn.metrics import Metrics
from scnn.models import ConvexGatedReLU
from scnn.optimize import optimize_model
from scnn.private.models.convex import operators
from scnn.regularizers import NeuronGL1
from scnn.solvers import RFISTA

from benchmarks import THREADS
from benchmarks.peers.protocol import serve

MAX_ITERS = 100_000


def run(data: str, weights: str, lam: float, dtype: str, tol: float, count: bool) -> dict[str, Any]:
    """Solve to a subgradient norm <= tol. With `count` its passes over the data are counted,
    which a timed run is better without. The weights go to the file `weights`."""
    instance = np.load(data)
    X, Y, gates = instance["X"], instance["Y"], instance["gates"]

    with counted_passes() if count else nullcontext({}) as passes:
        start = time.perf_counter()
        model = ConvexGatedReLU(gates, c=Y.shape[1])
        model, metrics = optimize_model(
            model,
            RFISTA(model, max_iters=MAX_ITERS, tol=tol**2),  # it compares the squared norm
            Metrics(),
            X,
            Y,
            regularizer=NeuronGL1(lam),
            return_convex=True,
            unitize_data=False,
            dtype=dtype,
        )
        seconds = time.perf_counter() - start

    # pyscnn reorders the gates: the model's own belong to its weights, (C, p, d)
    np.savez(weights, gates=model.G, U=np.moveaxis(model.parameters[0], 0, 2))
    return {
        "seconds": seconds,
        "iterations": len(metrics.objective) - 2,  # the first and the last point come on top
        "patterns": model.G.shape[1],
        "versions": {name: version(name) for name in ("pyscnn", "torch", "numpy")},
        **passes,
    }


@contextmanager
def counted_passes() -> Iterator[dict[str, int]]:
    """Count products with the expanded matrix and its transpose; a gradient is one of each."""
    original = operators.get_kernel
    count = {"passes": 0}

    def counted(function: Callable, cost: int) -> Callable:
        def call(*args: Any, **kwargs: Any) -> Any:
            count["passes"] += cost
            return function(*args, **kwargs)

        return call

    def counting_kernel(name: str) -> tuple:
        product, transposed, gradient, *rest = original(name)
        return counted(product, 1), counted(transposed, 1), counted(gradient, 2), *rest

    operators.get_kernel = counting_kernel
    try:
        yield count
    finally:
        operators.get_kernel = original


if __name__ == "__main__":
    torch.set_num_threads(THREADS)
    serve(run)
