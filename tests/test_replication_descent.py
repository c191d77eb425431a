"""The gradient baselines of the replication, against automatic differentiation and plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from replication.descent import Gradient, Problem, descend, outputs  # noqa: E402


def data(C: int, n: int = 30, d: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(C)
    X = rng.standard_normal((n, d))
    if C == 1:
        return X, np.sign(X[:, :1] * X[:, 1:2] + 0.1)
    return X, np.eye(C)[rng.integers(0, C, n)]


def gates_of(X: np.ndarray, m: int) -> np.ndarray:
    return X @ np.random.default_rng(7).standard_normal((X.shape[1], m)) > 0


def value(problem, U, A, rows):
    """The objective on some rows, written as its formula has it."""
    X, Y = torch.from_numpy(problem.X)[rows], torch.from_numpy(problem.Y)[rows]
    H = X @ U
    H = torch.relu(H) if problem.gates is None else H * torch.from_numpy(problem.gates)[rows]
    share = problem.share * problem.n / len(X)
    penalty = (U**2).sum() + (A.abs().sum(1) ** 2).sum()
    return share * ((H @ A - Y) ** 2).sum() + problem.lam / 2 * penalty


@pytest.mark.parametrize(("C", "d"), [(1, 4), (3, 4), (3, 30)])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("scale", ["convex", "released"])
@pytest.mark.parametrize("cached", [1, 2**18])
def test_gradients_are_those_of_automatic_differentiation(monkeypatch, C, d, gated, scale, cached):
    monkeypatch.setattr("replication.descent._CACHED", cached)  # a run at a time, or all of them
    X, Y = data(C, d=d)
    m, seeds = 6, (0, 0, 1)
    problem = Problem(X, Y, 0.03, gates_of(X, m) if gated else None, scale)
    random = torch.Generator().manual_seed(1)
    U, A = (torch.randn(3, *shape, generator=random).double() for shape in ((d, m), (m, C)))
    batches = {0: torch.tensor([3, 1, 29, 7]), 1: torch.tensor([0, 2, 4, 8])}
    rows = torch.stack([batches[seed] for seed in seeds])
    gradient = Gradient(problem, torch.float64)
    for chosen in (rows, None):
        found = list(gradient(U, A, chosen, seeds))
        assert sum(part.stop - part.start for part, *_ in found) == 3
        for part, of_U, of_A, _ in found:
            for k, run in enumerate(range(part.start, part.stop)):
                weights = [w[run].clone().requires_grad_() for w in (U, A)]
                some = torch.arange(len(X)) if chosen is None else rows[run]
                value(problem, *weights, some).backward()
                for ours, w in zip((of_U[k], of_A[k]), weights, strict=True):
                    torch.testing.assert_close(ours, w.grad, rtol=1e-10, atol=1e-12)


def plain_run(problem, method, step, seed, m, epochs, halve_every):
    """One run by modules, autograd and an optimizer of PyTorch."""
    torch.manual_seed(seed)
    d, C = problem.X.shape[1], problem.C
    layers = [torch.nn.Linear(d, m, bias=False), torch.nn.Linear(m, C, bias=False)]
    weights = [layer.weight for layer in layers]
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adagrad": torch.optim.Adagrad}
    optimizer = kind[method](weights, lr=step)
    for epoch in range(epochs):
        optimizer.param_groups[0]["lr"] = step * 0.5 ** (epoch // halve_every)
        for rows in torch.randperm(problem.n).chunk(10):
            optimizer.zero_grad()
            value(problem, weights[0].T, weights[1].T, rows).backward()
            optimizer.step()
    return [w.detach().numpy().T for w in weights]


@pytest.mark.parametrize("method", ["sgd", "adam", "adagrad"])
@pytest.mark.parametrize("gated", [False, True])
def test_batched_runs_are_plain_runs(method, gated):
    X, Y = (part.astype(np.float32) for part in data(1))
    lam, steps, seeds, epochs, m = 0.01, (0.1, 0.01), (5, 6), 7, 6
    gates = gates_of(X, m) if gated else None
    size = {"gates": gates} if gated else {"width": m}
    runs = descend(
        X, Y, lam, method, steps=steps, seeds=seeds, epochs=epochs, halve_every=3, tol=0, **size
    )
    problem = Problem(X, Y, lam, gates, "convex")
    assert [(run.seed, run.step) for run in runs] == [(5, 0.1), (5, 0.01), (6, 0.1), (6, 0.01)]
    for run in runs:
        U, A = plain_run(problem, method, run.step, run.seed, m, epochs, 3)
        np.testing.assert_allclose(run.U, U, rtol=2e-3, atol=1e-4)
        np.testing.assert_allclose(run.A, A, rtol=2e-3, atol=1e-4)
        assert (run.status, run.epochs, run.trace[-1].epoch) == ("limit", epochs, epochs)
        assert run.objective == pytest.approx(run.trace[-1].objective, rel=1e-4)
        assert run.trained == pytest.approx(run.trace[-1].trained, rel=1e-4)
        assert run.trained >= run.objective


def test_runs_end_by_themselves_and_leave_the_others_alone():
    X, Y = data(1)
    settings = {"gates": gates_of(X, 5), "seeds": [1], "epochs": 300, "batch": len(X)}
    runs = descend(X, Y, 0.05, "adam", steps=(1e9, 0.05, 1e-4), **settings)
    assert [run.status for run in runs] == ["diverged", "converged", "limit"]
    assert runs[1].gradient <= 1e-6
    assert runs[1].epochs < 300
    assert math.isfinite(runs[1].objective)
    alone = descend(X, Y, 0.05, "adam", steps=[1e-4], **settings)[0]
    np.testing.assert_allclose(runs[2].U, alone.U, rtol=1e-4, atol=1e-6)


def test_objective_of_rescaled_neurons():
    """It is the objective as trained of the network whose neurons have been rescaled."""
    X, Y = data(3)
    gates, rng = gates_of(X, 5), np.random.default_rng(0)
    U, A = rng.standard_normal((4, 5)), rng.standard_normal((5, 3))
    problem = Problem(X, Y, 0.1, gates, "convex")
    balance = np.sqrt(np.abs(A).sum(axis=1) / np.linalg.norm(U, axis=0))
    rescaled = problem.objective(U * balance, A / balance[:, None])
    assert rescaled[0] == pytest.approx(rescaled[1], rel=1e-12)
    assert problem.objective(U, A)[0] == pytest.approx(rescaled[0], rel=1e-12)
    np.testing.assert_allclose(outputs(X, U, A, gates), (gates * (X @ U)) @ A)
