"""Certificates, checked by another route.

`verify` recomputes what a certificate claims from the arrays of the problem alone: plain NumPy in
float64, one product a pattern, and SciPy's non-negative least squares for the cones. It shares no
code with operators, losses, penalties, cones, kernels or solvers, so that none of them vouches
for itself:

    objective     P = f(sum_i D_i X U_i) + g(U), for C-ReLU with V_i - W_i and g of both
    lower bound   D = max_tau -f*(tau Theta) - g*(tau M'Theta) with tau Theta dual feasible
    cones         min_j x~_j v / ||x_j|| >= 0, and ||Pi_K(c)|| = min_{gamma >= 0} ||c + X~'gamma||
    network       f(sum_i (X V_i)_+ - (X W_i)_+) + g, which knows no patterns

With an output bias f is min_b f(. + 1 b'), found by SciPy's root finders, and the columns of Theta
have to sum to zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize, nnls
from scipy.sparse import issparse
from scipy.special import expit, huber, logsumexp, softmax, xlogy

from cvxnn.arrays import to_numpy
from cvxnn.certificates import Certificate
from cvxnn.networks import GatedReLUNetwork, TwoLayerNetwork
from cvxnn.problems import ConvexProblem
from cvxnn.solvers import Solution
from cvxnn.validation import check_array

# How far a claim may be off, relative to the objective. A bound depends on projections as well.
OBJECTIVE_SLACK, BOUND_SLACK = 1e-9, 1e-7
# Distance from a cone that counts as rounding, relative to the largest weight.
FEASIBILITY, SINGLE_FEASIBILITY = 1e-8, 1e-5
# Distance from the edge of a neuron's half-space that is rounding, relative to the terms of a sum.
EDGE = 1e-7
# What counts as zero in the equations of the dual, relative to their terms: M'Theta = 0 at lam = 0,
# columns of Theta that sum to zero with an output bias, rows for the softmax loss.
DUAL_FEASIBILITY = 1e-9


@dataclass(frozen=True)
class Verification:
    """What `verify` found.

    Attributes
    ----------
    objective, lower_bound, zero_objective, max_violation, network_objective : what a
        `Certificate` has under these names, recomputed.
    scope : the problem that they are about.
    checked : what was recomputed, and how, in words.
    differences : the claims of the certificate that were not confirmed, in words.
    """

    objective: float
    lower_bound: float
    zero_objective: float
    max_violation: float
    network_objective: float | None
    scope: str
    checked: tuple[str, ...]
    differences: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether every claim of the certificate was confirmed."""
        return not self.differences

    @property
    def relative_gap(self) -> float:
        """(objective - lower_bound) / max(objective, 1e-8 zero_objective), with 0/0 = 0."""
        gap = max(self.objective - self.lower_bound, 0.0)
        return gap / self._scale if gap > 0 else 0.0

    @property
    def _scale(self) -> float:
        return max(self.objective, 1e-8 * self.zero_objective)

    def __str__(self) -> str:
        lines = [
            f"certificate {'confirmed' if self.agrees else 'NOT confirmed'}: {self.scope}",
            f"found: objective {self.objective:.10g}, lower bound {self.lower_bound:.10g}, "
            f"relative gap {self.relative_gap:.2g}",
            *(f"checked: {text}" for text in self.checked),
            *(f"differs: {text}" for text in self.differences),
        ]
        return "\n".join(lines)


