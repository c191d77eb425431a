"""The commands that train: `cvxnn fit` and `cvxnn path`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

import click

from cvxnn.cli.console import Console
from cvxnn.cli.describing import about, exit_code, say_model
from cvxnn.cli.files import writing
from cvxnn.cli.options import GENERATE
from cvxnn.cli.outcomes import BAD_INPUT, INTERRUPTED, NOT_CONVERGED, Failure
from cvxnn.cli.pictures import check_matplotlib, save_plot
from cvxnn.estimators.base import NetworkEstimator
from cvxnn.estimators.cross_validation import CrossValidated
from cvxnn.files import write_atomically
from cvxnn.generation.rounds import Round
from cvxnn.memory import used
from cvxnn.tables.model import Model
from cvxnn.tables.paths import fit_path
from cvxnn.tables.shards import FilesOfCluster, ShardedTable
from cvxnn.tables.table import Table, count, write_csv


class Learning(TypedDict):
    """The options of all commands that train, but those that need a translation."""

    task: str | None
    kind: str
    drop: tuple[str, ...]
    categorical: tuple[str, ...]
    use: tuple[str, ...]
    na: tuple[str, ...]
    day_first: bool | None
    weight: str | None
    max_categories: int
    holdout: float
    patterns: int | str
    n_components: int | None
    device: str | None
    seed: int


def fit(
    console: Console,
    table: Table | ShardedTable | FilesOfCluster,
    output: Path,
    target: str,
    alpha: float | None,
    folds: int,
    rule: str,
    ensemble: str | None,
    jobs: int,
    missing: str,
    tol: float,
    checkpoint: Path | None,
    memory: int | None,
    prove: bool,
    cluster: str | None,
    max_seconds: float | None,
    **settings: Unpack[Learning],
) -> int:
    if checkpoint == output:
        raise Failure(f"--checkpoint and --output are both {output}", BAD_INPUT)
    limits: dict[str, Any] = {} if memory is None else {"max_memory": _left_of(memory)}
    if max_seconds is not None:
        limits["max_seconds"] = max_seconds
    proof: dict[str, Any] = {"prove": True} if prove else {}
    if checkpoint is not None and checkpoint.exists():
        console.say(f"continuing from {checkpoint}")
    alone = isinstance(table, Table)
    if not isinstance(table, FilesOfCluster):
        names = table.names if isinstance(table, Table) else table.whole.names
        console.say(f"{table.source}: {count(len(table), 'row')}, {count(len(names), 'column')}")
    if not alone and _is_default("kind"):
        settings["kind"] = "gated"
        console.note("several processes train a gated network (--model gated)")
    choosing: dict[str, Any] = {}
    if alpha is None:
        choosing = {"cv": folds, "rule": rule, "ensemble": ensemble}
    if alone and choosing:
        choosing["n_jobs"] = jobs or None
    with console.warnings_as_notes(), console.progress() as bars:
        try:
            model = _fitted(
                table,
                target,
                cluster,
                alpha=alpha,
                impute=missing == "impute",
                tol=tol,
                on_data=console.notes_on_data,
                on_iteration=bars.gap(tol),
                on_round=bars.rounds(),
                on_alpha=bars.count("alpha"),
                checkpoint=checkpoint,
                **choosing,
                **limits,
                **proof,
                **_parameters(settings),
            )
        except KeyboardInterrupt:
            if alpha is not None:
                raise
            raise KeyboardInterrupt(
                "interrupted while alpha was being chosen; nothing was written (with --alpha, the "
                "best network so far would be kept)"
            ) from None
    if _at_the_edge(model.estimator):
        console.note("the smallest alpha that was tried is the best: a smaller one may be better")
    if exit_code(model) == INTERRUPTED:
        console.note("interrupted: this is the best network so far", "warning")
    if not (isinstance(table, ShardedTable) and table.ranks.rank):  # one process writes it
        with writing(output):
            model.save(output)
    if checkpoint is not None and model.estimator.converged_:
        checkpoint.unlink(missing_ok=True)
    say_model(console, model, "" if settings["task"] else " (change it with --task)")
    console.say(f"written to {output}")
    console.result({"model": str(output), **about(model)})
    return exit_code(model)


def _fitted(
    table: Table | ShardedTable | FilesOfCluster,
    target: str,
    cluster: str | None,
    *,
    on_data: Callable[[Sequence[str]], object],
    on_round: Callable[[Round], object] | None,
    checkpoint: Path | None,
    **settings: Any,
) -> Model:
    if not isinstance(table, FilesOfCluster):
        return Model.fit(
            table, target, on_data=on_data, on_round=on_round, checkpoint=checkpoint, **settings
        )
    from cvxnn.cli.clusters import connected

    with connected(str(cluster)) as client:
        from cvxnn.dask.tables import fit_on_cluster

        model = fit_on_cluster(client, table, target, **settings)
    on_data(model.notes)
    return model


def _is_default(name: str) -> bool:
    """Whether an option was not given."""
    source = click.get_current_context().get_parameter_source(name)
    return source is not click.core.ParameterSource.COMMANDLINE


def _parameters(settings: Learning) -> dict[str, Any]:
    """The options as parameters of estimators and of what reads tables."""
    parameters: dict[str, Any] = dict(settings)
    patterns = parameters.pop("patterns")
    return parameters | (
        {"patterns": GENERATE} if patterns == GENERATE else {"n_patterns": patterns}
    )


def _left_of(memory: int) -> int:
    """What training may take of the memory of the process."""
    return max(memory - (used() or 0), 1)


def _at_the_edge(estimator: NetworkEstimator) -> bool:
    """Whether cross-validation has chosen the smallest of several alphas."""
    if not isinstance(estimator, CrossValidated):
        return False
    return estimator.best_index_ == len(estimator.alphas_) - 1 > 0


def path(
    console: Console,
    table: Table,
    output: Path,
    target: str,
    points: int,
    missing: str,
    max_seconds: float | None,
    plot: Path | None,
    safe: bool,
    **settings: Unpack[Learning],
) -> int:
    if plot == output:
        raise Failure(f"--plot and --output are both {plot}", BAD_INPUT)
    checkpoint = output.with_name(output.name + ".checkpoint")
    if checkpoint.exists():
        console.say(f"continuing from {checkpoint}")
    if plot is not None:
        check_matplotlib()  # before the work, not after it
    try:
        with console.warnings_as_notes(), console.progress() as bars, writing(checkpoint):
            found = fit_path(
                table,
                target,
                n_alphas=points,
                impute=missing == "impute",
                max_seconds=max_seconds,
                checkpoint=checkpoint,
                on_data=console.notes_on_data,
                on_point=bars.count("point"),
                on_round=bars.rounds(),
                **_parameters(settings),
            )
    except KeyboardInterrupt:  # before the first point, or after the last
        raise KeyboardInterrupt(_kept(checkpoint, "interrupted")) from None
    done = f"{len(found.points)} of {count(len(found.path.planned), 'point')}"
    if found.path.out_of_time:
        why = _kept(checkpoint, f"{found.path.message} ({done})")
        raise Failure(why, NOT_CONVERGED)
    if not found.path.complete:
        raise KeyboardInterrupt(_kept(checkpoint, f"{found.path.message} after {done}"))
    columns = {name: [point[name] for point in found.points] for name in found.points[0]}
    text = write_csv(columns, safe=safe)
    with writing(output):
        write_atomically(output, text.encode())
    _say_path(console, found.points)
    if plot is not None:
        from cvxnn.plots import plot_path

        with writing(plot):
            save_plot(plot_path(found.path, strength="alpha"), plot)
        console.say(f"drawn to {plot}")
    checkpoint.unlink(missing_ok=True)
    console.say(f"{done} written to {output}")
    console.result({"output": str(output), "points": found.points})
    converged = all(solution.converged for solution in found.path)
    return 0 if converged else NOT_CONVERGED


def _kept(checkpoint: Path, how: str) -> str:
    """How a path ended, and what remains of it."""
    if not checkpoint.exists():
        return f"{how}; nothing was written"
    return f"{how}; what is done is kept in {checkpoint}, and the same command continues from there"


def _say_path(console: Console, points: list[dict[str, float]]) -> None:
    names = [name for name in points[0] if name not in ("objective", "lower_bound")]
    console.say("  ".join(f"{name.replace('_', ' '):>{max(len(name), 9)}}" for name in names))
    step = max(1, len(points) // 10)
    for point in [*points[:-1:step], points[-1]]:
        console.say("  ".join(f"{point[name]:>{max(len(name), 9)}.4g}" for name in names))
