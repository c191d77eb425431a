"""Penalty strengths compared on folds, all folds in step from the largest strength down.

Every fold follows a path of its own, with gates of its own, and after each strength the scores of
all folds are known. Small strengths take most of the time of a path, and the best one is seldom
among them: a grid that nobody gave ends once the mean score has not risen for PATIENCE strengths,
and goes on below its planned end while the last strength is the best. Folds are solved less
precisely, because they are there to be compared; what is kept of them is fitted again.

The programs of all folds stay in memory from one strength to the next, unless their rows are more
than AT_ONCE: then every fold is posed again for each strength, and only its neurons are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs

from cvxnn.arrays import Array, is_stored
from cvxnn.bounds.base import Units
from cvxnn.budget import Budget
from cvxnn.estimators.base import NetworkEstimator, take
from cvxnn.estimators.column_scales import factors_of
from cvxnn.estimators.ensembles import loss_of
from cvxnn.estimators.generating import generation_of, neurons_of
from cvxnn.estimators.posing import Fit, Neurons, Posed, Posing
from cvxnn.estimators.rows import Rows, Scaling
from cvxnn.estimators.targets import Scorer
from cvxnn.paths import Steps, loss_left
from cvxnn.sharded import taken_apart
from cvxnn.solvers.results import Status

if TYPE_CHECKING:
    from cvxnn.generation.rounds import Round

PATIENCE = 2  # strengths in a row without a better mean score that end the comparison
EARLIEST = 0.1  # of lambda_max; above it scores may scatter around the constant model's
FURTHER = 2  # how many times as many strengths as planned there may be
MIN_LOSS = 1e-3  # a fold ends below this share of the zero model's loss: little is left to fit
FOLD_TOL = 5e-3  # of a fold: its gap, relative to its loss or to what it has gained if that is less
AT_ONCE = 2**30  # bytes of rows and patterns of all folds, beyond which one is kept at a time
AHEAD = 3  # strengths that folds in other processes are sent ahead by


@dataclass(frozen=True)
class Grid:
    """Falling strengths.

    given : all of them, if the user gave them.
    largest, n_planned, ratio : otherwise a geometric sequence below the largest, which may end
        before its planned number or go on after it.
    """

    given: tuple[float, ...] = ()
    largest: float = 0.0
    n_planned: int = 0
    ratio: float = 1.0

    @classmethod
    def below(cls, largest: float, n_planned: int, eps: float) -> Grid:
        if largest == 0:
            return cls(given=(1.0,))
        return cls((), largest, n_planned, eps ** (1 / n_planned))

    @property
    def length(self) -> int:
        """How many there are at most."""
        return len(self.given) or FURTHER * self.n_planned

    @property
    def planned(self) -> int:
        return len(self.given) or self.n_planned

    def __getitem__(self, k: int) -> float:
        return self.given[k] if self.given else self.largest * self.ratio ** (k + 1)

    def end(self, mean: Sequence[float]) -> int | None:
        """After how many strengths the comparison is over, by their mean scores; None if it is
        not yet."""
        if self.given:
            return len(self.given) if len(mean) >= len(self.given) else None
        best = -math.inf
        last = 0  # the place of the best
        for k, score in enumerate(mean):
            if score > best:
                best, last = score, k
            late = self[k] <= EARLIEST * self.largest
            if (late and k - last >= PATIENCE) or k + 1 == self.length:
                return k + 1
        return None


class Scored(NamedTuple):
    """What one fold gives for one strength: the score and the loss on the rows held out, the number
    of neurons, these neurons, and where scales are to be learned what the network says about the
    columns."""

    score: float
    loss: float
    n_active: int
    neurons: Neurons | Units | None
    factors: np.ndarray | None


class Part(NamedTuple):
    """Which rows a fold trains on and which it tests, with the targets of all before encoding."""

    rows: Rows
    train: np.ndarray
    test: np.ndarray
    y: np.ndarray


@dataclass(eq=False)
class Fold:
    """One fold on its path.

    k, part : its place, and its rows.
    posed, steps : the program of its training rows and the path; None while it rests.
    left : the loss of the last point, as a share of the zero model's.
    fitted : whether there is nothing left to fit; then the last point stands for the rest.
    out_of_time : whether its time ended before it came to a strength.
    """

    k: int
    part: Part
    posed: Posed | None = None
    steps: Steps | None = None
    points: list[Scored] = field(default_factory=list)
    left: float = 1.0
    fitted: bool = False
    out_of_time: bool = False

    def start(self, k: int, posed: Posed) -> Array | Units | None:
        """What a fit of a program at the k-th strength starts from: that of this fold, or another
        one with the same gates."""
        neurons = self.points[k].neurons
        return neurons.weights(posed.problem) if isinstance(neurons, Neurons) else neurons


@dataclass(frozen=True, eq=False)
class Comparison:
    """How folds are trained and scored; it may be sent to other processes.

    estimator : the one to be scored; each strength gives a copy of it another network.
    posings : of each fold.
    units : how targets are scaled, in every fold as in the final fit.
    learns_factors : whether networks are asked how much each column matters.
    keeps_losses : whether losses on the rows held out are kept beside the scores.
    on_round : called with the rounds of generation.
    rest : whether programs are not kept from one strength to the next.
    """

    estimator: NetworkEstimator
    posings: Sequence[Posing]
    units: Scaling
    scorer: Scorer
    learns_factors: bool = False
    keeps_losses: bool = False
    on_round: Callable[[Round], object] | None = None
    rest: bool = False

    def posed(self, fold: Fold) -> Posed:
        """The program of a fold, which may have to be posed again."""
        if fold.posed is not None:
            return fold.posed
        train = fold.part.rows.select(fold.part.train)
        return self.posings[fold.k].pose(train.merged(), targets=self.units)

    def _begin(self, fold: Fold) -> tuple[Posed, Steps]:
        """The program and the path of a fold, from its last point on."""
        posing, posed = self.posings[fold.k], self.posed(fold)
        estimator = self.estimator
        options = (
            {} if posing.generates else {"max_iter": estimator.max_iter, "device": estimator.device}
        )
        start = fold.start(-1, posed) if fold.points else None
        return posed, Steps(
            posed.problem,
            estimator.tol,
            estimator.solver,
            {"on_failure": "ignore", **options},
            generation_of(estimator, posed, self.on_round) if posing.generates else None,
            None if isinstance(start, Units) else start,
        )

    def advance(self, fold: Fold, alphas: Sequence[float], seconds: float) -> Fold:
        """Follow the path of a fold to the next strengths, for so many seconds at most."""
        clock = Budget(seconds)
        posed, steps = fold.posed, fold.steps
        if posed is None or steps is None:
            posed, steps = self._begin(fold)
        test, y = fold.part.rows.select(fold.part.test), fold.part.y[fold.part.test]
        for alpha in alphas:
            if fold.fitted:
                fold.points.append(fold.points[-1])
                continue
            gained = 1 / max(fold.left, MIN_LOSS) - 1  # where little is, scores differ by little
            steps.tol = max(self.estimator.tol, FOLD_TOL * min(1.0, gained))
            solution, _ = steps.to(alpha, None if math.isinf(seconds) else clock.left)
            if solution.status is Status.INTERRUPTED:
                raise KeyboardInterrupt  # a choice needs the scores of all folds
            if solution.status is Status.TIME_LIMIT:
                fold.out_of_time = True
                break
            candidate = copy(self.estimator)
            take(candidate, Fit(posed, solution))
            candidate._validated_rows = test.X
            score = self.scorer(candidate, test.X, y, sample_weight=test.weight)
            loss = math.nan
            if self.keeps_losses:
                outputs = candidate.network_.predict(test.X)
                loss = loss_of(posed.targets, self.units, test, outputs)
            handed_on = neurons_of if self.posings[0].generates else Neurons.of
            factors = factors_of(solution) if self.learns_factors else None
            fold.points.append(Scored(score, loss, solution.n_active, handed_on(solution), factors))
            fold.left = float(test.across.agree(loss_left(solution)))
            fold.fitted = fold.left < MIN_LOSS
        fold.posed, fold.steps = (None, None) if self.rest else (posed, steps)
        return fold


@dataclass(frozen=True, eq=False)
class Outcome:
    """The strengths that all folds have reached, and the folds, with a point for each of them."""

    alphas: np.ndarray
    folds: list[Fold]
    comparison: Comparison

    @property
    def scores(self) -> np.ndarray:
        """(folds, strengths)."""
        return np.array([[point.score for point in fold.points] for fold in self.folds])

    @property
    def n_active(self) -> np.ndarray:
        return np.array([[point.n_active for point in fold.points] for fold in self.folds])

    def loss(self, k: int) -> float:
        """The mean loss on rows held out at the k-th strength."""
        weights = [fold.part.rows.weight[fold.part.test].sum() for fold in self.folds]
        return float(np.average([fold.points[k].loss for fold in self.folds], weights=weights))

    @property
    def out_of_time(self) -> bool:
        return any(fold.out_of_time for fold in self.folds)


def compare(
    comparison: Comparison,
    grid: Grid,
    parts: Sequence[Part],
    *,
    n_jobs: int | None,
    clock: Budget,
    on_alpha: Callable[[int, int], object] | None,
) -> Outcome:
    """Compare strengths on folds. The answer is the same with any number of jobs."""
    jobs, across = effective_n_jobs(n_jobs), parts[0].rows.across
    ahead = 1 if jobs == 1 else AHEAD
    if jobs > 1:  # which cannot tell
        comparison = replace(comparison, on_round=None)
    generates = any(posing.generates for posing in comparison.posings)
    comparison = replace(comparison, rest=not generates and _size(comparison, parts) > AT_ONCE)
    with Parallel(n_jobs=n_jobs) as parallel:
        folds = [Fold(k, part) for k, part in enumerate(parts)]
        reached, over = 0, None
        while over is None:
            alphas = [grid[k] for k in range(reached, min(reached + ahead, grid.length))]
            alphas = np.asarray(across.agree(np.array(alphas))).tolist()
            # all that are left may take all the time, so many at once
            turns = math.ceil(len(folds) / jobs)
            seconds = clock.left if jobs == 1 else clock.left / turns
            folds = parallel(delayed(comparison.advance)(fold, alphas, seconds) for fold in folds)
            for fold, part in zip(folds, parts, strict=True):
                fold.part = part  # other processes have sent copies of the rows
            reached = min(len(fold.points) for fold in folds)
            if on_alpha is not None and across.rank == 0:
                on_alpha(reached, max(grid.planned, reached))
            mean = np.mean([[p.score for p in fold.points[:reached]] for fold in folds], axis=0)
            over = grid.end(mean.tolist())
            if over is None and any(fold.out_of_time for fold in folds):
                over = reached
    for fold in folds:
        del fold.points[over:]
        fold.out_of_time &= over == reached
    return Outcome(np.array([grid[k] for k in range(over)]), folds, comparison)


def _size(comparison: Comparison, parts: Sequence[Part]) -> int:
    """Bytes of the training rows and patterns of all folds, on the rank with most; rows in files
    take none."""
    X, across = taken_apart(parts[0].rows.X)
    size = 0.0
    if not is_stored(X) and X.shape[0] > 0:
        entries = X.size if isinstance(X, np.ndarray) else X.nnz
        row = 8 * entries / X.shape[0] + comparison.posings[0].n_patterns / 8
        size = row * sum(len(part.train) for part in parts)
    return int(across.max(size))
