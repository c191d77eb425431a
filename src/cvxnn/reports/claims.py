"""What a certificate proves and what it does not, in plain sentences."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_FLOOR

from cvxnn.certificates import Certificate
from cvxnn.estimators.base import NetworkEstimator
from cvxnn.estimators.generating import found_no_more
from cvxnn.estimators.tasks import Classification
from cvxnn.networks import GatedReLUNetwork
from cvxnn.reports.numbers import at_most, bounds, count, gap, number
from cvxnn.reports.program import Program, has_members, loss_name

ROUNDING = 1e-12  # a relative gap that is not worth a number
_LOSSES = {
    "logistic": "the mean logistic loss",
    "softmax": "the mean softmax loss (cross-entropy)",
    "squared": "half the mean squared error",
    "huber": "the mean Huber loss",
}


@dataclass(frozen=True)
class Claims:
    """verdict : the result in one sentence.
    objective : what is minimised, in words.
    proven, not_proven : statements, each a heading and a sentence or two."""

    verdict: str
    objective: str
    proven: tuple[tuple[str, str], ...]
    not_proven: tuple[tuple[str, str], ...]


def claims_of(estimator: NetworkEstimator, program: Program, held_out: bool) -> Claims:
    return Claims(
        _verdict(estimator),
        _objective(estimator),
        tuple(_proven(estimator, program)),
        tuple(_not_proven(estimator, held_out)),
    )


def is_gated(estimator: NetworkEstimator) -> bool:
    return isinstance(estimator.network_, GatedReLUNetwork)


def _verdict(estimator: NetworkEstimator) -> str:
    found = [_over_its_patterns(estimator), *_over_all_patterns(estimator)]
    if has_members(estimator):
        found.append(
            f"This is about the first of the {len(estimator.members_)} networks whose mean the "
            "model predicts by; the others are certified in the same way, the mean is not."
        )
    return " ".join(found)


def _over_all_patterns(estimator: NetworkEstimator) -> list[str]:
    """The result over all patterns in a sentence, where there is one."""
    bound = estimator.bound_
    if not bound.over_all_patterns:
        return []
    limit = "" if estimator.n_components is None else f" on {_components(estimator)}"
    return [
        f"Of all two-layer ReLU networks{limit}, whatever their patterns and their width, none has "
        f"an objective more than {at_most(bound.relative_gap)} lower."
    ]


def _over_its_patterns(estimator: NetworkEstimator) -> str:
    certificate = estimator.certificate_
    if certificate.lower_bound <= 0 < certificate.objective:
        return (
            "Nothing is proven that does not hold for every network: the lower bound is 0. A "
            "larger alpha or more iterations would help."
        )
    limit = "" if estimator.n_components is None else f" on {_components(estimator)}"
    if certificate.radius is not None:
        limit += f" and weights of a size up to {_radius(certificate)}"
    if certificate.relative_gap <= ROUNDING:
        return (
            "Trained to a proven optimum over its patterns: up to rounding, no network with these "
            f"patterns{limit} does better."
        )
    share = at_most(certificate.relative_gap)
    if estimator.converged_:
        return (
            "Trained to a proven optimum over its patterns: no network with these "
            f"patterns{limit} has an objective more than {share} lower."
        )
    return (
        "Training stopped before the tolerance was met. Even so, it is proven that no network "
        f"with its patterns{limit} has an objective more than {share} lower."
    )


def _components(estimator: NetworkEstimator) -> str:
    return f"the {count(estimator.n_components or 0, 'leading principal component')}"


def _objective(estimator: NetworkEstimator) -> str:
    scaled = "columns of zero mean and unit variance" if estimator.scale else "the columns as given"
    if estimator.scale and not estimator.fit_intercept:
        scaled = "columns of unit mean square"
    if getattr(estimator, "column_factors_", None) is not None:
        scaled += ", multiplied by what a first fit has learned about them"
    if estimator.n_components is not None:
        scaled = f"{_components(estimator)}, {scaled}"
    loss = _LOSSES[loss_name(estimator)]
    if not isinstance(estimator, Classification) and estimator.scale:
        loss += ", of targets scaled in the same way,"
    return (
        f"The objective is {loss} on the training rows plus alpha = "
        f"{number(estimator.alpha_)} times the size of the weights, "
        f"½ Σ (‖W₁‖² + ‖W₂‖₁²) over the neurons, on {scaled}."
    )


def _proven(estimator: NetworkEstimator, program: Program) -> list[tuple[str, str]]:
    certificate, gated = estimator.certificate_, is_gated(estimator)
    low, high = bounds(certificate.lower_bound, certificate.objective)
    patterns = count(estimator.n_patterns_, "activation pattern")
    kind = (
        f"gated ReLU network with the gates of the {patterns}"
        if gated
        else f"ReLU network whose neurons all have one of the {patterns}"
    )
    if estimator.n_components is not None:
        kind += f", on {_components(estimator)},"
    whatever = "whatever its width and weights"
    if certificate.radius is not None:
        whatever = f"for weights of a size up to {_radius(certificate)}"
    found = [
        (
            "A lower bound.",
            f"Every two-layer {kind} has, {whatever}, an objective "
            f"of at least {low}. That is the value of a dual point of the convex program "
            f"“{certificate.scope}”. It holds in real arithmetic for the numbers as they are "
            "stored, and does not depend on how the solver found the point.",
        ),
        (
            "An upper bound.",
            f"This network has the objective {high}, so the optimal value of the program lies "
            f"between the two. The relative gap is {gap(certificate.relative_gap)}; the "
            f"tolerance is {number(estimator.tol, 2)}.",
        ),
    ]
    if gated:
        found.append(
            (
                "The non-convex problem.",
                "With these gates, the convex program and training the network itself have the "
                "same optimal value, so both bounds hold there as well.",
            )
        )
    else:
        own = certificate.network_objective
        own = certificate.objective if own is None else own
        found.append(
            (
                "The non-convex problem.",
                f"Measured on the network itself, the objective is {number(own, 6)}. This is an "
                "upper bound for training over all patterns: the best of all ReLU networks has "
                "this value or a smaller one.",
            )
        )
    bound = estimator.bound_
    if bound.over_all_patterns:
        low, high = bounds(bound.lower_bound, bound.objective)
        columns = "on these components of the columns " if estimator.n_components else ""
        proof = "It holds in real arithmetic." if bound.proven else "It holds up to rounding."
        found.append(
            (
                "All patterns.",
                f"No two-layer ReLU network {columns}of any width has an objective below {low}, "
                f"and this one has {high}: a relative gap of {gap(bound.relative_gap)} over "
                f"{bound.scope}. {proof}",
            )
        )
    if certificate.radius is not None:
        found.append(
            (
                "Without a penalty",
                f"the lower bound holds among weights whose norms sum to at most "
                f"{_radius(certificate)}, each column in units of its largest entry.",
            )
        )
    found.append(_recomputed(estimator, program))
    return found


def _recomputed(estimator: NetworkEstimator, program: Program) -> tuple[str, str]:
    value = number(program.objective, 6)
    if program.agrees:
        return (
            "Checked here.",
            f"Recomputed for this page from the network and the training rows, the objective is "
            f"{value}: the certified one.",
        )
    return (
        "Not checked here.",
        f"Recomputed from the network and the rows given for this page, the objective is {value}, "
        f"not the certified {number(estimator.certificate_.objective, 6)}: these are not the "
        "training rows, or their weights were different in training.",
    )


def _not_proven(estimator: NetworkEstimator, held_out: bool) -> list[tuple[str, str]]:
    searched = ""
    if found_no_more(estimator):
        searched = " A search for patterns that pay found no more, which proves nothing."
    patterns = count(estimator.n_patterns_, "pattern was", "patterns were")
    other = (
        "Other gates might do better."
        if is_gated(estimator)
        else f"The lower bound does not hold for ReLU networks with other patterns.{searched}"
    )
    others = [
        (
            "That other patterns could not do better.",
            f"{patterns} used, of very many. {other}",
        )
    ]
    shown = (
        "The held-out rows on this page are an estimate, not a bound."
        if held_out
        else "No held-out rows were given for this page."
    )
    return [
        *([] if estimator.bound_.over_all_patterns else others),
        *_about_the_mean(estimator),
        (
            "Anything about new rows.",
            f"The certificate is about the training objective, not about generalisation. {shown}",
        ),
        (
            "That this is the right problem.",
            "Columns, loss and alpha were chosen, not derived.",
        ),
        *_about_rounding(estimator.certificate_),
    ]


def _about_the_mean(estimator: NetworkEstimator) -> list[tuple[str, str]]:
    if not has_members(estimator):
        return []
    worst = max(member.certificate.relative_gap for member in estimator.members_)
    return [
        (
            "That the mean of networks is optimal.",
            f"The model predicts by the mean of {len(estimator.members_)} networks. The bounds are "
            "about the first of them, which has all rows. The relative gap of each is at most "
            f"{gap(worst)}, on the rows that it was trained on; nothing is proven of the mean.",
        )
    ]


def _about_rounding(certificate: Certificate) -> list[tuple[str, str]]:
    """What holds only up to rounding; nothing if both bounds are proven."""
    if certificate.proven:
        return []
    return [("That rounding errors do no harm.", "; ".join(certificate.caveats) + ".")]


def _radius(certificate: Certificate) -> str:
    return number(certificate.radius, 3, ROUND_FLOOR)
