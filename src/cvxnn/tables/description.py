"""A model as the contents of its file; `restoration.py` is the way back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from cvxnn.estimators.cross_validation import CrossValidated
from cvxnn.modelfile import Content
from cvxnn.tables.histories import arrays_of

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
    return Content(estimator.network_, description, _arrays(model))


def _without_place(parameters: dict[str, Any]) -> dict[str, Any]:
    """Without the device that it was trained on, which others may not have."""
    return {name: value for name, value in parameters.items() if name != "device"}


def _arrays(model: Model) -> dict[str, np.ndarray]:
    estimator = model.estimator
    arrays: dict[str, np.ndarray] = {
        "rows": model.rows.astype(np.uint8),
        "mask": model.bits.octets(),
        "dual": np.asarray(model.dual, dtype=np.float64),
        **arrays_of(estimator.history_),
    }
    if model.numbers is not None:
        arrays |= {
            "row_weight": model.numbers.row_weight,
            "column_mean": model.numbers.columns.mean,
            "column_spread": model.numbers.columns.spread,
            "target_mean": model.numbers.targets.mean,
            "target_spread": model.numbers.targets.spread,
        }
        if model.numbers.factors is not None:
            arrays["column_factors"] = model.numbers.factors
        components = model.numbers.components
        if components is not None:
            arrays |= {
                "components": components.directions,
                "component_variance": np.array([components.held, components.total]),
            }
    if model.multipliers is not None:
        arrays |= {
            "multiplier_block": np.asarray(model.multipliers.block, dtype=np.int32),
            "multiplier_row": np.asarray(model.multipliers.row, dtype=np.int32),
            "multiplier_value": np.asarray(model.multipliers.value, dtype=np.float64),
        }
    if model.proof is not None:
        arrays |= {PROOF + name: part for name, part in model.proof.arrays().items()}
    if isinstance(estimator, CrossValidated):
        arrays |= {
            "alphas": estimator.alphas_,
            "cv_scores": estimator.cv_scores_,
            "cv_neurons": estimator.cv_neurons_.astype(np.int64),
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
