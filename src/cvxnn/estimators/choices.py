"""What cross-validation chooses, and the networks that an ensemble makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cvxnn.arrays import Array
from cvxnn.bounds.base import Units
from cvxnn.budget import Budget
from cvxnn.estimators.base import Watch
from cvxnn.estimators.comparison import Fold, Outcome, Part
from cvxnn.estimators.generating import LAST_SHARE, neurons_of
from cvxnn.estimators.posing import Fit, Posed, Posing
from cvxnn.estimators.rows import Rows
from cvxnn.estimators.targets import Labels, Targets, predicted_classes
from cvxnn.gates import GateDistribution
from cvxnn.solvers.results import Start


@dataclass(frozen=True, eq=False)
class Search:
    """What strengths are compared on.

    posing, fold_posings : of the program of all rows, and of the folds.
    rows, parts : distinct rows, and those of each fold.
    """

    posing: Posing
    fold_posings: Sequence[Posing]
    rows: Rows
    parts: Sequence[Part]
    clock: Budget
    watch: Watch

    def with_factors(self, factors: np.ndarray, of_folds: Sequence[np.ndarray | None]) -> Search:
        """The same on columns in the scales that first fits have learned."""
        posings = zip(self.fold_posings, of_folds, strict=True)
        return replace(
            self,
            posing=self.posing.with_factors(factors),
            fold_posings=[posing.with_factors(own) for posing, own in posings],
        )

    def with_gates(self, gates: GateDistribution) -> Search:
        """The same over patterns of other gates."""
        return replace(
            self,
            posing=self.posing.with_gates(gates),
            fold_posings=[posing.with_gates(gates) for posing in self.fold_posings],
        )


@dataclass(frozen=True, eq=False)
class Choice:
    """The program of all rows at the strength that was chosen.

    search : what was compared on what.
    largest : its lambda_max.
    best : the place of the strength among those compared.
    fitted : the program's solution, where it is known already.
    """

    posed: Posed
    search: Search
    largest: float
    outcome: Outcome
    best: int
    fitted: Fit | None = None

    @property
    def rows(self) -> Rows:
        """Of the program."""
        return self.search.rows

    @property
    def score(self) -> float:
        """The mean over the folds."""
        return float(np.mean(self.outcome.scores[:, self.best]))

    @property
    def start(self) -> Array | Start | Units | None:
        """Where the fit on all rows starts: from the first fold, which has the same gates."""
        if self.fitted is not None:
            solution = self.fitted.solution
            return neurons_of(solution) if self.fitted.point is not None else solution.start()
        return self.outcome.folds[0].start(self.best, self.posed)

    @property
    def factors(self) -> list[np.ndarray | None]:
        """What the folds have learned about their columns."""
        return [fold.points[self.best].factors for fold in self.outcome.folds]


@dataclass(frozen=True, eq=False)
class Task:
    """A network of an ensemble that is to be trained: of one fold, or of all rows.

    share : of the mean.
    """

    choice: Choice
    fold: Fold | None
    share: float

    @property
    def places(self) -> np.ndarray | None:
        """The rows that it is trained on; None for all."""
        return None if self.fold is None else self.fold.part.train

    def posed(self) -> Posed:
        choice = self.choice
        if self.fold is None:
            return choice.posed
        return choice.outcome.comparison.posed(self.fold).at(choice.posed.problem.lam)

    def start(self, posed: Posed) -> Array | Start | Units | None:
        return self.choice.start if self.fold is None else self.fold.start(self.choice.best, posed)


def networks_of(choice: Choice, share: float) -> list[Task]:
    """The networks of a choice, with equal parts of its share. Folds that lack a class, or that
    train on all rows, are left out."""
    targets = choice.search.posing.targets
    folds = [fold for fold in choice.outcome.folds if _holds_out(fold.part, targets)]
    part = share / (1 + len(folds))
    return [Task(choice, fold, part) for fold in (None, *folds)]


def _holds_out(part: Part, targets: Targets) -> bool:
    if len(np.unique(part.train)) == np.count_nonzero(part.rows.weight > 0):
        return False
    if not isinstance(targets, Labels):
        return True
    present = np.unique(predicted_classes(part.rows.Y[part.train]))
    return len(present) == len(targets.classes)


def share_of(clock: Budget, share: float) -> Budget:
    """A share of the time that is left, and in any case a little."""
    return Budget(share * max(clock.left, LAST_SHARE * clock.seconds))
