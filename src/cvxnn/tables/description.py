"""A model as the contents of its file; `restoration.py` is the way back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from cvxnn.estimators.cross_validation import CrossValidated
from cvxnn.estimators.ensembles import ProvenMember
from cvxnn.modelfile import Content
from cvxnn.tables.histories import arrays_of
from cvxnn.tables.preparation import TRAINED

if TYPE_CHECKING:
    from cvxnn.tables.model import Model

PROOF = "bound_"  # begins the names of the arrays of a bound over all patterns


def content_of(model: Model) -> Content:
    """The network, the description in JSON and the arrays of a model."""
    estimator = model.estimator
    fitted = {
        "alpha": estimator.alpha_,
        "lambda_max": estimator.lambda_max_,
        "converged": bool(estimator.converged_),
        "n_iter": int(estimator.n_iter_),
        "n_patterns": int(estimator.n_patterns_),
        "n_dual_rows": int(model.bits.n),
    }
    if isinstance(estimator, CrossValidated):
        fitted["best_index"] = int(estimator.best_index_)
    description: dict[str, object] = {
        "estimator": type(estimator).__name__,
        "parameters": _data_only(_without_place(estimator.get_params())),
        "fitted": fitted,
        "certificate": vars(estimator.certificate_),
        "columns": model.encoder.to_json(),
        "na": list(model.encoder.na),
        "target": vars(model.target),
        "fingerprint": model.fingerprint,
        "scores": model.scores,
        "notes": list(model.notes),
        "versions": model.versions or {},
    }
    if not model.merged:
        description["merged"] = False
    if model.proof is not None:
        description["bound"] = model.proof.description()
    if model.members:
        description["members"] = [_described(member) for member in model.members]
    return Content(estimator.network_, description, _arrays(model))


def _described(member: ProvenMember) -> dict[str, object]:
    """One network of a mean, but for its arrays."""
    return {
        "alpha": member.alpha,
        "converged": bool(member.converged),
        "share": member.share,
        "n_neurons": member.network.n_neurons,
        "n_dual_rows": int(member.bits.n),
        "n_patterns": int(member.bits.shape[1]),
        "certificate": vars(member.certificate),
    }


def _without_place(parameters: dict[str, Any]) -> dict[str, Any]:
    """Without the device that it was trained on, which others may not have."""
    return {name: value for name, value in parameters.items() if name != "device"}


def _arrays(model: Model) -> dict[str, np.ndarray]:
    estimator = model.estimator
    arrays: dict[str, np.ndarray] = {
        "rows": model.rows.astype(np.uint8),
        **_proof_arrays(model.certified[0]),
        **arrays_of(estimator.history_),
    }
    if model.proof is not None:
        arrays |= {PROOF + name: part for name, part in model.proof.arrays().items()}
    if model.members:
        arrays |= _arrays_of_members(model)
    if isinstance(estimator, CrossValidated):
        arrays |= {
            "alphas": estimator.alphas_,
            "cv_scores": estimator.cv_scores_,
            "cv_neurons": estimator.cv_neurons_.astype(np.int64),
        }
    return arrays


def _arrays_of_members(model: Model) -> dict[str, np.ndarray]:
    """What makes the members of a mean from its network, and what proves all but the first."""
    n_trained = int(np.sum(model.rows == TRAINED))
    networks = [member.network for member in model.members]
    arrays = {"members_W2": np.concatenate([network.W2 for network in networks])}
    if model.network.b2 is not None:
        zero = np.zeros(model.network.n_outputs)
        biases = [zero if network.b2 is None else network.b2 for network in networks]
        arrays["members_b2"] = np.stack(biases)
    for k, member in enumerate(model.members[1:], start=1):
        own = _proof_arrays(member)
        if member.places is not None:
            own["places"] = np.bincount(member.places, minlength=n_trained).astype(np.uint8)
        arrays |= {member_prefix(k) + name: part for name, part in own.items()}
    return arrays


def member_prefix(k: int) -> str:
    """What begins the names of the arrays of the k-th member of a mean, for k > 0."""
    return f"member{k}_"


def _proof_arrays(member: ProvenMember) -> dict[str, np.ndarray]:
    """What the bounds of a network rest on."""
    arrays: dict[str, np.ndarray] = {
        "mask": member.bits.octets(),
        "dual": np.asarray(member.dual, dtype=np.float64),
    }
    numbers, multipliers = member.numbers, member.multipliers
    if numbers is not None:
        arrays |= {
            "row_weight": numbers.row_weight,
            "column_mean": numbers.columns.mean,
            "column_spread": numbers.columns.spread,
            "target_mean": numbers.targets.mean,
            "target_spread": numbers.targets.spread,
        }
        if numbers.factors is not None:
            arrays["column_factors"] = numbers.factors
        components = numbers.components
        if components is not None:
            arrays |= {
                "components": components.directions,
                "component_variance": np.array([components.held, components.total]),
            }
    if multipliers is not None:
        arrays |= {
            "multiplier_block": np.asarray(multipliers.block, dtype=np.int32),
            "multiplier_row": np.asarray(multipliers.row, dtype=np.int32),
            "multiplier_value": np.asarray(multipliers.value, dtype=np.float64),
        }
    return arrays


def _data_only(parameters: Mapping[str, object]) -> dict[str, object]:
    """The parameters that JSON can hold; others, such as a solver of the user's own, are left
    out."""
    found: dict[str, object] = {}
    for name, given in parameters.items():
        value = given.tolist() if hasattr(given, "tolist") else given
        with suppress(TypeError):
            json.dumps(value)
            found[name] = value
    return found
