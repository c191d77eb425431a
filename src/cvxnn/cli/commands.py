"""What the commands do: read, call the library, say what came out, write."""

from __future__ import annotations

import io
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np

from cvxnn.certificates import Certificate
from cvxnn.cli import BAD_INPUT, INTERRUPTED, NOT_CONFIRMED, NOT_CONVERGED, Failure
from cvxnn.cli.console import Console
from cvxnn.modelfile import write_atomically
from cvxnn.models import Model, fit_path, pose
from cvxnn.problems import ConvexProblem, CReLU
from cvxnn.solvers import Solution, Status, solve
from cvxnn.tables import Table, read_table, write_csv


def fit(
    console: Console,
    data: Path,
    output: Path,
    target: str,
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
    console.say(f"{data}: {len(table)} rows, {len(table.names)} columns")
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
                on_iteration=bars.gap(tol),
                on_fold=bars.count("fold"),
                **choosing,
                **settings,
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                "interrupted while alpha was being chosen; nothing was written (--alpha gives one, "
                "and then the best network so far is kept)"
            ) from None
    for text in model.notes:
        console.note(text)
    model.save(output)
    _say_model(console, model)
    console.say(f"written to {output}")
    console.result({"model": str(output), **_about(model)})
    return _exit_code(model)


def _exit_code(model: Model) -> int:
    if getattr(model.estimator, "solution_", None) is None:
        return 0 if model.estimator.converged_ else NOT_CONVERGED
    if model.estimator.solution_.status is Status.INTERRUPTED:
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
        ("features", f"{len(model.encoder.features)} of {len(model.encoder.columns)} columns"),
        ("rows", f"{trained} trained on, {held_out} held out"),
        ("alpha", f"{estimator.alpha_:.4g}, {chosen}"),
        ("network", f"{model.network.n_neurons} neurons, from {estimator.n_patterns_} patterns"),
    ]
    rows += [(f"{label} rows", _listed(values)) for label, values in model.scores.items()]
    console.table([*rows, *_bounds(certificate)])
    console.say(
        "Proven: no network with these patterns has an objective below the lower bound on the "
        "rows\ntrained on. Not proven: that other patterns are no better, nor anything about new "
        "rows."
    )


def _bounds(certificate: Certificate) -> list[tuple[str, str]]:
    return [
        ("objective", f"{certificate.objective:.8g}"),
        ("lower bound", f"{certificate.lower_bound:.8g}"),
        ("relative gap", f"{certificate.relative_gap:.2g}"),
    ]


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
        "scores": model.scores,
    }


def _load(path: Path) -> Model:
    if path.is_dir() or not path.exists():
        raise Failure(f"there is no model file {path}", BAD_INPUT)
    return Model.load(path)


def predict(
    console: Console,
    model: Path,
    data: Path,
    output: Path | None,
    delimiter: str | None,
    encoding: str | None,
) -> int:
    loaded = _load(model)
    table = read_table(data, delimiter=delimiter, encoding=encoding)
    columns, notes = loaded.predict(table)
    known = {column.name for column in loaded.encoder.columns} | {loaded.target.name}
    extra = [name for name in table.names if name not in known | {loaded.target.weight}]
    if extra:
        shown = ", ".join(map(repr, extra[:8])) + (", ..." if len(extra) > 8 else "")
        notes.append(f"columns that the model does not know are not used: {shown}")
    for text in notes:
        console.note(text)
    if console.as_json:
        console.result({"rows": len(table), "output": output and str(output), **columns})
    if output is not None:
        write_atomically(output, write_csv(columns).encode())
        console.say(f"{len(table)} predictions written to {output}")
    elif not console.as_json:
        click.echo(write_csv(columns), nl=False)
    return 0


