"""Timed runs of pyscnn with its default settings, in its own environment (see protocol)."""

from __future__ import annotations

import time
import warnings
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from scnn.metrics import Metrics
from scnn.models import ConvexGatedReLU, ConvexReLU
from scnn.optimize import optimize_model
from scnn.regularizers import NeuronGL1
from scnn.solvers import AL, RFISTA

from benchmarks import THREADS
from benchmarks.peers.protocol import serve_contained


def run(data: str, weights: str, kind: str, lam: float, max_seconds: float) -> dict[str, Any]:
    """C-GReLU by R-FISTA to weights, or C-ReLU by the augmented Lagrangian to a network: its
    neurons need not be in the cones of the patterns, and it is worth what it is."""
    instance = np.load(data)
    X, Y, gates = instance["X"], instance["Y"], instance["gates"]
    gated = kind == "gated"

    start = time.process_time()
    model = (ConvexGatedReLU if gated else ConvexReLU)(gates, c=Y.shape[1])
    model, _ = optimize_model(
        model,
        (RFISTA if gated else AL)(model),
        Metrics(),
        X,
        Y,
        regularizer=NeuronGL1(lam),
        return_convex=gated,
        unitize_data=False,
        dtype="float64",
    )
    seconds = time.process_time() - start
    parts = [np.asarray(part, dtype=np.float64) for part in model.parameters]
    if gated:  # pyscnn reorders the gates: the model's own belong to its weights, (C, p, d)
        np.savez(weights, gates=model.G, U=np.moveaxis(parts[0], 0, 2))
    else:
        np.savez(weights, W1=parts[0], W2=parts[1].T)
    return {"seconds": seconds, "versions": {name: version(name) for name in ("pyscnn", "torch")}}


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # it divides by zero norms
    torch.set_num_threads(THREADS)
    serve_contained(run)
