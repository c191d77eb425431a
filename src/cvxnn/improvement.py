"""Improving networks that were trained elsewhere: the training objective never rises.

A network of m neurons has at most m activation patterns on the rows of X. Over all networks with
these patterns, training is a convex program, and the given network is one of its feasible points:
neurons with the same pattern are summed, which never raises the objective (theorems 2.1 and 2.2 of
the paper). The optimum of the program is therefore at least as good, and its dual proves a lower
bound for all networks with these patterns.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from cvxnn.arrays import Matrix, double, to_numpy
from cvxnn.certificates import Certificate, relative_gap
from cvxnn.digits import text_above, text_below
from cvxnn.losses import LOSSES, LossChoice
from cvxnn.networks import GatedReLUNetwork, ReLUNetwork, TwoLayerNetwork
from cvxnn.patterns import Patterns, sample_patterns
from cvxnn.problems import CGReLU, ConvexProblem, CReLU
from cvxnn.solvers.base import Solver
from cvxnn.solvers.driver import solve
from cvxnn.solvers.results import Progress, Solution
from cvxnn.validation import (
    check_array,
    check_choice,
    check_features,
    check_integer,
    check_number,
    check_object,
    check_random_state,
    name_of,
)

if TYPE_CHECKING:
    import torch
    from sklearn.neural_network import MLPClassifier, MLPRegressor

Network: TypeAlias = ReLUNetwork | GatedReLUNetwork
Improvable: TypeAlias = "TwoLayerNetwork | torch.nn.Module | MLPClassifier | MLPRegressor"
Weights: TypeAlias = np.ndarray | tuple[np.ndarray, np.ndarray]  # gated, or (V, W) of C-ReLU


class _Terms(TypedDict):
    """The loss, as networks and problems take it."""

    loss: str | LossChoice
    sample_weight: ArrayLike | None
    huber_delta: float | None


@dataclass(frozen=True, eq=False)
class Improvement:
    """A network, the one it came from, and what is proven about it.

    Attributes
    ----------
    network : the improved network, of the same kind and with the same biases as the given one.
    given : the network it came from.
    before, after : their objectives; after <= before.
    loss : the loss in them.
    classes : the labels of the outputs, in order; for a single output, the labels of its negative
        and positive values. None if the targets were numbers or rows.
    certificate : that of the convex program over the patterns of the given network and the sampled
        ones. No network with these patterns has an objective below its lower bound; other patterns
        may do better. `network_objective` is measured on the network of the solution.
    solution : the solution of that program.
    """

    network: Network
    given: Network
    before: float
    after: float
    loss: str
    classes: np.ndarray | None
    certificate: Certificate
    solution: Solution = field(repr=False)

    @property
    def n_neurons_before(self) -> int:
        return self.given.n_neurons

    @property
    def n_neurons_after(self) -> int:
        return self.network.n_neurons

    @property
    def relative_gap(self) -> float:
        """How far, at most, `after` is above the best network with these patterns."""
        bound, zero = self.certificate.lower_bound, self.certificate.zero_objective
        return relative_gap(self.after, bound, zero)

    def __str__(self) -> str:
        p = len(self.solution.problem.patterns)
        proven = "proven" if self.certificate.proven else "up to rounding"
        return (
            f"{self.loss} objective {self.before:.6g} -> {self.after:.6g}, "
            f"neurons {self.n_neurons_before} -> {self.n_neurons_after}\n"
            f"{proven}: no network with these patterns ({p}) is below "
            f"{text_below(self.certificate.lower_bound, 6)} "
            f"(relative gap {text_above(self.relative_gap, 2)})\n"
            "not proven: that other patterns are no better, nor anything about new data"
        )


def improve(
    network: Improvable,
    X: ArrayLike,
    y: ArrayLike,
    alpha: float,
    *,
    loss: str | LossChoice = "auto",
    n_patterns: int = 0,
    sample_weight: ArrayLike | None = None,
    huber_delta: float | None = None,
    tol: float = 1e-4,
    random_state: int | np.random.Generator | None = 0,
    solver: str | Solver = "auto",
    max_seconds: float | None = None,
    callback: Callable[[Progress], object] | None = None,
) -> Improvement:
    """The best network with the patterns of a given one, up to `tol`, and never a worse one.

    The objective is the mean loss plus alpha/2 sum_j (||W1_j||^2 + ||W2_j||_1^2), with hidden
    intercepts in W1 and an unpenalised output bias. X is taken as it is: nothing is rescaled.
    PyTorch and scikit-learn have other penalties, so their networks are not optimal for this
    objective even if they have converged. Only the training objective is sure not to rise;
    predictions change, on X and elsewhere.

    Parameters
    ----------
    network : `ReLUNetwork`, `GatedReLUNetwork`, a torch module of Linear, ReLU, Linear, or a fitted
        MLPClassifier or MLPRegressor with one hidden layer of ReLUs. The result has hidden
        intercepts and an output bias if this network has them. If all its neurons are off on X and
        no patterns are sampled, the pattern that is on for all rows is used.
    X, y : training data. y holds numbers (n,) or (n, C), labels (n,), or rows (n, C): probabilities
        for softmax; -1 and 1, or 0 and 1, for logistic.
    alpha : penalty strength > 0.
    loss : "squared", "huber", "logistic", "softmax", an object as in `CGReLU`, or "auto": the loss
        that an MLP was trained with; for other networks softmax for labels and several outputs,
        logistic for two labels and one output, squared otherwise. Labels are integers, texts or
        booleans. Outputs belong to the labels in sorted order; a single output is positive for the
        larger label.
    n_patterns : how many patterns to sample in addition to those of the network; the training
        objective can only fall.
    sample_weight, huber_delta : as in `CGReLU`.
    tol : relative gap between the objective and its lower bound at which the solver stops.
    random_state : seed for the sampled patterns.
    solver, max_seconds, callback : as in `solve`; with any of them the result is no worse than
        `network`.
    """
    model = _Model.of(network)
    given = model.network
    data = double(to_numpy(check_features(X, given.n_features), keep_sparse=True))
    alpha = check_number(alpha, "alpha", minimum=0, strict=True)
    n_patterns = check_integer(n_patterns, "n_patterns", minimum=0)
    name, Y, classes = model.targets(y, data.shape[0], _loss_name(loss))
    Y = Y[:, 0] if given.flat_output else Y
    terms: _Terms = {
        "loss": name if isinstance(loss, str) else loss,
        "sample_weight": sample_weight,
        "huber_delta": huber_delta,
    }
    before = given.objective(data, Y, alpha, **terms)

    patterns, own = _patterns_of(given, data, n_patterns, check_random_state(random_state))
    problem = _posed(given, data, Y, patterns, alpha, terms)
    start = problem.zero_weights() if own is None else own
    solution = solve(
        problem,
        solver,
        tol=tol,
        max_seconds=max_seconds,
        warm_start=start,
        callback=callback,
        on_failure="ignore",
    )
    if not solution.converged:
        from cvxnn.solvers.convergence import ConvergenceWarning

        warnings.warn(solution.message, ConvergenceWarning, stacklevel=2)
    # a solver that is stopped early may end above its start, and rounding may lift both of them
    # above the given network
    candidates = [problem.network(solution.weights), problem.network(start), given]
    objectives = [candidate.objective(data, Y, alpha, **terms) for candidate in candidates]
    best = int(np.argmin(objectives))
    return Improvement(
        network=candidates[best],
        given=given,
        before=before,
        after=objectives[best],
        loss=name,
        classes=classes,
        certificate=solution.certificate,
        solution=solution,
    )


def _loss_name(loss: str | LossChoice) -> str:
    if isinstance(loss, str):
        return check_choice(loss, "loss", ["auto", *LOSSES])
    return name_of(check_object(loss, "loss", "bind", LOSSES), LOSSES)


def _patterns_of(
    network: Network, X: Matrix, n_patterns: int, rng: np.random.Generator
) -> tuple[Patterns, Weights | None]:
    """The patterns of the network on X, then sampled ones, and its convex weights for them; None
    instead of weights if no neuron is on."""
    patterns: Patterns | None = None
    start: Weights | None = None
    with suppress(ValueError):  # raised if no neuron is on
        patterns, start = network.to_convex(X)
    if n_patterns > 0:
        sampled = _sampled(network, X, n_patterns, rng)
        patterns = sampled if patterns is None else patterns.join(sampled)
    if patterns is None:
        everywhere = np.zeros((X.shape[1], 1))
        patterns = Patterns.from_gates(X, everywhere, np.ones(1), strict=_strict(network))
    if isinstance(start, tuple):
        V, W = start
        return patterns, (_padded(V, len(patterns)), _padded(W, len(patterns)))
    return patterns, None if start is None else _padded(start, len(patterns))


def _sampled(network: Network, X: Matrix, n_patterns: int, rng: np.random.Generator) -> Patterns:
    """Sampled patterns of the kind that the network has. Gates are drawn for columns of unit norm.
    That is safe because they only split the rows, and are not part of the objective."""
    bias = network.b1 is not None
    if isinstance(network, GatedReLUNetwork):
        bias = bias or bool(network.gate_bias.any())
    return sample_patterns(
        X, n_patterns, bias=bias, normalize=True, strict=_strict(network), random_state=rng
    )


def _strict(network: Network) -> bool:
    return isinstance(network, GatedReLUNetwork) and network.strict


def _padded(U: np.ndarray, p: int) -> np.ndarray:
    return np.concatenate([U, np.zeros((p - len(U), *U.shape[1:]))])


def _posed(
    network: Network,
    X: Matrix,
    Y: np.ndarray,
    patterns: Patterns,
    alpha: float,
    terms: _Terms,
) -> ConvexProblem:
    bias, output_bias = network.b1 is not None, network.b2 is not None
    if isinstance(network, GatedReLUNetwork):
        return CGReLU(X, Y, patterns, alpha, bias=bias, output_bias=output_bias, **terms)
    # singular cones are kept: the cones that would replace them might not contain the neurons
    return CReLU(
        X, Y, patterns, alpha, singular="keep", bias=bias, output_bias=output_bias, **terms
    )


# -- the loss and the labels of a model


@dataclass(frozen=True)
class _Model:
    """A network and, if it comes from an MLP, the loss it was trained with and the labels of its
    outputs."""

    network: Network
    loss: str | None = None
    classes: list[object] | None = None

    @classmethod
    def of(cls, model: Improvable) -> _Model:
        if isinstance(model, (ReLUNetwork, GatedReLUNetwork)):
            return cls(model)
        torch = sys.modules.get("torch")  # a module of torch can only exist if torch is imported
        if torch is not None and isinstance(model, torch.nn.Module):
            return cls(ReLUNetwork.from_torch(model))
        from sklearn.neural_network import MLPClassifier, MLPRegressor

        if isinstance(model, MLPRegressor):
            loss = "squared" if model.loss == "squared_error" else model.loss
            return cls(ReLUNetwork.from_sklearn(model), loss)
        if isinstance(model, MLPClassifier):
            network = ReLUNetwork.from_sklearn(model)
            return cls(network, model.out_activation_, model.classes_.tolist())
        raise TypeError(
            "network must be a ReLUNetwork, a GatedReLUNetwork, a torch module, an MLPClassifier "
            f"or an MLPRegressor, got {type(model).__name__}"
        )

    def targets(self, y: ArrayLike, n: int, loss: str) -> tuple[str, np.ndarray, np.ndarray | None]:
        """The loss, with "auto" resolved; targets (n, C) for it; and the labels of the outputs if y
        holds labels."""
        given, C = _check_rows(y, n), self.network.n_outputs
        if loss == "auto":
            loss = self.loss or _loss_for(given, C)
            if loss not in LOSSES:
                raise ValueError(
                    f"network was trained with the loss {loss!r}; choose another one: "
                    f"{', '.join(LOSSES)}"
                )
        if given.ndim == 1 and loss in ("logistic", "softmax"):
            return loss, *_encoded(given, loss, C, self.classes)
        Y = to_numpy(check_array(given, "y")).reshape(n, -1)
        if Y.shape[1] != C:
            raise ValueError(
                f"y has {Y.shape[1]} column{'s' if Y.shape[1] > 1 else ''} of numbers, but the "
                f"network has {C} output{'s' if C > 1 else ''}"
                + ("; for labels give loss='softmax'" if given.ndim == 1 else "")
            )
        if loss == "logistic" and np.isin(Y, (0, 1)).all():
            Y = 2 * Y - 1
        return loss, Y, None


def _check_rows(y: ArrayLike, n: int) -> np.ndarray:
    """y as a NumPy array of n rows, (n,) for a single column."""
    if y is None or hasattr(y, "tocsr") or isinstance(y, np.ma.MaskedArray):
        raise TypeError(f"y must be a full array of numbers or labels, got {type(y).__name__}")
    rows = to_numpy(y)  # type: ignore[arg-type]  # it takes sequences as well
    if rows.ndim not in (1, 2) or 0 in rows.shape:
        raise ValueError(f"y must have shape (n,) or (n, C), got {rows.shape}")
    if len(rows) != n:
        raise ValueError(f"X has {n} rows, but y has {len(rows)}")
    return rows[:, 0] if rows.ndim == 2 and rows.shape[1] == 1 else rows


def _loss_for(y: np.ndarray, C: int) -> str:
    """The loss to use for targets if nothing else is known about them."""
    if y.ndim == 2 or y.dtype.kind == "f":
        return "squared"
    if C > 1:
        return "softmax"
    counts = y.dtype.kind in "iu" and len(np.unique(y)) != 2
    return "squared" if counts else "logistic"


def _encoded(
    y: np.ndarray, loss: str, C: int, classes: list[object] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Labels as a column of -1 and 1 or as one-hot rows, and the classes in their order."""
    if (loss == "logistic") != (C == 1):
        wanted = "one output" if loss == "logistic" else "an output for each class"
        raise ValueError(
            f"labels y with the {loss} loss need {wanted}, but the network has {C}; "
            "give another loss, or a row of y for each sample"
        )
    labels = y.tolist()
    found = _sorted_labels(y, labels)
    classes = found if classes is None else classes
    unknown = [label for label in found if label not in classes]
    if unknown:
        raise ValueError(f"y holds {unknown[0]!r}, which is not among the network's {classes}")
    if len(classes) != max(C, 2):
        raise ValueError(
            f"y has {len(classes)} class{'es' if len(classes) > 1 else ''}, but the network has "
            f"{C} output{'s' if C > 1 else ''}, for {max(C, 2)} classes"
        )
    position = {label: k for k, label in enumerate(classes)}
    from cvxnn.estimators.targets import one_output_or_one_hot  # needs scikit-learn

    places = np.array([position[label] for label in labels])
    return one_output_or_one_hot(places, C), np.array(classes)


def _sorted_labels(y: np.ndarray, labels: list[Any]) -> list[object]:
    if y.dtype.kind == "f":
        check_array(y, "y")
    try:
        return sorted(set(labels))
    except TypeError as error:
        raise TypeError(f"y must hold labels of one kind, none of them missing: {error}") from error
