"""What the commands do: read, call the library, say what came out, write."""

from __future__ import annotations

import io
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np

from cvxnn.certificates import Certificate
from cvxnn.cli.console import Console
from cvxnn.cli.outcomes import (
    BAD_INPUT,
    FILE_TROUBLE,
    INTERRUPTED,
    NOT_CONFIRMED,
    NOT_CONVERGED,
    Failure,
)
from cvxnn.digits import text_above, text_below
from cvxnn.files import write_atomically
from cvxnn.modelfile import ModelFileError
from cvxnn.problems import ConvexProblem, CReLU
from cvxnn.solvers.driver import solve
from cvxnn.solvers.results import Solution, Status
from cvxnn.tables.model import Model, fit_path, pose
from cvxnn.tables.preparation import Target
from cvxnn.tables.reading import SUFFIXES, Table, TableError, count, listed, read_table, write_csv

# -- what goes in and out


def _load(path: Path) -> Model:
    if path.is_dir() or not path.exists():
        raise Failure(f"there is no model file {path}", BAD_INPUT)
    try:
        return Model.load(path)
    except ModelFileError as error:
        if path.suffix.lower() not in SUFFIXES:
            raise
        raise Failure(
            f"{path} is not a model file; the model comes first, then the table", BAD_INPUT
        ) from error