def verify(solution: Solution) -> Verification:
    """Check a solution's certificate by a route that shares no code with the one it came by.

    Objective, lower bound, distances from the cones and the value of the ReLU network are
    recomputed in float64 from the problem's data, the weights and the dual candidate. The data are
    those the problem is posed on, with column of ones and unit-norm columns where asked for.

    The certificate is confirmed if the weights are in their cones up to rounding, the objective is
    not above the claimed one by more than 1e-9 of it, and the bound that the dual candidate proves
    not below the claimed one by more than 1e-7 of the objective. A candidate that does not satisfy
    the equations of an output bias or of the softmax loss to 1e-9 proves no more than its zero
    multiple. At lam = 0, where rounding leaves no exact dual point, the bound is that of the
    candidate's part outside the range of M.

    Meant for n up to a few thousand: the cost is that of two passes over the data in NumPy, and
    for C-ReLU non-negative least squares with a d x n matrix, at most two for each pattern and
    class. At lam = 0 it is a QR factorization of M', of p d n^2 operations, and an n x n singular
    value decomposition instead.
    """
    if not isinstance(solution, Solution):
        raise TypeError(f"solution must be a Solution, got {type(solution).__name__}")
    program = _program(solution.problem)
    U, single = _weights(program, solution.weights)
    lower_bound, how = _lower_bound(program, _dual(program, solution.dual))
    penalty = program.lam * _penalty(program, U)
    network_objective = None
    checked = ["objective, by one product a pattern", f"lower bound, {how}"]
    if program.cones:
        network_objective = _loss(program, _network_predictions(program, U)) + penalty
        checked += ["cones, row by row", "the ReLU network's own objective, without patterns"]
    found = Verification(
        objective=_loss(program, _predictions(program, U)) + penalty,
        lower_bound=lower_bound,
        zero_objective=_loss(program, np.zeros_like(program.Y)),
        max_violation=_violation(program, U),
        network_objective=network_objective,
        scope=solution.problem.scope,
        checked=tuple(checked),
    )
    feasible = (SINGLE_FEASIBILITY if single else FEASIBILITY) * np.abs(U).max()
    return replace(found, differences=_differences(found, solution.certificate, feasible))


def verify_network(
    network: TwoLayerNetwork, problem: ConvexProblem, dual: Any, certificate: Certificate
) -> Verification:
    """Check, by the same route, what a certificate says of a network: that its objective, measured
    on its own predictions, is not above the claimed one, and that the dual candidate proves the
    claimed lower bound on that of `problem`, and that this problem is over the patterns which its
    neurons have: others could have any bounds. The network is one for the data of the problem, and
    need not have come from a solver: pruned, improved, or read from a file.
    """
    program = _program(problem)
    lower_bound, how = _lower_bound(program, _dual(program, dual))
    X = program.X[:, : network.n_features]  # without the column of ones
    pre = X @ network.W1.T + (0.0 if network.b1 is None else network.b1)
    if isinstance(network, GatedReLUNetwork):
        gate = X @ network.gates + network.gate_bias
        hidden = np.where(gate > 0 if network.strict else gate >= 0, pre, 0.0)
    else:
        hidden = np.maximum(pre, 0.0)
    Z = hidden @ network.W2 + (0.0 if network.b2 is None else network.b2)
    first = np.sum(network.W1**2) + (0.0 if network.b1 is None else np.sum(network.b1**2))
    second = np.sum(np.sum(np.abs(network.W2), axis=1) ** 2)
    objective = float(
        np.sum(program.share * _TERMS[program.loss](Z, program.Y, program.delta))
        + program.lam / 2 * (first + second)
    )
    found = Verification(
        objective=objective,
        lower_bound=lower_bound,
        zero_objective=_loss(program, np.zeros_like(program.Y)),
        max_violation=0.0,
        network_objective=objective,
        scope=problem.scope,
        checked=(
            "the network's own objective, on its predictions",
            f"lower bound, {how}",
            "patterns of the neurons, row by row",
        ),
    )
    # networks of files were taken to raw columns and back
    claim = replace(
        certificate, objective=certificate.objective * (1 + 1e-9), network_objective=None
    )
    differences = _differences(found, claim, 0.0)
    strangers = _strangers(network, X, program.mask)
    if strangers:
        differences += (f"patterns: {strangers} neurons of the network have none of these",)
    return replace(found, differences=differences)


def _strangers(network: TwoLayerNetwork, X: np.ndarray, mask: np.ndarray) -> int:
    """How many neurons have a pattern on X that is none of the mask's. Rows that are on the edge,
    up to rounding, are both on and off."""
    directions, bias = network.W1, np.zeros(1) if network.b1 is None else network.b1
    if isinstance(network, GatedReLUNetwork):
        directions, bias = network.gates.T, network.gate_bias
    heights = X @ directions.T + bias
    edge = EDGE * (np.abs(X) @ np.abs(directions.T) + np.abs(bias))
    on, off = (heights > edge).astype(float), (heights < -edge).astype(float)
    wrong = on.T @ ~mask + off.T @ mask  # rows, of each neuron and pattern
    return int(np.sum(wrong.min(axis=1) > 0))


