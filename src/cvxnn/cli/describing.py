"""Models in words and in JSON: what training and changes made of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cvxnn.bounds.base import Bound
from cvxnn.certificates import Certificate
from cvxnn.cli.console import Console
from cvxnn.cli.files import writing
from cvxnn.cli.options import GENERATE
from cvxnn.cli.outcomes import INTERRUPTED, NOT_CONVERGED
from cvxnn.digits import text_above, text_below
from cvxnn.estimators.generating import found_no_more
from cvxnn.solvers.results import Status
from cvxnn.tables.model import Model
from cvxnn.tables.table import count


def exit_code(model: Model) -> int:
    """The exit code of a command that has trained this model."""
    if model.status is Status.INTERRUPTED:
        return INTERRUPTED
    return 0 if model.estimator.converged_ else NOT_CONVERGED


def say_model(console: Console, model: Model, hint: str = "") -> None:
    """What there is to say of a model; `hint` tells how to have another task."""
    estimator, certificate = model.estimator, model.certificate
    classes = model.target.classes
    what = f"classification, {len(classes)} classes" if classes else "regression"
    trained, held_out = int(np.sum(model.rows == 0)), int(np.sum(model.rows == 1))
    chosen = "chosen by cross-validation" if hasattr(estimator, "cv_scores_") else "given"
    rows = [
        ("task", f"{what} of {model.target.name!r}{hint}"),
        ("features", f"{len(model.encoder.features)}, from {_columns_of(model)}"),
        ("rows", f"{trained} trained on, {held_out} held out"),
        ("alpha", f"{estimator.alpha_:.4g}, {chosen}"),
        ("network", f"{_neurons(model)}, from {_patterns(model)}"),
        *_mean(model),
        *_components(model),
    ]
    rows += [(f"{label} rows", listed_scores(values)) for label, values in model.scores.items()]
    console.table([*rows, *bounds(certificate), *_over_all_patterns(model)])
    _say_proof(console, model)


def _columns_of(model: Model) -> str:
    return count(len(model.encoder.columns), "column")


def _components(model: Model) -> list[tuple[str, str]]:
    if model.numbers is None or model.numbers.components is None:
        return []
    return [("trained on", model.numbers.components.words)]


def _mean(model: Model) -> list[tuple[str, str]]:
    """That the network is a mean of several, and how well the least of them is trained."""
    if not model.members:
        return []
    worst = text_above(max(one.certificate.relative_gap for one in model.members), 2)
    return [
        ("mean of", f"{len(model.members)} networks, each certified on its own rows"),
        ("gaps", f"at most {worst}; below are the bounds of the first, which has all rows"),
    ]


def _neurons(model: Model) -> str:
    return count(model.network.n_neurons, "neuron")


def _patterns(model: Model) -> str:
    generated = "generated " if model.estimator.patterns == GENERATE else ""
    return count(model.estimator.n_patterns_, f"{generated}pattern")


def _over_all_patterns(model: Model) -> list[tuple[str, str]]:
    bound = model.estimator.bound_
    if not bound.over_all_patterns:
        return []
    lower, gap = text_below(bound.lower_bound, 8), text_above(bound.relative_gap, 2)
    return [("all networks", f"lower bound {lower}, relative gap {gap}, over {bound.scope}")]


def components_text(model: Model) -> str:
    """Which networks a bound is about, where it is not about all of them."""
    return "on these components of the columns " if model.estimator.n_components else ""


def _say_proof(console: Console, model: Model) -> None:
    certificate, limited = model.certificate, components_text(model)
    if model.members:
        console.say(
            f"The model predicts by the mean of {len(model.members)} networks. What follows is\n"
            "about the first, and holds for each on its own rows; nothing is proven of the mean."
        )
    if certificate.radius is not None:
        limited += f"and weights of a size up to {text_below(certificate.radius, 3)} "
    if model.estimator.bound_.over_all_patterns:
        console.say(
            f"Proven: no two-layer ReLU network {limited}of any width has an objective below the\n"
            "lower bound for all networks on the rows trained on. Not proven: anything about new "
            "rows."
        )
        return
    console.say(
        f"Proven: no network with these patterns {limited}has an objective below the lower bound\n"
        "on the rows trained on. Not proven: that other patterns are no better, nor anything about "
        "new rows."
    )
    if found_no_more(model.estimator):
        console.say("A search for patterns that pay found no more, which proves nothing.")


def bounds(certificate: Certificate) -> list[tuple[str, str]]:
    return [
        ("objective", text_above(certificate.objective, 8)),
        ("lower bound", text_below(certificate.lower_bound, 8)),
        ("relative gap", text_above(certificate.relative_gap, 2)),
    ]


def listed_scores(values: dict[str, float]) -> str:
    return ", ".join(f"{name.replace('_', '-')} {value:.4g}" for name, value in values.items())


def about(model: Model) -> dict[str, object]:
    """A model as JSON."""
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
        "bound": _bound(model.estimator.bound_),
        **_members(model),
        "scores": {part.replace(" ", "_"): values for part, values in model.scores.items()},
    }


def _members(model: Model) -> dict[str, object]:
    """The networks whose mean a model is, as JSON; nothing for a single one."""
    if not model.members:
        return {}
    members = [
        {
            "share": member.share,
            "rows": member.bits.n,
            "neurons": member.network.n_neurons,
            "alpha": member.alpha,
            "converged": bool(member.converged),
            "relative_gap": member.certificate.relative_gap,
            "scope": member.certificate.scope,
        }
        for member in model.members
    ]
    return {"mean_of": members}


def _bound(bound: Bound) -> dict[str, object]:
    """What is known of the training problem of the network itself, as JSON."""
    return {
        "objective": bound.objective,
        "lower_bound": bound.lower_bound,
        "relative_gap": bound.relative_gap,
        "scope": bound.scope,
        "all_patterns": bound.over_all_patterns,
        "proven": bound.proven,
    }


def say_change(console: Console, before: Model, after: Model, output: Path) -> None:
    """Write a model that was made from another one, and say what has changed."""
    with writing(output):
        after.save(output)
    neurons = f"{before.network.n_neurons} -> {after.network.n_neurons}"
    rows = [("neurons", neurons)]
    if before.estimator.alpha_ == after.estimator.alpha_:
        change = f"{before.certificate.objective:.8g} -> {after.certificate.objective:.8g}"
        rows.append(("objective", change))
    else:
        change = f"{after.certificate.objective:.8g}, at another alpha than before"
        rows.append(("objective", change))
    rows += bounds(after.certificate)[1:]
    rows.append(("bounds of", after.certificate.scope))
    for label, values in after.scores.items():
        rows.append(
            (f"{label} rows", f"{listed_scores(before.scores[label])} -> {listed_scores(values)}")
        )
    console.table(rows)
    console.say(f"written to {output}")
    console.result({"model": str(output), "before": about(before), "after": about(after)})