def _named(target: str | None, table: Table) -> str:
    if target is None:
        raise Failure(
            f"--target has to name the column to predict; {table.source} has {listed(table.names)}",
            BAD_INPUT,
        )
    table.column(target)  # which has to be there
    return target


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Errors while a file is written, in words; and a note of whether it was, should somebody
    interrupt what follows."""
    before = _identity(path)
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise Failure(f"{path} could not be written: {reason}", FILE_TROUBLE) from error
    finally:
        if _identity(path) != before:
            click.get_current_context().find_root().obj["written"].append(str(path))


def _identity(path: Path) -> tuple[int, int] | None:
    """Of the file behind a name: another one after every write."""
    with suppress(OSError):
        found = path.stat()
        return found.st_ino, found.st_mtime_ns
    return None


# -- the commands


def fit(
    console: Console,
    data: Path,
    output: Path,
    target: str | None,
    alpha: float | None,
    folds: int,
    rule: str,
    jobs: int,
    missing: str,
    tol: float,
    delimiter: str | None,
    encoding: str | None,
    **settings: Any,
) -> int:
    table = read_table(data, delimiter=delimiter, encoding=encoding)
    target = _named(target, table)
    console.say(f"{data}: {count(len(table), 'row')}, {count(len(table.names), 'column')}")
    choosing: dict[str, Any] = (
        {} if alpha is not None else {"cv": folds, "rule": rule, "n_jobs": jobs or None}
    )
    with console.warnings_as_notes(), console.progress() as bars:
        try:
            model = Model.fit(
                table,
                target,
                alpha=alpha,
                impute=missing == "impute",
                tol=tol,
                on_data=console.notes_on_data,
                on_iteration=bars.gap(tol),
                on_fold=bars.count("fold"),
                **choosing,
                **settings,
            )
        except KeyboardInterrupt:
            if alpha is not None:
                raise
            raise KeyboardInterrupt(
                "interrupted while alpha was being chosen; nothing was written (--alpha gives one, "
                "and then the best network so far is kept)"
            ) from None
    if _at_the_edge(model.estimator):
        console.note("the smallest alpha that was tried is the best: a smaller one may be better")
    if _exit_code(model) == INTERRUPTED:
        console.note("interrupted: this is the best network so far", "warning")
    with _writing(output):
        model.save(output)
    _say_model(console, model)
    console.say(f"written to {output}")
    console.result({"model": str(output), **_about(model)})
    return _exit_code(model)


def _at_the_edge(estimator: Any) -> bool:
    chosen = getattr(estimator, "best_index_", -1)
    return chosen >= 0 and chosen == len(estimator.alphas_) - 1 > 0


def _exit_code(model: Model) -> int:
    """Of a model that has just been solved for."""
    if model.status is Status.INTERRUPTED:
        return INTERRUPTED
    return 0 if model.estimator.converged_ else NOT_CONVERGED


def _say_model(console: Console, model: Model) -> None:
    estimator, certificate = model.estimator, model.certificate
    classes = model.target.classes
    what = f"classification, {len(classes)} classes" if classes else "regression"
    trained, held_out = int(np.sum(model.rows == 0)), int(np.sum(model.rows == 1))
    chosen = "chosen by cross-validation" if hasattr(estimator, "cv_scores_") else "given"
    rows = [
        ("task", f"{what} of {model.target.name!r} (--task tells otherwise)"),
        ("features", f"{len(model.encoder.features)}, from {_columns_of(model)}"),
        ("rows", f"{trained} trained on, {held_out} held out"),
        ("alpha", f"{estimator.alpha_:.4g}, {chosen}"),
        ("network", f"{_neurons(model)}, from {count(estimator.n_patterns_, 'pattern')}"),
    ]
    rows += [(f"{label} rows", _listed(values)) for label, values in model.scores.items()]
    console.table([*rows, *_bounds(certificate)])
    _say_proof(console, certificate)


def _columns_of(model: Model) -> str:
    return count(len(model.encoder.columns), "column")


def _neurons(model: Model) -> str:
    return count(model.network.n_neurons, "neuron")


def _say_proof(console: Console, certificate: Certificate) -> None:
    limited = ""
    if certificate.radius is not None:
        limited = f"and weights of a size up to {text_below(certificate.radius, 3)} "
    console.say(
        f"Proven: no network with these patterns {limited}has an objective below the lower bound\n"
        "on the rows trained on. Not proven: that other patterns are no better, nor anything about "
        "new rows."
    )


def _bounds(certificate: Certificate) -> list[tuple[str, str]]:
    return [
        ("objective", text_above(certificate.objective, 8)),
        ("lower bound", text_below(certificate.lower_bound, 8)),
        ("relative gap", text_above(certificate.relative_gap, 2)),
    ]


def _beside(text: Callable[[float, int], str], digits: int, found: float, claimed: float) -> str:
    return f"{text(found, digits)}, claimed {text(claimed, digits)}"


def _listed(values: dict[str, float]) -> str:
    return ", ".join(f"{name.replace('_', '-')} {value:.4g}" for name, value in values.items())


def _about(model: Model) -> dict[str, Any]:
    """A model for machines."""
    certificate = model.certificate
    return {
        "task": model.task,
        "target": model.target.name,
        "classes": model.target.classes,
        "columns": [column.name for column in model.encoder.columns],
        "features": model.encoder.features,
        "rows": {
            "training": int(np.sum(model.rows == 0)),
            "held_out": int(np.sum(model.rows == 1)),
            "left_out": int(np.sum(model.rows == 2)),
        },
        "alpha": model.estimator.alpha_,
        "neurons": model.network.n_neurons,
        "patterns": model.estimator.n_patterns_,
        "converged": bool(model.estimator.converged_),
        "certificate": {
            "objective": certificate.objective,
            "lower_bound": certificate.lower_bound,
            "relative_gap": certificate.relative_gap,
            "scope": certificate.scope,
        },
        "scores": {part.replace(" ", "_"): values for part, values in model.scores.items()},
    }


def predict(
    console: Console,
    model: Path,
    data: Path,
    output: Path | None,
    keep: tuple[str, ...],
    safe: bool,
    delimiter: str | None,
    encoding: str | None,
) -> int:
    loaded = _load(model)
    table = read_table(data, delimiter=delimiter, encoding=encoding)
    kept = {name: table.texts(name) for name in keep}
    with console.warnings_as_notes():
        predicted, notes = loaded.predict(table)
    twice = [name for name in kept if name in predicted]
    if twice:
        raise Failure(f"--keep: {twice[0]!r} is the name of a column of predictions", BAD_INPUT)
    columns = {**kept, **predicted}
    known = {column.name for column in loaded.encoder.columns} | {loaded.target.name}
    extra = [name for name in table.names if name not in known | {loaded.target.weight, *keep}]
    if extra:
        notes.append(f"columns that the model does not know are not used: {listed(extra, 8)}")
    for text in notes:
        console.note(text)
    if output is not None:
        with _writing(output):
            write_atomically(output, write_csv(columns, safe=safe).encode())
        console.say(f"{count(len(table), 'prediction')} written to {output}")
    elif not console.as_json:
        click.echo(write_csv(columns, safe=safe), nl=False)
    console.result({"rows": len(table), "output": output and str(output), **columns})
    return 0


def path(
    console: Console,
    data: Path,
    output: Path,
    target: str | None,
    points: int,
    missing: str,
    plot: Path | None,
    safe: bool,
    delimiter: str | None,
    encoding: str | None,
    **settings: Any,
) -> int:
    if plot == output:
        raise Failure(f"--plot and --output are both {plot}", BAD_INPUT)
    table = read_table(data, delimiter=delimiter, encoding=encoding)
    target = _named(target, table)
    checkpoint = output.with_name(output.name + ".checkpoint")
    if checkpoint.exists():
        console.say(f"going on from {checkpoint}")
    if plot is not None:
        _pyplot()  # or an error before the work
    try:
        with console.warnings_as_notes(), console.progress() as bars, _writing(checkpoint):
            found = fit_path(
                table,
                target,
                n_alphas=points,
                impute=missing == "impute",
                checkpoint=checkpoint,
                on_data=console.notes_on_data,
                on_point=bars.count("point"),
                **settings,
            )
    except KeyboardInterrupt:  # before the first point, or after the last
        raise KeyboardInterrupt(_kept(checkpoint, "interrupted")) from None
    done = f"{len(found.points)} of {count(len(found.path.planned), 'point')}"
    if not found.path.complete:
        raise KeyboardInterrupt(_kept(checkpoint, f"{found.path.message} after {done}"))
    columns = {name: [point[name] for point in found.points] for name in found.points[0]}
    text = write_csv(columns, safe=safe)
    with _writing(output):
        write_atomically(output, text.encode())
    _say_path(console, found.points)
    if plot is not None:
        with _writing(plot):
            _draw(found.path, plot)
        console.say(f"drawn to {plot}")
    checkpoint.unlink(missing_ok=True)
    console.say(f"{done} written to {output}")
    console.result({"output": str(output), "points": found.points})
    converged = all(solution.converged for solution in found.path)
    return 0 if converged else NOT_CONVERGED


def _kept(checkpoint: Path, how: str) -> str:
    if not checkpoint.exists():
        return f"{how}; nothing was written"
    return f"{how}; what is done is kept in {checkpoint}, and the same command goes on from there"


def _draw(found: Any, plot: Path) -> None:
    """Write the picture of a path, whole or not at all."""
    from cvxnn.plots import plot_path, save_figure

    figure = plot_path(found)[0].figure
    save_figure(figure, plot)
    _pyplot().close(figure)


def _say_path(console: Console, points: list[dict[str, float]]) -> None:
    names = [name for name in points[0] if name not in ("objective", "lower_bound")]
    console.say("  ".join(f"{name.replace('_', ' '):>{max(len(name), 9)}}" for name in names))
    step = max(1, len(points) // 10)
    for point in [*points[:-1:step], points[-1]]:
        console.say("  ".join(f"{point[name]:>{max(len(name), 9)}.4g}" for name in names))


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'cvxnn[plot]'") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def certify(
    console: Console, model: Path, data: Path, delimiter: str | None, encoding: str | None
) -> int:
    loaded = _load(model)
    table = read_table(data, delimiter=delimiter, encoding=encoding)
    with console.warnings_as_notes():
        found = loaded.verify(table)
    claimed = loaded.certificate
    console.say(f"{'confirmed' if found.agrees else 'NOT CONFIRMED'}: {found.scope}")
    console.table(
        [
            ("objective", _beside(text_above, 10, found.objective, claimed.objective)),
            ("lower bound", _beside(text_below, 10, found.lower_bound, claimed.lower_bound)),
            ("relative gap", _beside(text_above, 2, found.relative_gap, claimed.relative_gap)),
            *(("checked", text) for text in found.checked),
            *(("differs", text) for text in found.differences),
        ]
    )
    console.result(
        {
            "confirmed": found.agrees,
            "scope": found.scope,
            "objective": found.objective,
            "lower_bound": found.lower_bound,
            "relative_gap": found.relative_gap,
            "differences": found.differences,
        }
    )
    return 0 if found.agrees else NOT_CONFIRMED


def improve(
    console: Console,
    model: Path,
    data: Path,
    output: Path,
    n_patterns: int,
    alpha: float | None,
    tol: float,
    seed: int,
    delimiter: str | None,
    encoding: str | None,
) -> int:
    given = _load(model)
    table = read_table(data, delimiter=delimiter, encoding=encoding)
    with console.warnings_as_notes():
        better = given.improve(
            table, n_patterns=n_patterns, alpha=alpha, tol=tol, random_state=seed
        )
    _changed(console, given, better, output)
    return _exit_code(better)


def prune(
    console: Console,
    model: Path,
    data: Path,
    output: Path,
    delimiter: str | None,
    encoding: str | None,
) -> int:
    given = _load(model)
    table = read_table(data, delimiter=delimiter, encoding=encoding)
    with console.warnings_as_notes():
        smaller = given.prune(table)
    _changed(console, given, smaller, output)
    return 0


def _changed(console: Console, before: Model, after: Model, output: Path) -> None:
    with _writing(output):
        after.save(output)
    neurons = f"{before.network.n_neurons} -> {after.network.n_neurons}"
    rows = [("neurons", neurons)]
    if before.estimator.alpha_ == after.estimator.alpha_:
        change = f"{before.certificate.objective:.8g} -> {after.certificate.objective:.8g}"
        rows.append(("objective", change))
    else:
        change = f"{after.certificate.objective:.8g}, at another alpha than before"
        rows.append(("objective", change))
    rows += _bounds(after.certificate)[1:]
    rows.append(("bounds of", after.certificate.scope))
    for label, values in after.scores.items():
        rows.append((f"{label} rows", f"{_listed(before.scores[label])} -> {_listed(values)}"))
    console.table(rows)
    console.say(f"written to {output}")
    console.result({"model": str(output), "before": _about(before), "after": _about(after)})


def export(console: Console, model: Path, output: Path | None, dtype: str) -> int:
    loaded = _load(model)
    suffix = "" if output is None else output.suffix.lower()
    if output is None or suffix not in (".onnx", ".pt2", ".safetensors"):
        raise Failure("-o needs a name that ends in .onnx, .pt2 or .safetensors", BAD_INPUT)
    link = None
    if loaded.target.classes is not None and hasattr(loaded.estimator, "predict_proba"):
        link = "logistic" if len(loaded.target.classes) == 2 else "softmax"
    network, features = loaded.network, loaded.encoder.features
    with _writing(output):
        if suffix == ".onnx":
            network.to_onnx(output, link=link, dtype=dtype)
        elif suffix == ".pt2":
            _save_torch(network.to_torch(link=link, dtype=dtype), network.n_features, dtype, output)
        else:
            network.save(output)
    taken = count(len(features), "feature")
    console.say(f"written to {output}; it takes {taken}, in this order:")
    for k, name in enumerate(features):
        console.say(f"  {k:4d}  {name}")
    console.say(f"it gives {_outputs(loaded.target, suffix, link)}")
    console.result({"output": str(output), "features": features, "classes": loaded.target.classes})
    return 0


def _outputs(target: Target, suffix: str, link: str | None) -> str:
    """What an exported network returns, in words."""
    if target.classes is None:
        return repr(target.name)
    listing = ", ".join(map(repr, target.classes))
    if link is not None and suffix == ".onnx":
        return f"'probabilities' of {listing}, in this order"
    scores = link is None or suffix == ".safetensors"
    if len(target.classes) == 2:
        return f"the {'score' if scores else 'probability'} of {target.classes[1]!r}"
    return f"the {'scores' if scores else 'probabilities'} of {listing}, in this order"


def _save_torch(module: Any, n_features: int, dtype: str, output: Path) -> None:
    import torch

    example = torch.zeros((2, n_features), dtype=getattr(torch, dtype))
    rows = torch.export.Dim("rows", min=1)
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its format
        program = torch.export.export(
            module.requires_grad_(False), (example,), dynamic_shapes=({0: rows},)
        )
        torch.export.save(program, content)
    write_atomically(output, content.getvalue())


def report(
    console: Console,
    model: Path,
    data: Path,
    output: Path,
    title: str | None,
    delimiter: str | None,
    encoding: str | None,
) -> int:
    from cvxnn.reports import report

    loaded = _load(model)
    table = read_table(data, delimiter=delimiter, encoding=encoding)
    try:
        rows, held_out = loaded.training_rows(table), loaded.held_out_rows(table)
    except TableError:  # another table, which has to have the columns all the same
        console.note(f"{data} is not the table that the model was trained on")
        table = table.select(~table.missing(loaded.target.name))
        weights = loaded.target.weights(table)
        rows = loaded.encoder.encode(table)[0], loaded.target.values(table), weights
        held_out = None
    X, y, weights = rows
    facts = [
        ("model file", model.name),
        ("data", data.name),
        ("target", loaded.target.name),
        ("columns", ", ".join(column.name for column in loaded.encoder.columns)),
        ("trained with", ", ".join(f"{k} {v}" for k, v in (loaded.versions or {}).items())),
    ]
    with _writing(output):
        report(
            loaded.estimator,
            X,
            y,
            output,
            sample_weight=weights,
            test=held_out if held_out is not None and len(held_out[1]) else None,
            title=title or f"{loaded.target.name}, from {data.name}",
            feature_names=loaded.encoder.features,
            notes="\n\n".join(loaded.notes) or None,
            facts=facts,
        )
    console.say(f"written to {output}; open it in a browser")
    console.result({"output": str(output), "rows": len(y)})
    return 0


def bench(
    console: Console,
    data: Path | None,
    target: str | None,
    kind: str,
    n_patterns: int,
    alpha: float,
    tol: float,
    max_seconds: float,
    seed: int,
    delimiter: str | None,
    encoding: str | None,
) -> int:
    if data is None:
        table, target = _breast_cancer(), "diagnosis"
    else:
        table = read_table(data, delimiter=delimiter, encoding=encoding)
        target = _named(target, table)
    problem = pose(table, target, kind=kind, alpha=alpha, n_patterns=n_patterns, seed=seed)
    console.say(str(problem))
    results = []
    console.say(f"  {'solver':<8} {'seconds':>9} {'iterations':>11} {'passes':>8} {'gap':>9}")
    for name in _racing(problem):
        started = time.process_time()
        try:
            solution = solve(problem, name, tol=tol, max_seconds=max_seconds, on_failure="ignore")
        except RuntimeError as error:  # other people's solvers give up
            console.say(f"  {name:<8} failed: {error}")
            results.append({"solver": name, "status": f"failed: {error}"})
            continue
        if solution.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        seconds = time.process_time() - started
        results.append(_result(name, solution, seconds))
        gap = solution.certificate.relative_gap
        console.say(
            f"  {name:<8} {seconds:>9.3f} {solution.n_iter:>11} {solution.n_products:>8} "
            f"{gap:>9.1e}  {solution.status}"
        )
    console.say(f"processor seconds, to a relative gap of {tol:g}")
    console.result({"problem": str(problem), "tol": tol, "solvers": results})
    return 0


def _racing(problem: ConvexProblem) -> list[str]:
    names = ["newton", "al" if isinstance(problem, CReLU) else "rfista"]
    both = find_spec("clarabel") and find_spec("cvxpy")
    return [*names, "cvxpy"] if both else names


def _result(name: str, solution: Solution, seconds: float) -> dict[str, Any]:
    return {
        "solver": name,
        "seconds": seconds,
        "iterations": solution.n_iter,
        "passes": solution.n_products,
        "relative_gap": solution.certificate.relative_gap,
        "status": str(solution.status),
    }


def _breast_cancer() -> Table:
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    columns = dict(zip(map(str, data.feature_names), data.data.T, strict=True))
    columns["diagnosis"] = data.target_names[data.target].astype(object)
    return Table(columns, "breast cancer")