def _differences(found: Verification, claim: Certificate, feasible: float) -> tuple[str, ...]:
    """What is not as the certificate has it. A claim that is weaker than the truth is true; one
    that is NaN is not, since comparisons with it fail."""
    slack, bound_slack = OBJECTIVE_SLACK * found._scale, BOUND_SLACK * found._scale
    expected = {
        "objective": found.objective <= claim.objective + slack,
        "lower_bound": found.lower_bound >= claim.lower_bound - bound_slack,
        "zero_objective": abs(found.zero_objective - claim.zero_objective)
        <= OBJECTIVE_SLACK * found.zero_objective,
        "max_violation": found.max_violation <= feasible,
    }
    if found.network_objective is not None and claim.network_objective is not None:
        expected["network_objective"] = found.network_objective <= claim.network_objective + slack
    differences = [
        f"{name}: claimed {getattr(claim, name):.10g}, found {getattr(found, name):.10g}"
        + _MEANING.get(name, "")
        for name, holds in expected.items()
        if not holds
    ]
    if found.lower_bound > found.objective + bound_slack:
        differences.append("the lower bound found is above the objective found: one bounds nothing")
    if claim.scope != found.scope:
        differences.append(f"scope: claimed {claim.scope!r}, found {found.scope!r}")
    return tuple(differences)


_MEANING = {
    "lower_bound": ", which is what the dual candidate proves",
    "max_violation": ": outside the cones an objective bounds nothing",
}


# The norms of the groups that a penalty sums, by class where groups do not couple classes.
_GROUP_NORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "neuron": lambda U: np.linalg.norm(U, axis=1),
    "feature": lambda U: np.linalg.norm(U, axis=(0, 2))[:, None],
    "l1": lambda U: np.abs(U).reshape(-1, U.shape[2]),
}


@dataclass(frozen=True)
class _Program:
    """A problem as plain arrays."""

    X: np.ndarray  # (n, d)
    row_norms: np.ndarray  # (n, 1), 1 for zero rows, which constrain nothing
    mask: np.ndarray  # (n, p)
    Y: np.ndarray  # (n, C)
    share: np.ndarray  # (n, 1), of a row in the loss
    delta: float  # of a huber
    loss: str
    output_bias: bool
    lam: float
    penalty: str
    cones: bool


def _program(problem: ConvexProblem) -> _Program:
    loss = problem.loss_name
    penalty = problem.penalty_name if problem.lam > 0 else "none"
    if loss not in _TERMS:
        raise NotImplementedError(f"verify does not know the loss {loss!r}")
    if penalty not in (*_GROUP_NORMS, "l2", "none"):
        raise NotImplementedError(f"verify does not know the penalty {penalty!r}")
    X = problem.operator.X
    X = (X.toarray() if issparse(X) else to_numpy(X)).astype(np.float64)
    Y = to_numpy(problem.loss.Y).astype(np.float64)
    weight = to_numpy(problem.loss.row_weight)  # their scale is not trusted
    outputs = 1 if loss == "softmax" else Y.shape[1]
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return _Program(
        X=X,
        row_norms=np.where(norms > 0, norms, 1.0),
        mask=problem.patterns.mask,
        Y=Y,
        share=weight / (weight.sum() * outputs),
        delta=getattr(getattr(problem.loss, "base", problem.loss), "delta", np.inf),
        loss=loss,
        output_bias=problem.output_bias,
        lam=problem.lam,
        penalty=penalty,
        cones=problem.kind == "C-ReLU",
    )


# The terms of each loss, of which a row's share is summed.
_TERMS: dict[str, Callable[[np.ndarray, np.ndarray, float], np.ndarray]] = {
    "squared": lambda Z, Y, _: (Z - Y) ** 2 / 2,
    "huber": lambda Z, Y, delta: huber(delta, Z - Y),
    "logistic": lambda Z, Y, _: np.logaddexp(0.0, -Y * Z),
    "softmax": lambda Z, Y, _: (
        logsumexp(Z, axis=1, keepdims=True) - np.sum(Y * Z, axis=1, keepdims=True)
    ),
}


def _loss(program: _Program, Z: np.ndarray) -> float:
    """f(Z), or its minimum over the output bias."""
    if program.output_bias:
        Z = Z + _best_bias(program, Z)
    return float(np.sum(program.share * _TERMS[program.loss](Z, program.Y, program.delta)))


