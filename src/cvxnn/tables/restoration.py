"""Models from the contents of their files. A file may be damaged or forged, so every type, shape
and size is checked. Errors are KeyError, TypeError, ValueError and the like; the caller turns them
into one about the file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypedDict

import numpy as np
from numpy.typing import DTypeLike

from cvxnn import estimators
from cvxnn.bits import Bits
from cvxnn.bounds.base import Bound
from cvxnn.certificates import Certificate, Multipliers
from cvxnn.estimators.base import NetworkEstimator
from cvxnn.estimators.components import Components
from cvxnn.estimators.ensembles import ProvenMember, mean_of
from cvxnn.estimators.rows import Numbers, Scaling
from cvxnn.estimators.tasks import Classification
from cvxnn.modelfile import Content
from cvxnn.networks import TwoLayerNetwork
from cvxnn.tables.description import PROOF, member_prefix
from cvxnn.tables.encoding import Encoder
from cvxnn.tables.histories import history_of
from cvxnn.tables.preparation import LEFT_OUT, TRAINED, Target
from cvxnn.validation import check_flag, check_integer, check_number

ESTIMATORS = frozenset(
    f"{kind}{task}{cv}"
    for kind in ("ReLU", "GatedReLU")
    for task in ("Classifier", "Regressor")
    for cv in ("", "CV")
)


class Fields(TypedDict):
    """The fields of a `Model`."""

    estimator: NetworkEstimator
    encoder: Encoder
    target: Target
    rows: np.ndarray
    fingerprint: str
    bits: Bits
    dual: np.ndarray
    scores: dict[str, dict[str, float]]
    notes: tuple[str, ...]
    versions: dict[str, str]
    multipliers: Multipliers | None
    numbers: Numbers | None
    merged: bool
    proof: Bound | None
    members: tuple[ProvenMember, ...]


def restored(content: Content) -> Fields:
    """The fields of the model that a file describes."""
    described, arrays = content.description or {}, content.arrays
    network, fitted = content.network, described["fitted"]
    encoder = Encoder.from_json(described["columns"], described.get("na", []))
    target = Target.from_json(described["target"])
    outputs = 1 if target.classes is None or len(target.classes) == 2 else len(target.classes)
    shape = network.n_features, network.n_outputs
    if shape != (len(encoder.features), outputs):
        raise ValueError(
            f"columns and target make {len(encoder.features)} features and {outputs} outputs, the "
            f"network has {shape[0]} and {shape[1]}"
        )
    rows = _array(arrays, "rows", np.uint8, None)
    if rows.max(initial=0) > LEFT_OUT:
        raise ValueError("rows must hold 0, 1 and 2")
    components = described["parameters"].get("n_components")
    evidence = _restored_evidence(arrays, fitted, content, int(np.sum(rows == TRAINED)), components)
    n_rows = evidence["bits"].n
    if (n_rows == 0) != (described["fingerprint"] == ""):
        raise ValueError("a model of rows in several processes has no dual point, others have one")
    scores = {
        _text(part): {_text(name): float(value) for name, value in values.items()}
        for part, values in described["scores"].items()
    }
    proof = _restored_proof(described, arrays, n_rows, outputs)
    estimator = _restored_estimator(described, content, target)
    members = _restored_members(content, int(np.sum(rows == TRAINED)))
    if members:
        _check_first(members, estimator)
        estimator.members_ = tuple(member.plain for member in members)
    if proof is not None:
        estimator.bound_ = replace(proof, dual=np.zeros((0, outputs)), evidence=None)
    return {
        "estimator": estimator,
        "proof": proof,
        "members": members,
        "encoder": encoder,
        "target": target,
        "rows": rows.astype(int),
        "fingerprint": _text(described["fingerprint"]),
        **evidence,
        "merged": check_flag(described.get("merged", True), "merged"),
        "scores": scores,
        "notes": tuple(map(_text, described["notes"])),
        "versions": {_text(name): _text(number) for name, number in described["versions"].items()},
    }


class Evidence(TypedDict):
    """What the bounds of a network rest on: fields of a model, and of a member of a mean."""

    bits: Bits
    dual: np.ndarray
    numbers: Numbers | None
    multipliers: Multipliers | None


def _restored_evidence(
    arrays: dict[str, np.ndarray],
    fitted: dict[str, Any],
    content: Content,
    n_trained: int,
    n_components: int | None,
) -> Evidence:
    network = content.network
    n_rows = check_integer(fitted["n_dual_rows"], "n_dual_rows", minimum=0)
    n_patterns = check_integer(fitted["n_patterns"], "n_patterns", minimum=1)
    if n_rows > n_trained:
        raise ValueError("the dual point has more rows than there are training rows")
    mask = _array(arrays, "mask", np.uint8, (n_rows + 7) // 8, n_patterns)
    d, outputs = network.n_features, network.n_outputs
    return {
        "bits": Bits.of_octets(mask, n_rows),
        "dual": _finite(_array(arrays, "dual", np.float64, n_rows, outputs), "dual"),
        "numbers": _restored_numbers(arrays, n_rows, d, outputs, n_components),
        "multipliers": _restored_multipliers(arrays, 2 * n_patterns * outputs, n_rows),
    }


def _restored_members(content: Content, n_trained: int) -> tuple[ProvenMember, ...]:
    """The networks whose mean a file holds; none in files of one network."""
    described, network = content.description or {}, content.network
    members = described.get("members", [])
    if not members:
        return ()
    counts = [check_integer(one["n_neurons"], "n_neurons", minimum=0) for one in members]
    shape = sum(counts), network.n_outputs
    W2 = _finite(_array(content.arrays, "members_W2", np.float64, *shape), "members_W2")
    b2 = None
    if network.b2 is not None:
        shape = len(members), network.n_outputs
        b2 = _finite(_array(content.arrays, "members_b2", np.float64, *shape), "members_b2")
    found = tuple(
        _restored_member(k, members[k], own, content, n_trained)
        for k, own in enumerate(network.members(counts, W2, b2))
    )
    mean = mean_of(found)
    if any(not np.array_equal(getattr(mean, n), getattr(network, n)) for n in ("W2", "b2")):
        raise ValueError("the network is not the mean of its members")
    return found


def _check_first(members: tuple[ProvenMember, ...], estimator: NetworkEstimator) -> None:
    """What a file says of the model as a whole is what it says of the first member."""
    first = members[0]
    if first.certificate != estimator.certificate_ or first.alpha != estimator.alpha_:
        raise ValueError("the certificate is not that of the first of the networks")
    if estimator.converged_ != all(member.converged for member in members):
        raise ValueError("converged is not what is said of the networks")


def _restored_member(
    k: int, described: dict[str, Any], network: TwoLayerNetwork, content: Content, n_trained: int
) -> ProvenMember:
    prefix, parameters = member_prefix(k), (content.description or {})["parameters"]
    arrays = content.arrays
    if k > 0:
        arrays = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
    places = None
    if k > 0 and "places" in arrays:
        trained = _array(arrays, "places", np.uint8, n_trained)
        if trained.max(initial=0) > 1:
            raise ValueError("places must hold 0 and 1")
        places = np.flatnonzero(trained)
    n_components = parameters.get("n_components")
    return ProvenMember(
        network=network,
        certificate=_restored_certificate(described["certificate"]),
        alpha=check_number(described["alpha"], "alpha", minimum=0),
        converged=check_flag(described["converged"], "converged"),
        share=check_number(described["share"], "share", minimum=0, strict=True),
        places=places,
        **_restored_evidence(arrays, described, content, n_trained, n_components),
    )


def _restored_estimator(
    described: dict[str, Any], content: Content, target: Target
) -> NetworkEstimator:
    if described["estimator"] not in ESTIMATORS:
        raise ValueError(f"there is no estimator {described['estimator']!r}")
    parameters = dict(described["parameters"])
    parameters.pop("average", None)  # of versions before 9, whose files were never means
    estimator: NetworkEstimator = getattr(estimators, described["estimator"])(**parameters)
    estimator._validate_params()
    if (target.classes is not None) != isinstance(estimator, Classification):
        raise ValueError("the estimator does not match the target")
    fitted, network = described["fitted"], content.network
    certificate = _restored_certificate(described["certificate"])
    estimator.__dict__.update(
        network_=network,
        certificate_=certificate,
        bound_=Bound.of_certificate(certificate),
        alpha_=check_number(fitted["alpha"], "alpha", minimum=0),
        column_factors_=content.arrays.get("column_factors"),
        categories_=None,  # the encoder of tables has its own
        lambda_max_=check_number(fitted["lambda_max"], "lambda_max", minimum=0),
        converged_=check_flag(fitted["converged"], "converged"),
        n_iter_=check_integer(fitted["n_iter"], "n_iter", minimum=0),
        n_patterns_=fitted["n_patterns"],
        history_=history_of(content.arrays),
        n_features_in_=network.n_features,
    )
    if target.classes is not None:
        estimator.classes_ = np.array(target.classes)
    if described["estimator"].endswith("CV"):
        estimator.__dict__.update(_restored_choice(fitted, content.arrays))
    return estimator


def _restored_certificate(described: dict[str, Any]) -> Certificate:
    certificate = Certificate(**{**described, "caveats": tuple(described.get("caveats", ()))})
    for text in (certificate.scope, *certificate.caveats):
        _text(text)
    for name, value in vars(certificate).items():
        optional = name in ("network_objective", "radius") and value is None
        if name not in ("scope", "caveats") and not optional:
            check_number(value, name)
    return certificate


def _restored_proof(
    described: dict[str, Any], arrays: dict[str, np.ndarray], n: int, outputs: int
) -> Bound | None:
    """The bound over all patterns, which files before version 6 do not have."""
    if "bound" not in described:
        return None
    own = {
        name.removeprefix(PROOF): part for name, part in arrays.items() if name.startswith(PROOF)
    }
    bound = Bound.of_parts(described["bound"], own)
    if bound.dual.shape != (n, outputs) or not bound.over_all_patterns:
        raise ValueError("the bound over all patterns does not fit the model")
    return bound


def _restored_numbers(
    arrays: dict[str, np.ndarray], n: int, n_features: int, outputs: int, n_components: int | None
) -> Numbers | None:
    """The numbers that define the program; None for files of version 3, which have none."""
    if "row_weight" not in arrays:
        return None
    lengths = {
        "row_weight": n,
        "column_mean": n_features,
        "column_spread": n_features,
        "target_mean": outputs,
        "target_spread": outputs,
    }
    if "column_factors" in arrays:
        lengths["column_factors"] = n_features
    found = {k: _finite(_array(arrays, k, np.float64, m), k) for k, m in lengths.items()}
    for name in found.keys() - {"column_mean", "target_mean"}:
        if not np.all(found[name] > 0):
            raise ValueError(f"{name} must be positive")
    return Numbers(
        found["row_weight"],
        Scaling(found["column_mean"], found["column_spread"]),
        Scaling(found["target_mean"], found["target_spread"]),
        None if n_components is None else _restored_components(arrays, n_features, n_components),
        found.get("column_factors"),
    )


def _restored_components(arrays: dict[str, np.ndarray], n_features: int, count: int) -> Components:
    directions = _array(arrays, "components", np.float64, n_features, count)
    held, total = _finite(
        _array(arrays, "component_variance", np.float64, 2), "component_variance"
    ).tolist()
    if not 0 <= held <= total:
        raise ValueError("component_variance must be the variance held, and that of all columns")
    return Components(_finite(directions, "components"), held, total)


def _restored_multipliers(
    arrays: dict[str, np.ndarray], n_blocks: int, n: int
) -> Multipliers | None:
    if "multiplier_value" not in arrays:
        return None
    value = _finite(_array(arrays, "multiplier_value", np.float64, None), "multiplier_value")
    block, row = (
        _array(arrays, name, np.int32, len(value))
        for name in ("multiplier_block", "multiplier_row")
    )
    for name, index, length in (("block", block, n_blocks), ("row", row, n)):
        if np.any(index < 0) or np.any(index >= length):
            raise ValueError(f"multiplier_{name} is out of range")
    return Multipliers(block.astype(int), row.astype(int), value)


def _restored_choice(
    fitted: dict[str, Any], arrays: dict[str, np.ndarray]
) -> dict[str, np.ndarray | int | float]:
    """The attributes that cross-validation leaves on an estimator."""
    alphas = _finite(_array(arrays, "alphas", np.float64, None), "alphas")
    cv_scores = _array(arrays, "cv_scores", np.float64, None, len(alphas))
    best = check_integer(fitted["best_index"], "best_index", minimum=0)
    return {
        "alphas_": alphas,
        "cv_scores_": cv_scores,
        "cv_neurons_": _array(arrays, "cv_neurons", np.int64, *cv_scores.shape),
        "best_index_": best,
        "best_score_": float(np.mean(cv_scores[:, best])),
    }


def _array(
    arrays: dict[str, np.ndarray], name: str, dtype: DTypeLike, *shape: int | None
) -> np.ndarray:
    """An array of a file, if it has this dtype and this shape; None stands for any length."""
    array = arrays[name]
    fits = array.ndim == len(shape) and all(
        wanted in (None, length) for wanted, length in zip(shape, array.shape, strict=True)
    )
    if array.dtype != dtype or not fits:
        raise ValueError(f"{name} has dtype {array.dtype} and shape {array.shape}")
    return array


def _finite(array: np.ndarray, name: str) -> np.ndarray:
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinity")
    return array


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value