def path(
    console: Console,
    data: Path,
    output: Path,
    points: int,
    missing: str,
    plot: Path | None,
    delimiter: str | None,
    encoding: str | None,
    **settings: Any,
) -> int:
    table = read_table(data, delimiter=delimiter, encoding=encoding)
    checkpoint = output.with_name(output.name + ".checkpoint")
    if checkpoint.exists():
        console.say(f"going on from {checkpoint}")
    if plot is not None:
        _pyplot()  # or an error before the work
    with console.warnings_as_notes(), console.progress() as bars:
        found = fit_path(
            table,
            n_alphas=points,
            impute=missing == "impute",
            checkpoint=checkpoint,
            on_point=bars.count("point"),
            **settings,
        )
    for text in found.notes:
        console.note(text)
    done = f"{len(found.points)} of {len(found.path.planned)} points"
    if not found.path.complete:
        raise Failure(
            f"{found.path.message} after {done}, which are kept in {checkpoint}; the same command "
            "goes on from there",
            INTERRUPTED,
        )
    text = write_csv({name: [point[name] for point in found.points] for name in found.points[0]})
    write_atomically(output, text.encode())
    checkpoint.unlink(missing_ok=True)
    _say_path(console, found.points)
    if plot is not None:
        from cvxnn.plots import plot_path

        figure = plot_path(found.path)[0].figure
        figure.savefig(plot, dpi=150)
        _pyplot().close(figure)
        console.say(f"drawn to {plot}")
    console.say(f"{done} written to {output}")
    console.result({"output": str(output), "points": found.points})
    converged = all(solution.converged for solution in found.path)
    return 0 if converged else NOT_CONVERGED


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
    found = loaded.verify(table)
    claimed = loaded.certificate
    console.say(f"{'confirmed' if found.agrees else 'NOT CONFIRMED'}: {found.scope}")
    console.table(
        [
            ("objective", f"{found.objective:.10g}, claimed {claimed.objective:.10g}"),
            ("lower bound", f"{found.lower_bound:.10g}, claimed {claimed.lower_bound:.10g}"),
            ("relative gap", f"{found.relative_gap:.2g}, claimed {claimed.relative_gap:.2g}"),
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
    return _changed(console, given, better, output)


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
    return _changed(console, given, given.prune(table), output)


def _changed(console: Console, before: Model, after: Model, output: Path) -> int:
    after.save(output)
    neurons = f"{before.network.n_neurons} -> {after.network.n_neurons}"
    rows = [("neurons", neurons)]
    if before.estimator.alpha_ == after.estimator.alpha_:
        change = f"{before.certificate.objective:.8g} -> {after.certificate.objective:.8g}"
        rows.append(("objective", change))
    rows += _bounds(after.certificate)[1:]
    for label, values in after.scores.items():
        rows.append((f"{label} rows", f"{_listed(before.scores[label])} -> {_listed(values)}"))
    console.table(rows)
    console.say(f"written to {output}")
    console.result({"model": str(output), "before": _about(before), "after": _about(after)})
    return 0 if after.estimator.converged_ else NOT_CONVERGED


def export(console: Console, model: Path, output: Path | None, dtype: str) -> int:
    loaded = _load(model)
    suffix = "" if output is None else output.suffix.lower()
    if output is None or suffix not in (".onnx", ".pt2", ".safetensors"):
        raise Failure("-o needs a name that ends in .onnx, .pt2 or .safetensors", BAD_INPUT)
    link = None
    if loaded.target.classes is not None and hasattr(loaded.estimator, "predict_proba"):
        link = "logistic" if len(loaded.target.classes) == 2 else "softmax"
    network, features = loaded.network, loaded.encoder.features
    if suffix == ".onnx":
        network.to_onnx(output, link=link, dtype=dtype)
    elif suffix == ".pt2":
        _save_torch(network.to_torch(link=link, dtype=dtype), network.n_features, dtype, output)
    else:
        network.save(output)
    console.say(f"written to {output}; it takes {len(features)} features, in this order:")
    for k, name in enumerate(features):
        console.say(f"  {k:4d}  {name}")
    if loaded.target.classes:
        console.say("classes, in the order of probabilities: " + ", ".join(loaded.target.classes))
    console.result({"output": str(output), "features": features, "classes": loaded.target.classes})
    return 0


def _save_torch(module: Any, n_features: int, dtype: str, output: Path) -> None:
    import torch

    example = torch.zeros((2, n_features), dtype=getattr(torch, dtype))
    rows = torch.export.Dim("rows", min=1)
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its format
        program = torch.export.export(module, (example,), dynamic_shapes=({0: rows},))
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
    raise NotImplementedError


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
        table, target = _breast_cancer(), target or "diagnosis"
    else:
        if target is None:
            raise Failure("--target has to name the column to predict", BAD_INPUT)
        table = read_table(data, delimiter=delimiter, encoding=encoding)
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