def _best_bias(program: _Program, Z: np.ndarray) -> np.ndarray:
    """(C,). An error of it matters in second order only."""
    R, share = program.Y - Z, program.share
    if program.loss == "squared":
        mean = np.sum(share * R, axis=0) / share.sum()
        return np.clip(mean, R.min(axis=0), R.max(axis=0))  # rounding may take it outside
    if program.loss == "softmax":
        return _softmax_bias(program, Z)
    biases = []
    for y, z, r in zip(program.Y.T, Z.T, R.T, strict=True):
        if program.loss == "huber":
            slope = partial(_huber_slope, r=r, share=share[:, 0], delta=program.delta)
            low, high = r.min(), r.max()
        else:
            slope = partial(_logistic_slope, y=y, z=z, share=share[:, 0])
            low, high = -z.max() - 700, 700 - z.min()
        biases.append(low if low == high else brentq(slope, low, high, xtol=1e-12))
    return np.array(biases)


def _huber_slope(b: float, r: np.ndarray, share: np.ndarray, delta: float) -> float:
    return float(share @ np.clip(b - r, -delta, delta))


def _logistic_slope(b: float, y: np.ndarray, z: np.ndarray, share: np.ndarray) -> float:
    return -float(share @ (y * expit(-y * (z + b))))


def _softmax_bias(program: _Program, Z: np.ndarray) -> np.ndarray:
    def value_and_slope(b: np.ndarray) -> tuple[float, np.ndarray]:
        terms = _TERMS["softmax"](Z + b, program.Y, 0.0)
        slope = np.sum(program.share * (softmax(Z + b, axis=1) - program.Y), axis=0)
        return float(np.sum(program.share * terms)), slope

    b = -np.mean(Z, axis=0)
    for _ in range(3):  # from where it stopped, since its idea of the curvature may be worn out
        options = {"maxiter": 1000, "ftol": 0.0, "gtol": 1e-13}
        b = minimize(value_and_slope, b, jac=True, method="L-BFGS-B", options=options).x
    return b


def _best_multiple(
    program: _Program, Theta: np.ndarray, limit: np.ndarray, quadratic: np.ndarray | float = 0.0
) -> tuple[np.ndarray, float]:
    """A tau with |tau| <= limit and tau Theta in the domain of f*, and the bound that it gives,
    -f*(tau Theta) - tau^2 quadratic. It is the best one for quadratics, and the longest up to 1
    for likelihoods; one number a class, or one for all where `limit` has one entry."""
    if not _balanced(program, Theta):
        limit = np.zeros_like(limit)
    if program.loss in ("squared", "huber"):
        return _parabola(program, Theta, limit, quadratic)
    q = Theta / program.share
    if program.loss == "logistic":
        q = -program.Y * q
        longest = np.where(q.min(axis=0) < 0, 0.0, 1 / np.maximum(q.max(axis=0), 1.0))
        tau = np.minimum(limit, longest if len(limit) > 1 else longest.min())
        terms = -xlogy(tau * q, tau * q) - xlogy(1 - tau * q, 1 - tau * q)
    else:
        # others allow tau = 1
        longest = np.divide(program.Y, -q, out=np.ones_like(q), where=program.Y + q < 0)
        tau = np.full_like(limit, min(limit.min(), longest.min()))
        q = np.maximum(program.Y + tau * q, 0.0)
        terms = -xlogy(q, q)
    return tau, float(np.sum(program.share * terms) - np.sum(tau**2 * quadratic))


def _balanced(program: _Program, Theta: np.ndarray) -> bool:
    """Whether the equations of the dual hold: columns that sum to zero with an output bias, and
    rows for the softmax loss."""
    axes = [0] * program.output_bias + [1] * (program.loss == "softmax")
    return all(
        np.all(np.abs(Theta.sum(axis)) <= DUAL_FEASIBILITY * np.abs(Theta).sum(axis))
        for axis in axes
    )


