"""The commands that use a model: info, predict, certify, improve, prune, export and report."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cvxnn.cli.console import Console
from cvxnn.cli.describing import about, components_text, exit_code, say_change, say_model
from cvxnn.cli.files import load_model, writing
from cvxnn.cli.outcomes import BAD_INPUT, NOT_CONFIRMED, Failure
from cvxnn.digits import text_above, text_below
from cvxnn.files import write_atomically
from cvxnn.progress import step
from cvxnn.tables.exporting import inputs_of
from cvxnn.tables.table import Table, TableError, count, listed, write_csv

if TYPE_CHECKING:
    import torch

    from cvxnn.bounds.base import Bound
    from cvxnn.certificates import Certificate
    from cvxnn.tables.model import Model
    from cvxnn.verification.results import Verification


def info(console: Console, model: Path) -> int:
    loaded = load_model(model)
    classes = loaded.target.classes
    console.say(f"{model}: a model of {loaded.target.name!r}")
    if classes is not None:
        console.say(f"classes: {listed(classes)}")
    console.say("columns:")
    console.table([(column.name, column.words()) for column in loaded.encoder.columns])
    console.say("model:")
    say_model(console, loaded)
    if loaded.notes:
        console.say("notes on the data:")
    for text in loaded.notes:
        console.say(f"  {text}")
        console.notes.append(text)
    made = ", ".join(f"{name} {number}" for name, number in (loaded.versions or {}).items())
    console.say(f"made with {made}")
    columns = {column.name: column.words() for column in loaded.encoder.columns}
    console.result({"model": str(model), **about(loaded), "read_as": columns})
    return 0


def predict(
    console: Console,
    model: Path,
    table: Table,
    output: Path | None,
    keep: tuple[str, ...],
    safe: bool,
) -> int:
    with console.warnings_as_notes(), console.progress():
        loaded = load_model(model)
        kept = {name: table.texts(name) for name in keep}
        with step("predicting"):
            predicted, notes = loaded.predictions(table)
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
        with writing(output):
            write_atomically(output, write_csv(columns, safe=safe).encode())
        console.say(f"{count(len(table), 'prediction')} written to {output}")
    elif not console.as_json:
        click.echo(write_csv(columns, safe=safe), nl=False)
    console.result({"rows": len(table), "output": output and str(output), **columns})
    return 0


def certify(
    console: Console,
    model: Path,
    table: Table,
    max_seconds: float | None,
) -> int:
    with console.warnings_as_notes(), console.progress() as bars:
        loaded = load_model(model)
        found = loaded.verify(table, max_seconds=max_seconds, on_leaves=bars.count("leaf"))
    _say_check(console, replace(found, over_all=None, others=()), loaded.certificate)
    _say_others(console, found, loaded)
    if found.over_all is not None and loaded.proof is not None:
        _say_check(console, found.over_all, loaded.proof)
        if found.over_all.agrees:
            limited = components_text(loaded)
            console.say(
                "Confirmed by code that shares nothing with the search: no two-layer ReLU network "
                f"{limited}of\nany width has an objective below that lower bound on the rows "
                "trained on."
            )
    over_all = {} if found.over_all is None else {"over_all_patterns": _check(found.over_all)}
    others = {"others": [_check(other) for other in found.others]} if found.others else {}
    console.result({**_check(found), **over_all, **others})
    return 0 if found.agrees else NOT_CONFIRMED


def _say_check(console: Console, found: Verification, claimed: Certificate | Bound) -> None:
    console.say(f"{found.verdict if found.agrees else found.verdict.upper()}: {found.scope}")
    console.table(
        [
            ("objective", _beside(text_above, 10, found.objective, claimed.objective)),
            ("lower bound", _beside(text_below, 10, found.lower_bound, claimed.lower_bound)),
            ("relative gap", _beside(text_above, 2, found.relative_gap, claimed.relative_gap)),
            *(("checked", text) for text in found.checked),
            *(("differs", text) for text in found.differences),
        ]
    )


def _say_others(console: Console, found: Verification, model: Model) -> None:
    """The networks of a mean but for the first, in a line each where they are confirmed."""
    if not found.others:
        return
    console.say(
        f"the first of {len(model.members)} networks, whose mean the model predicts by; the others:"
    )
    lines = []
    for k, (other, member) in enumerate(zip(found.others, model.members[1:], strict=True), start=2):
        gap = _beside(text_above, 2, other.relative_gap, member.certificate.relative_gap)
        rows = count(member.bits.n, "distinct row")
        verdict = other.verdict if other.agrees else other.verdict.upper()
        lines.append((f"network {k}", f"{verdict}: relative gap {gap}, on {rows}"))
        lines += [("differs", text) for text in other.differences]
    console.table(lines)
    if found.agrees:
        console.say("Each network is confirmed on its own rows. Nothing is claimed of their mean.")


def _check(found: Verification) -> dict[str, object]:
    """What was found, as JSON."""
    return {
        "confirmed": found.agrees,
        "finished": found.finished,
        "scope": found.scope,
        "objective": found.objective,
        "lower_bound": found.lower_bound,
        "relative_gap": found.relative_gap,
        "differences": found.differences,
    }


def _beside(text: Callable[[float, int], str], digits: int, found: float, claimed: float) -> str:
    """A number that was found, beside the one that the file claims."""
    return f"{text(found, digits)}, claimed {text(claimed, digits)}"


def improve(
    console: Console,
    model: Path,
    table: Table,
    output: Path,
    n_patterns: int,
    alpha: float | None,
    tol: float,
    seed: int,
    max_seconds: float | None,
) -> int:
    with console.warnings_as_notes(), console.progress() as bars:
        given = load_model(model)
        better = given.improve(
            table,
            n_patterns=n_patterns,
            alpha=alpha,
            tol=tol,
            random_state=seed,
            max_seconds=max_seconds,
            on_iteration=bars.gap(tol),
        )
    say_change(console, given, better, output)
    return exit_code(better)


def prune(
    console: Console,
    model: Path,
    table: Table,
    output: Path,
) -> int:
    with console.warnings_as_notes(), console.progress():
        given = load_model(model)
        with step("pruning"):
            smaller = given.prune(table)
    say_change(console, given, smaller, output)
    return 0


def export(console: Console, model: Path, output: Path, dtype: str, features: bool) -> int:
    suffix = output.suffix.lower()
    loaded = load_model(model)
    features = features or suffix == ".safetensors"
    _write_export(loaded, output, suffix, dtype, features)
    names = loaded.encoder.features
    if features:
        console.say(f"written to {output}; it takes {count(len(names), 'feature')}, in this order:")
        for k, name in enumerate(names):
            console.say(f"  {k:4d}  {name}")
    else:
        inputs = inputs_of(loaded.encoder, suffix)
        where = "by name" if suffix == ".onnx" else "as the columns of one matrix"
        console.say(f"written to {output}; it takes {count(len(inputs), 'column')}, {where}:")
        console.table(inputs)
    console.say(f"it gives {_outputs(loaded, suffix, features)}")
    told = {"features": names} if features else {"inputs": dict(inputs)}
    console.result({"output": str(output), **told, "classes": loaded.target.classes})
    return 0


def _write_export(model: Model, output: Path, suffix: str, dtype: str, features: bool) -> None:
    network, link = model.network, model.link
    with writing(output):
        if suffix == ".safetensors":
            network.save(output)
        elif suffix == ".onnx" and features:
            network.to_onnx(output, link=link, dtype=dtype)
        elif suffix == ".onnx":
            model.to_onnx(output, dtype=dtype)
        elif features:
            module = network.to_torch(link=link, dtype=dtype)
            _save_torch(module, network.n_features, dtype, output)
        else:
            width = len(model.encoder.columns)
            _save_torch(model.to_torch(dtype=dtype), width, dtype, output)


def _outputs(model: Model, suffix: str, features: bool) -> str:
    """What an exported network returns, in words."""
    target, link = model.target, model.link
    if target.classes is None:
        return repr(target.name)
    listing = ", ".join(map(repr, target.classes))
    label = "'label', and " if suffix == ".onnx" and not features else ""
    if link is not None and suffix == ".onnx":
        return f"{label}'probabilities' of {listing}, in this order"
    scores = link is None or suffix == ".safetensors"
    if len(target.classes) == 2:
        return f"{label}the {'score' if scores else 'probability'} of {target.classes[1]!r}"
    return f"{label}the {'scores' if scores else 'probabilities'} of {listing}, in this order"


def _save_torch(module: torch.nn.Module, n_features: int, dtype: str, output: Path) -> None:
    import torch

    example = torch.zeros((2, n_features), dtype=getattr(torch, dtype))
    rows = torch.export.Dim("rows", min=1)
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about its own file format
        program = torch.export.export(
            module.requires_grad_(False), (example,), dynamic_shapes=({0: rows},)
        )
        torch.export.save(program, content)
    write_atomically(output, content.getvalue())


def report(
    console: Console,
    model: Path,
    table: Table,
    output: Path,
    title: str | None,
) -> int:
    with console.warnings_as_notes(), console.progress():
        loaded = load_model(model)
        with step("writing the report"):
            n_rows = _write_report(console, loaded, model, table, output, title)
    console.say(f"written to {output}; open it in a browser")
    console.result({"output": str(output), "rows": n_rows})
    return 0


def _write_report(
    console: Console, loaded: Model, model: Path, table: Table, output: Path, title: str | None
) -> int:
    """Write the page; the number of rows it is about."""
    from cvxnn.cli.reproducing import command_of
    from cvxnn.reports import report

    command = None
    try:
        rows, held_out = loaded.training_rows(table), loaded.held_out_rows(table)
        command = command_of(loaded, table)
    except TableError:  # another table, which needs the same columns
        console.note(f"{table.source} is not the table that the model was trained on")
        table = table.with_missing(loaded.encoder.na)
        table = table.select(~table.missing(loaded.target.name))
        weights = loaded.target.weights(table)
        rows = loaded.encoder.encode(table)[0], loaded.target.values(table), weights
        held_out = None
    X, y, weights = rows
    facts = [
        ("model file", model.name),
        ("data", table.source),
        ("target", loaded.target.name),
        ("columns", ", ".join(column.name for column in loaded.encoder.columns)),
        ("trained with", ", ".join(f"{k} {v}" for k, v in (loaded.versions or {}).items())),
    ]
    with writing(output):
        report(
            loaded.estimator,
            X,
            y,
            output,
            sample_weight=weights,
            test=held_out if held_out is not None and len(held_out[1]) else None,
            title=title or f"{loaded.target.name}, from {table.source}",
            feature_names=loaded.encoder.features,
            notes="\n\n".join(loaded.notes) or None,
            facts=facts,
            columns=[one.name for one in loaded.encoder.columns for _ in one.features],
            command=command,
        )
    return len(y)
