"""SGD, Adam and Adagrad on two-layer networks in PyTorch, as the paper's experiments run them.

A network has hidden weights U (d, m) and output weights A (m, C); neuron j puts out its activation
times its row of A. NC-ReLU has the activations (X U)_+, NC-GReLU has D * (X U) with gates D (n, m)
of zeros and ones that stay as they are. With a mean over the rows of a batch, what is minimized is

    "convex"     1/(2 n C) ||Z - Y||^2 + lam/2 (||U||^2 + sum_j ||A_j||_1^2)
    "released"       1/n   ||Z - Y||^2 + the same penalty

The first has the scale of the convex programs: a neuron that is rescaled to ||U_j|| = ||A_j||_1
pays lam sum_c ||U_j A_jc||. The second is what the authors' released code computes.

Rows are shuffled and cut into equal batches in every epoch, steps are halved every 100 epochs, and
a run ends when the squared norm of the full gradient is at most `tol`, when it diverges (numbers
that are not finite, or 1000 times the objective it started with), or at the limit of epochs.
Training is in single precision; what is reported of the end is computed in double precision.

All runs of a call are one tensor, so that a batch costs a few calls however many runs there are.
The processor seconds of a run are its share: the time of each epoch is divided evenly among the
runs that are still going. Gradients are written out. For one output of a gated network they need
no activations: with V = U diag(A) and the slopes r of the loss,

    Z_k = x_k . (V D_k),    M = X' diag(r) D,    gradients M diag(A) and the column sums of U * M,

which is two products of matrices; with several outputs it pays where X has few columns. The
gradients hold for ReLU too, with the mask of its activations as D.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import torch

STEPS = (10.0, 5.0, 1.0, 0.5, 0.1, 0.01, 0.001)  # the paper's grid
BATCHES = 10  # in an epoch
DIVERGED = 1000.0  # times the first objective
_CACHED = 2**18  # activations that are computed together

_NARROW = 40  # columns times outputs up to which gated activations are not worth their passes

Found = tuple["torch.Tensor", "torch.Tensor", "torch.Tensor"]  # gradients, squared residuals
Some = tuple[slice, "torch.Tensor", "torch.Tensor", "torch.Tensor"]
# Called after every epoch with its number, the places of the runs that are going in the list that
# `descend` returns, and their weights U (runs, d, m) and A (runs, m, C), to be copied if kept.
OnEpoch = Callable[[int, list[int], "torch.Tensor", "torch.Tensor"], None]


class Point(NamedTuple):
    """Of a run after an epoch: the objective of the convex programs with its neurons rescaled, the
    objective as trained, the squared norm of its gradient, and the run's processor seconds."""

    epoch: int
    objective: float
    trained: float
    gradient: float
    seconds: float


@dataclass
class Run:
    """One run; `status` is "converged", "limit" or "diverged". The objectives at the end are in
    double precision, and inf where the weights are not finite."""

    step: float
    seed: int
    status: str = "limit"
    epochs: int = 0
    objective: float = math.inf
    trained: float = math.inf
    gradient: float = math.inf
    seconds: float = 0.0
    trace: list[Point] = field(default_factory=list)
    U: np.ndarray = field(default_factory=lambda: np.empty(0))
    A: np.ndarray = field(default_factory=lambda: np.empty(0))