def _parabola(
    program: _Program, Theta: np.ndarray, limit: np.ndarray, quadratic: np.ndarray | float
) -> tuple[np.ndarray, float]:
    """-f*(Theta) = -<Theta, Y> - 1/2 sum Theta^2 / share, for a huber while |Theta| <= delta
    share."""
    largest = np.max(np.abs(Theta) / program.share)
    if np.isfinite(program.delta) and largest > 0:
        limit = np.minimum(limit, program.delta / largest)
    axis = None if len(limit) == 1 else 0
    slope = np.atleast_1d(-np.sum(Theta * program.Y, axis=axis))
    curvature = np.atleast_1d(np.sum(Theta**2 / program.share, axis=axis)) + 2 * quadratic
    vertex = np.divide(slope, curvature, out=np.zeros_like(slope), where=curvature > 0)
    tau = np.clip(vertex, -limit, limit)
    return tau, float(np.sum(tau * slope - tau**2 * curvature / 2))


def _weights(program: _Program, weights: Any) -> tuple[np.ndarray, bool]:
    """Blocks (p, d, C), for C-ReLU (2p, d, C) with those of V first; whether they are float32."""
    parts = weights if program.cones and isinstance(weights, (tuple, list)) else [weights]
    U = np.concatenate([to_numpy(check_array(part, "weights")) for part in parts])
    p = program.mask.shape[1] * (2 if program.cones else 1)
    shape = (p, program.X.shape[1], program.Y.shape[1])
    if U.shape != shape:
        raise ValueError(f"weights must have shape {shape} in all, got {U.shape}")
    return U.astype(np.float64), U.dtype == np.float32


def _dual(program: _Program, dual: Any) -> np.ndarray:
    Theta = to_numpy(check_array(dual, "dual")).astype(np.float64)
    if Theta.shape != program.Y.shape:
        raise ValueError(f"dual must have shape {program.Y.shape}, got {Theta.shape}")
    return Theta


def _blocks(program: _Program, U: np.ndarray) -> Iterator[tuple[float, np.ndarray, np.ndarray]]:
    """Sign, pattern (n, 1) and pre-activations X u (n, C) of each block that is not zero."""
    p = program.mask.shape[1]
    for i in np.flatnonzero(np.any(U != 0, axis=(1, 2))):
        yield 1.0 if i < p else -1.0, program.mask[:, [i % p]], program.X @ U[i]


def _predictions(program: _Program, U: np.ndarray) -> np.ndarray:
    Z = np.zeros_like(program.Y)
    for sign, on, product in _blocks(program, U):
        Z += sign * on * product
    return Z


def _network_predictions(program: _Program, U: np.ndarray) -> np.ndarray:
    Z = np.zeros_like(program.Y)
    for sign, _, product in _blocks(program, U):
        Z += sign * np.maximum(product, 0.0)
    return Z


def _violation(program: _Program, U: np.ndarray) -> float:
    """The largest distance of a block from a half-space of its cone."""
    if not program.cones:
        return 0.0
    distances = [
        np.max(np.where(on, -product, product) / program.row_norms, initial=0.0)
        for _, on, product in _blocks(program, U)
    ]
    return float(max(distances, default=0.0))


def _penalty(program: _Program, U: np.ndarray) -> float:
    """g(U) / lam."""
    if program.penalty == "none":
        return 0.0
    if program.penalty == "l2":
        return float(np.sum(U**2)) / 2
    return float(np.sum(_GROUP_NORMS[program.penalty](U)))


def _lower_bound(program: _Program, Theta: np.ndarray) -> tuple[float, str]:
    """The bound of the best scaling of Theta, or 0, which no value is below; and how it came."""
    limit: np.ndarray = np.full(Theta.shape[1], np.inf)
    quadratic: np.ndarray | float = 0.0
    if program.penalty == "none":
        Theta, feasible = _outside_range(program, Theta)
        how = "of the dual candidate's part outside the range of M, where M'Theta = 0 to 1e-9"
        if not feasible:
            return 0.0, "0: the dual candidate has no part outside the range of M"
    elif program.penalty == "l2":
        quadratic = np.sum(_correlation(program, Theta) ** 2, axis=(0, 1)) / (2 * program.lam)
        how = "of the best multiple of the dual candidate"
    elif program.cones:
        limit, how = _cone_limit(program, Theta)
    else:
        norms = _GROUP_NORMS[program.penalty](_correlation(program, Theta)).max(axis=0)
        limit = np.divide(program.lam, norms, out=np.full_like(norms, np.inf), where=norms > 0)
        how = "of the best dual feasible multiple of the dual candidate"
    _, bound = _best_multiple(program, Theta, limit, quadratic)
    if not _balanced(program, Theta):
        how = "of the zero multiple: the dual candidate fails the equations of the dual"
    return max(bound, 0.0), how


