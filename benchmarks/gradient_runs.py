"""Adam and gradient descent on two-layer ReLU networks in PyTorch.

The objective is that of the convex programs,

    f(sum_j a_j (X u_j)_+) + lam/2 sum_j (||u_j||^2 + a_j^2),

with the loss as a mean over the rows and the hidden bias inside u. Steps are those of the full
gradient and fall linearly to zero. What counts at the end is the objective in double precision with
every neuron rescaled so that ||u_j|| = |a_j|, the best scale for the penalty.

Gradients are written out and go run by run: the activations of one run stay in the cache, where
those of ten as one tensor do not, and nothing is recorded for a backward pass. The weights of all
runs are one tensor, so that a step of PyTorch's optimizers is one call. Together that takes a fifth
of the time of automatic differentiation.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import torch

STEPS = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3)
WIDTHS = (50, 200, 500)
METHODS = ("Adam", "SGD")
TRIAL, LONG = (
    2_000,
    20_000,
)  # steps with one seed for each step size, and with all seeds for the best
SEEDS = 10


class Task(NamedTuple):
    """X (n, d) with its column of ones, y (n,) of -1 and 1, the strength, and the loss."""

    X: np.ndarray
    y: np.ndarray
    lam: float
    loss: str


class Outcome(NamedTuple):
    """Of one method and one width: the step size that was chosen, the objectives of all seeds, and
    the processor seconds of choosing it and of the runs."""

    step: float
    objectives: list[float]
    trial_seconds: float
    seconds: float


def tuned(task: Task, method: str, width: int, *, trial: int, steps: int, seeds: int) -> Outcome:
    """The runs of all seeds with the step size that is best after `trial` steps of the first."""
    start = time.process_time()
    tried = descend(task, method, width, np.array(STEPS), [0] * len(STEPS), trial)
    step = STEPS[int(np.argmin(tried))]
    middle = time.process_time()
    found = descend(task, method, width, np.full(seeds, step), list(range(seeds)), steps)
    return Outcome(step, found.tolist(), middle - start, time.process_time() - middle)


def descend(
    task: Task, method: str, width: int, sizes: np.ndarray, seeds: list[int], steps: int
) -> np.ndarray:
    """The objectives at the end, one for each pair of a step size and a seed."""
    import torch

    torch.set_num_threads(1)
    starts = [_start(task.X.shape[1], width, seed) for seed in seeds]
    U, a = (torch.stack(parts) for parts in zip(*starts, strict=True))  # (runs, d, m), (runs, m)
    gradient = _Gradient(task, U, a)
    # one group for each step size that there is
    groups = [
        {"params": [part[i : i + 1] for part in (U, a)], "lr": size} for i, size in enumerate(sizes)
    ]
    if len(set(sizes.tolist())) == 1:
        groups = [{"params": [U, a], "lr": float(sizes[0])}]
    for i, group in enumerate(groups):
        for part, of_all in zip(group["params"], (gradient.of_U, gradient.of_a), strict=True):
            part.grad = of_all[i : i + len(part)]
    if method == "Adam":
        optimizer: torch.optim.Optimizer = torch.optim.Adam(groups, fused=True)
    else:
        optimizer = torch.optim.SGD(groups, momentum=0.9, fused=True)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    with torch.no_grad():
        for _ in range(steps):
            gradient.renew()
            optimizer.step()
            schedule.step()
        return np.array([objective(task, *run) for run in zip(U, a, strict=True)])


class _Gradient:
    """Of the objective, at hidden weights U (runs, d, m) and output weights a (runs, m) that change
    in place; buffers are used again in every step."""

    def __init__(self, task: Task, U: torch.Tensor, a: torch.Tensor) -> None:
        import torch

        self.X, self.y = (torch.from_numpy(part.astype(np.float32)) for part in (task.X, task.y))
        self.columns = self.X.T.contiguous()
        self.lam, self.squared = task.lam, task.loss == "squared"
        self.of_U, self.of_a = torch.zeros_like(U), torch.zeros_like(a)
        self._runs = [part.unbind() for part in (U, a, self.of_U, self.of_a)]
        self._active = torch.empty(len(self.X), U.shape[2])
        self._moved = torch.empty(U.shape[1:])

    def renew(self) -> None:
        import torch

        n, H, M = len(self.y), self._active, self._moved
        for U, a, of_U, of_a in zip(*self._runs, strict=True):
            torch.mm(self.X, U, out=H).relu_()
            z = torch.mv(H, a)
            slope = z - self.y if self.squared else -self.y * torch.sigmoid(-self.y * z)
            torch.gt(H, 0, out=H)
            torch.mm(self.columns * (slope / n), H, out=M)  # of U it is M a, and H'slope is U'M
            torch.sum(U * M, 0, out=of_a).add_(a, alpha=self.lam)
            torch.addcmul(self.lam * U, M, a, out=of_U)


def _start(d: int, width: int, seed: int) -> list[torch.Tensor]:
    """The weights of one run, as PyTorch initialises its layers."""
    import torch

    torch.manual_seed(seed)
    hidden = (torch.rand(d, width) * 2 - 1) / math.sqrt(d)
    return [hidden, (torch.rand(width) * 2 - 1) / math.sqrt(width)]


def objective(task: Task, u: torch.Tensor, a: torch.Tensor) -> float:
    """In double precision; inf for a run that diverged."""
    U, A = u.double().numpy(), a.double().numpy()
    if not (np.isfinite(U).all() and np.isfinite(A).all()):
        return math.inf
    z = np.maximum(task.X @ U, 0.0) @ A
    if task.loss == "squared":
        value = 0.5 * np.mean((z - task.y) ** 2)
    else:
        value = np.mean(np.logaddexp(0.0, -task.y * z))
    return float(value + task.lam * np.sum(np.linalg.norm(U, axis=0) * np.abs(A)))