def descend(
    X: np.ndarray,
    Y: np.ndarray,
    lam: float,
    method: str,
    *,
    steps: Sequence[float],
    seeds: Sequence[int],
    width: int | None = None,
    gates: np.ndarray | None = None,
    epochs: int = 2000,
    batch: int | None = None,
    halve_every: int = 100,
    momentum: float = 0.0,
    scale: str = "convex",
    tol: float = 1e-6,
    check_every: int = 1,
    trace_every: int | None = None,
    max_seconds: float = math.inf,
    on_epoch: OnEpoch | None = None,
) -> list[Run]:
    """Runs from every seed with every step size, seed by seed.

    Parameters
    ----------
    X, Y : (n, d) and (n, C) or (n,).
    method : "sgd", "adam" or "adagrad".
    width, gates : the number of neurons of NC-ReLU, or the boolean (n, m) gates of NC-GReLU.
    seeds : of the weights at the start, which are those of PyTorch's layers, and of the batches.
    batch : the largest number of rows in one; a tenth of all by default.
    check_every : epochs between two full gradients, each of which costs nearly as much as an epoch.
    trace_every : epochs between two points of a trace, among those with a full gradient; the first
        and the last point are always there.
    max_seconds : processor seconds of all runs together, after which they end at their limit.
    """
    import torch

    torch.set_num_threads(1)
    problem = Problem(X, Y, lam, gates, scale)
    runs = [Run(float(step), seed) for seed in seeds for step in steps]
    cuts = np.linspace(0, problem.n, math.ceil(problem.n / batch) + 1 if batch else BATCHES + 1)
    ends = np.unique(cuts.astype(int)).tolist()
    total = 0.0
    with torch.no_grad():
        going = _Going(problem, runs, width, method, momentum)
        going.look(0, tol, trace_every)
        for epoch in range(1, epochs + 1):
            begin = time.process_time()
            going.epoch(ends, 0.5 ** ((epoch - 1) // halve_every))
            total += going.charge(time.process_time() - begin)
            if on_epoch is not None:
                on_epoch(epoch, going.places, going.U, going.A)
            last = epoch == epochs or total > max_seconds
            if last or epoch % check_every == 0:
                total += going.look(epoch, tol, trace_every, last=last)
            if not going.places:
                break
    return runs


class Problem:
    """The data of a problem, and what is computed of weights U (d, m) and A (m, C) in double
    precision."""

    def __init__(
        self, X: np.ndarray, Y: np.ndarray, lam: float, gates: np.ndarray | None, scale: str
    ) -> None:
        self.X, self.Y = X, Y.reshape(len(X), -1)
        self.lam, self.gates = lam, gates
        self.n, self.C = self.Y.shape
        # of the sum of squares: half of it, over rows and outputs, or as released
        self.share = {"convex": 0.5 / self.C, "released": 1.0}[scale] / self.n

    def objective(self, U: np.ndarray, A: np.ndarray) -> tuple[float, float]:
        """Of the convex programs, with every neuron rescaled as is best; and as trained."""
        if not (np.isfinite(U).all() and np.isfinite(A).all()):
            return math.inf, math.inf
        squares = float(np.sum((outputs(self.X, U, A, self.gates) - self.Y) ** 2))
        hidden = np.linalg.norm(U.astype(np.float64), axis=0)
        output = np.abs(A.astype(np.float64)).sum(axis=1)
        rescaled = squares / (2 * self.n * self.C) + self.lam * float(hidden @ output)
        penalty = self.lam / 2 * float(hidden @ hidden + output @ output)
        return rescaled, self.share * squares + penalty


def outputs(
    X: np.ndarray, U: np.ndarray, A: np.ndarray, gates: np.ndarray | None = None
) -> np.ndarray:
    """Of a network on the rows of X, with the gates of these rows: (n, C), some rows at a time."""
    U, A = U.astype(np.float64), A.astype(np.float64)
    size = max(1, 2**22 // U.shape[1])
    Z = np.empty((len(X), A.shape[1]))
    for begin in range(0, len(X), size):
        rows = slice(begin, begin + size)
        hidden = X[rows] @ U
        Z[rows] = (np.maximum(hidden, 0) if gates is None else hidden * gates[rows]) @ A
    return Z


class Gradient:
    """Of the objective as trained, at the weights U (runs, d, m) and A (runs, m, C)."""

    def __init__(self, problem: Problem, dtype: torch.dtype | None = None) -> None:
        import torch

        def tensor(array: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(dtype or torch.float32)

        self.problem = problem
        self.X, self.Y = tensor(problem.X), tensor(problem.Y)
        self.D = None if problem.gates is None else tensor(problem.gates)

    def __call__(
        self, U: torch.Tensor, A: torch.Tensor, rows: torch.Tensor | None, seeds: Sequence[int]
    ) -> Iterator[Some]:
        """For some runs at a time: which, their gradients, and their sums of squared residuals.

        `rows` (runs, b) are those of the batch of each run, None for all rows. Neighbours that have
        the same seed have the same rows; where there are many gates, they are fetched once."""
        b, gated = len(self.X) if rows is None else rows.shape[1], self.D is not None
        d, C = self.X.shape[1], self.problem.C
        collapsed = gated and (C == 1 or C * d * (1 + 25 / b) <= _NARROW)
        method = self._collapsed if collapsed else self._activated
        at_most = max(1, _CACHED // (b * U.shape[2]))
        shared = gated and (rows is None or at_most < 4)
        for part in _parts(seeds, len(seeds) if shared and collapsed else at_most, shared):
            some, alike = None if rows is None else rows[part], len(set(seeds[part])) == 1
            yield part, *method(U[part], A[part], *self._data(len(U[part]), some, alike))

    def _data(
        self, runs: int, rows: torch.Tensor | None, alike: bool
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Rows and targets of each run, and its gates; of all together if all have the same."""
        if rows is None:
            return self.X.expand(runs, -1, -1), self.Y, self.D
        D = None if self.D is None else self.D[rows[0] if alike else rows]
        return self.X[rows], self.Y[rows], D

    def _collapsed(
        self,
        U: torch.Tensor,
        A: torch.Tensor,
        X: torch.Tensor,
        Y: torch.Tensor,
        D: torch.Tensor | None,
    ) -> Found:
        """With gates, by two products and no activations; index c of M (runs, C, d, m) stands for
        an output."""
        assert D is not None
        D = D if D.dim() == 2 else D.unsqueeze(1)
        columns, of_output = X.transpose(1, 2).unsqueeze(1), A.transpose(1, 2).unsqueeze(2)
        U = U.unsqueeze(1)
        Z = (((U * of_output) @ D.mT) * columns).sum(2).transpose(1, 2)
        residuals, slopes = self._slopes(Z, Y)
        M = (columns * slopes.transpose(1, 2).unsqueeze(2)) @ D
        of_A = (U * M).sum(2).transpose(1, 2)
        return *self._penalized(U[:, 0], A, M.mul_(of_output).sum(1), of_A), residuals

    def _activated(
        self,
        U: torch.Tensor,
        A: torch.Tensor,
        X: torch.Tensor,
        Y: torch.Tensor,
        D: torch.Tensor | None,
    ) -> Found:
        import torch

        H = torch.bmm(X, U)
        H = H.relu_() if D is None else H.mul_(D)
        residuals, slopes = self._slopes(torch.bmm(H, A), Y)
        if self.problem.C == 1 and D is None:
            M = torch.bmm((X * slopes).transpose(1, 2), torch.gt(H, 0, out=H))
            of_A = (U * M).sum(1).unsqueeze(2)
            of_U = M.mul_(A.transpose(1, 2))
        else:
            of_A = torch.bmm(H.transpose(1, 2), slopes)
            D = torch.gt(H, 0, out=H) if D is None else D
            of_U = torch.bmm(X.transpose(1, 2), torch.bmm(slopes, A.transpose(1, 2)).mul_(D))
        return *self._penalized(U, A, of_U, of_A), residuals

    def _slopes(self, Z: torch.Tensor, Y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Sums of squared residuals, and the derivative of the loss by the outputs."""
        residuals = Z - Y
        share = 2 * self.problem.share * self.problem.n / Z.shape[1]
        return residuals.square().sum((1, 2)), share * residuals

    def _penalized(
        self, U: torch.Tensor, A: torch.Tensor, of_U: torch.Tensor, of_A: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        lam, total = self.problem.lam, A.abs().sum(2, keepdim=True)
        return of_U.add_(U, alpha=lam), of_A.addcmul(A.sign(), total, value=lam)


class _Going:
    """The runs that have not ended, by their `places` among all: weights and optimizer."""

    def __init__(
        self, problem: Problem, runs: list[Run], width: int | None, method: str, momentum: float
    ) -> None:
        import torch

        if (width is None) == (problem.gates is None):
            raise ValueError("give width for NC-ReLU or gates for NC-GReLU")
        m = problem.gates.shape[1] if problem.gates is not None else width or 0
        optimizers: dict[str, tuple[type[torch.optim.Optimizer], dict[str, float]]] = {
            "sgd": (torch.optim.SGD, {"momentum": momentum}),
            "adam": (torch.optim.Adam, {}),
            "adagrad": (torch.optim.Adagrad, {}),
        }
        self.problem, self.runs, self.gradient = problem, runs, Gradient(problem)
        self._kind, self._settings = optimizers[method]
        self._random = {run.seed: torch.Generator().manual_seed(run.seed) for run in runs}
        shape = (problem.X.shape[1], m, problem.C)
        starts = {seed: _start(*shape, random) for seed, random in self._random.items()}
        self.places = list(range(len(runs)))
        self.U, self.A = (torch.stack([starts[run.seed][k] for run in runs]) for k in (0, 1))
        self._optimizer = self._renewed_optimizer({})

    def epoch(self, ends: Sequence[int], shrinkage: float) -> None:
        """One pass over the rows, in batches that end where `ends` says."""
        import torch

        for group in self._optimizer.param_groups:
            group["lr"] = self.runs[group["place"]].step * shrinkage
        n = self.problem.n
        orders = {seed: torch.randperm(n, generator=of) for seed, of in self._random.items()}
        order = torch.stack([orders[self.runs[place].seed] for place in self.places])
        for begin, end in pairwise(ends):
            for part, of_U, of_A, _ in self._gradients(order[:, begin:end]):
                for group, *gradients in zip(
                    self._optimizer.param_groups[part], of_U, of_A, strict=True
                ):
                    for weights, gradient in zip(group["params"], gradients, strict=True):
                        weights.grad = gradient
            self._optimizer.step()

    def _gradients(self, rows: torch.Tensor | None) -> Iterator[Some]:
        seeds = [self.runs[place].seed for place in self.places]
        return self.gradient(self.U, self.A, rows, seeds)

    def charge(self, seconds: float) -> float:
        for place in self.places:
            self.runs[place].seconds += seconds / len(self.places)
        return seconds

    def look(self, epoch: int, tol: float, trace_every: int | None, *, last: bool = False) -> float:
        """Full gradients: note where the runs are, and end those that are done. The seconds it
        took."""
        begin = time.process_time()
        points = self._points(epoch)
        seconds = self.charge(time.process_time() - begin)
        ended = []
        for place, point in zip(self.places, points, strict=True):
            run = self.runs[place]
            point = point._replace(seconds=run.seconds)
            first = run.trace[0].trained if run.trace else point.trained
            run.epochs, run.gradient = epoch, point.gradient
            if not point.trained <= DIVERGED * first:
                run.status = "diverged"
            elif point.gradient <= tol:
                run.status = "converged"
            done = last or run.status != "limit"
            if done or epoch == 0 or (trace_every and epoch % trace_every == 0):
                run.trace.append(point)
            if done:
                ended.append(place)
        if ended:
            self._end(ended)
        return seconds

    def _points(self, epoch: int) -> list[Point]:
        import torch

        problem, found = self.problem, []
        for part, of_U, of_A, squares in self._gradients(None):
            hidden = torch.linalg.vector_norm(self.U[part], dim=1)
            output = self.A[part].abs().sum(2)
            penalty = (hidden.square() + output.square()).sum(1) / 2
            found.append(
                torch.stack(
                    [
                        squares / (2 * problem.n * problem.C)
                        + problem.lam * (hidden * output).sum(1),
                        problem.share * squares + problem.lam * penalty,
                        of_U.square().sum((1, 2)) + of_A.square().sum((1, 2)),
                    ],
                    dim=1,
                )
            )
        return [Point(epoch, f, t, g, 0.0) for f, t, g in torch.cat(found).tolist()]

    def _end(self, ended: list[int]) -> None:
        """Take these runs out, with what is to be said of them."""
        for k, place in enumerate(self.places):
            if place in ended:
                run = self.runs[place]
                run.U, run.A = self.U[k].numpy().copy(), self.A[k].numpy().copy()
                run.objective, run.trained = self.problem.objective(run.U, run.A)
        keep = [k for k, place in enumerate(self.places) if place not in ended]
        known = {
            group["place"]: [self._optimizer.state[weights] for weights in group["params"]]
            for group in self._optimizer.param_groups
        }
        self.places = [self.places[k] for k in keep]
        self.U, self.A = self.U[keep], self.A[keep]
        if keep:
            self._optimizer = self._renewed_optimizer(known)

    def _renewed_optimizer(self, known: dict[int, list[Any]]) -> torch.optim.Optimizer:
        """Of the weights of each run by itself, going on from the state that is known of it."""
        groups = [
            {"params": [self.U[k], self.A[k]], "lr": self.runs[place].step, "place": place}
            for k, place in enumerate(self.places)
        ]
        optimizer = self._kind(groups, fused=True, **self._settings)
        for group in optimizer.param_groups:
            for weights, state in zip(group["params"], known.get(group["place"], ()), strict=False):
                optimizer.state[weights] = state
        return optimizer


def _parts(seeds: Sequence[int], at_most: int, one_seed: bool) -> Iterator[slice]:
    """Neighbours, at most so many together, and if asked for of one seed only."""
    begin = 0
    for k in range(1, len(seeds) + 1):
        full = k == len(seeds) or k - begin == at_most
        if full or (one_seed and seeds[k] != seeds[begin]):
            yield slice(begin, k)
            begin = k


def _start(d: int, m: int, C: int, random: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """As torch.nn.Linear without a bias draws its weights, first (m, d), then (C, m)."""
    import torch

    def layer(outputs: int, inputs: int) -> torch.Tensor:
        weights = torch.empty(outputs, inputs)
        torch.nn.init.kaiming_uniform_(weights, a=math.sqrt(5), generator=random)
        return weights.T.contiguous()

    return layer(m, d), layer(C, m)