def _correlation(program: _Program, Theta: np.ndarray) -> np.ndarray:
    """M'Theta: X'D_i Theta for each pattern, (p, d, C)."""
    return np.stack([program.X.T @ (on[:, None] * Theta) for on in program.mask.T])


def _cone_limit(program: _Program, Theta: np.ndarray) -> tuple[np.ndarray, str]:
    """How far each class may be scaled: lam over the largest ||Pi_K(+-X'D_i Theta)||. Longest
    first, and only those that would shorten the best multiple, since the others do not matter."""
    C, G = Theta.shape[1], _correlation(program, Theta)
    tau, _ = _best_multiple(program, Theta, np.full(C, np.inf))
    largest = np.divide(program.lam, abs(tau), out=np.full(C, np.inf), where=tau != 0)
    norms = np.linalg.norm(G, axis=1)
    solved = failed = 0
    for k in range(C):
        for i in np.argsort(-norms[:, k]):
            if norms[i, k] <= largest[k]:
                break
            for c in (G[i, :, k], -G[i, :, k]):
                projected = _projected_norm(program, i, c)
                solved, failed = solved + 1, failed + (projected is None)
                largest[k] = max(largest[k], norms[i, k] if projected is None else projected)
    how = "of the best dual feasible multiple of the dual candidate"
    how += f", by {solved} non-negative least squares"
    if failed:
        how += f"; {failed} of them gave up and count unprojected, so it may be too low"
    return program.lam / largest, how


def _projected_norm(program: _Program, i: int, c: np.ndarray) -> float | None:
    """||Pi_K(c)|| for pattern i, from above by whatever gamma >= 0 is found; None if none is."""
    rows = np.where(program.mask[:, [i]], program.X, -program.X) / program.row_norms
    try:
        gamma, _ = nnls(rows.T, -c, maxiter=30 * len(rows))
    except RuntimeError:
        return None
    return float(np.linalg.norm(c + rows.T @ np.maximum(gamma, 0.0)))


def _outside_range(program: _Program, Theta: np.ndarray) -> tuple[np.ndarray, bool]:
    """The part of Theta outside range(M), with an output bias outside that of [M, 1], and whether
    M'Theta = 0 holds there. M M' = R'R, with R from QR factorizations of pieces of M', has the
    range of M without squaring its condition."""
    X, mask = program.X, program.mask
    n, step = len(X), max(1, len(X) // X.shape[1])
    R: Any = np.ones((int(program.output_bias), n))
    for start in range(0, mask.shape[1], step):
        piece = mask.T[start : start + step, None, :] * X.T
        R = np.linalg.qr(np.vstack([R, piece.reshape(-1, n)]), mode="r")
    _, values, vectors = np.linalg.svd(R, full_matrices=False)
    rounding = max(n, mask.shape[1] * X.shape[1]) * np.finfo(np.float64).eps * values[0]
    basis = vectors[values > rounding]
    for _ in range(2):  # once leaves a rounding error of the size of Theta, not of the part
        Theta = Theta - basis.T @ (basis @ Theta)
    Theta = _into_domain(program, Theta)
    error = np.linalg.norm(_correlation(program, Theta))
    size = np.linalg.norm(values) * np.linalg.norm(Theta)
    return Theta, bool(error <= DUAL_FEASIBILITY * size)


def _into_domain(program: _Program, Theta: np.ndarray) -> np.ndarray:
    """Theta without what rounding has put outside the domain of f*: likelihoods have q >= 0, and
    rows that sum to zero for the softmax loss."""
    if program.loss == "logistic":
        return -program.Y * _without_rounding(-program.Y * Theta)
    if program.loss == "softmax":
        q = _without_rounding(program.Y + Theta / program.share)
        Theta = program.share * (q - program.Y)
        Theta[np.arange(len(q)), q.argmax(axis=1)] -= Theta.sum(axis=1)
    return Theta


def _without_rounding(q: np.ndarray) -> np.ndarray:
    return np.where((q < 0) & (q > -DUAL_FEASIBILITY * q.max(axis=0)), 0.0, q)
