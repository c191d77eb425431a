"""Convex programs of tables, and paths of models over the penalty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from cvxnn.estimators.base import NetworkEstimator, posed_program, take
from cvxnn.estimators.generating import largest_strength, path_options
from cvxnn.estimators.posing import Fit, Posed
from cvxnn.generation.rounds import Round
from cvxnn.paths import Path, path
from cvxnn.problems import ConvexProblem
from cvxnn.solvers.results import Solution
from cvxnn.tables.deciding import MAX_CATEGORIES
from cvxnn.tables.estimation import KINDS, make_estimator, refuse, scores_by_part
from cvxnn.tables.frames import as_table
from cvxnn.tables.preparation import HELD_OUT, TRAINED, Part, TrainingData
from cvxnn.tables.table import TableError
from cvxnn.tables.transformer import TableEncoder
from cvxnn.validation import check_choice


@dataclass(frozen=True, eq=False)
class TablePath:
    """A path of models of a table: the values of each point by name, and the path itself."""

    points: list[dict[str, float]]
    path: Path


def fit_path(
    table: Any,
    target: str,
    *,
    task: str | None = None,
    kind: str = "relu",
    n_alphas: int = 30,
    eps: float = 1e-2,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    use: Sequence[str] = (),
    na: Sequence[str | float] = (),
    weight: str | None = None,
    impute: bool = True,
    holdout: float = 0.2,
    max_categories: int = MAX_CATEGORIES,
    day_first: bool | None = None,
    seed: int = 0,
    tol: float = 1e-4,
    max_seconds: float | None = None,
    checkpoint: str | PathLike[str] | None = None,
    on_data: Callable[[Sequence[str]], object] | None = None,
    on_point: Callable[[int, int], object] | None = None,
    on_round: Callable[[Round], object] | None = None,
    **settings: object,
) -> TablePath:
    """Models of a column of a table at falling strengths of the penalty.

    With `patterns="generate"` every point has patterns of its own, and `on_round` is called with
    the rounds of generation. Other parameters are those of `Model.fit` and `cvxnn.path`. `settings`
    are other parameters of the estimator, except `alpha` and `warm_start`, as a path has its own
    strengths and starts.
    """
    check_choice(kind, "kind", KINDS)
    encoder = TableEncoder(
        drop=drop,
        categorical=categorical,
        use=use,
        na=na,
        impute=impute,
        max_categories=max_categories,
        day_first=day_first,
    )
    table = as_table(table)
    data = TrainingData.of(table, target, task, weight, holdout, seed, encoder)
    if on_data is not None:
        on_data(data.notes)
    refuse(settings, ("alpha",), "fit_path goes through many strengths")
    estimator = make_estimator(kind, data.target.task, False, seed, {"tol": tol, **settings})
    training, held_out = data.part(TRAINED), data.part(HELD_OUT)
    posed = posed_program(estimator, *training)
    if largest_strength(posed, estimator.patterns == "generate") == 0:
        raise TableError(
            f"{table.source}, column {target!r} does not depend on the others: the constant model "
            "is the best one at every strength"
        )
    done = 0

    def count(solution: Solution) -> None:
        nonlocal done
        done += 1
        if on_point is not None:
            on_point(done, n_alphas)

    options = path_options(estimator, posed.seed)
    if estimator.patterns == "generate":
        options["on_round"] = on_round
    found = path(
        posed.problem,
        n_alphas,
        eps,
        tol,
        solver=estimator.solver,
        max_seconds=max_seconds,
        checkpoint=checkpoint,
        callback=count,
        **options,
    )
    points = [_values(estimator, posed, solution, training, held_out) for solution in found]
    return TablePath(points, found)


def _values(
    estimator: NetworkEstimator, posed: Posed, solution: Solution, training: Part, held_out: Part
) -> dict[str, float]:
    """What is reported about a point of a path, by name."""
    take(estimator, Fit(posed, solution))
    certificate = solution.certificate
    found: dict[str, float] = {
        "alpha": solution.problem.lam,
        "objective": certificate.objective,
        "lower_bound": certificate.lower_bound,
        "relative_gap": certificate.relative_gap,
        "neurons": solution.n_active,
    }
    if estimator.patterns == "generate":  # each point has its own
        found["patterns"] = len(solution.problem.patterns)
    for part, scores in scores_by_part(
        estimator, {"training": training, "held out": held_out}
    ).items():
        found |= {f"{part.replace(' ', '_')}_{name}": score for name, score in scores.items()}
    return found


def pose(
    table: Any,
    target: str,
    *,
    kind: str = "relu",
    alpha: float,
    seed: int = 0,
    **settings: object,
) -> ConvexProblem:
    """The convex program of all rows of a table. `settings` are parameters of the estimator that
    the program depends on; all others have their defaults."""
    check_choice(kind, "kind", KINDS)
    data = TrainingData.of(as_table(table), target, None, None, 0.0, seed, TableEncoder())
    refuse(settings, ("solver", "tol", "max_iter"), "pose solves nothing")
    if settings.get("patterns") == "generate":
        raise TypeError("pose takes no patterns='generate': patterns are generated by solving")
    estimator = make_estimator(kind, data.target.task, False, seed, settings)
    return posed_program(estimator, *data.part(TRAINED), alpha=alpha).problem
