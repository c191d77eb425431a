"""C-GReLU, the gated ReLU network as a convex program without constraints."""

from __future__ import annotations

from typing import Any, Self

from numpy.typing import ArrayLike

from cvxnn.arrays import Array, divide_columns, is_stored
from cvxnn.losses import LossChoice, choose_loss
from cvxnn.networks import GatedReLUNetwork
from cvxnn.patterns import Patterns
from cvxnn.penalties import Penalty, choose_penalty, make_penalty
from cvxnn.problems.base import ConvexProblem
from cvxnn.problems.data import make_data
from cvxnn.problems.sizes import check_size
from cvxnn.validation import check_features, check_number


class CGReLU(ConvexProblem):
    """C-GReLU: a gated ReLU network as a convex program.

    Parameters
    ----------
    X : (n, d) data; NumPy, torch or any array-API array, lists, DataFrames, SciPy sparse
        matrices, which stay sparse, `StoredRows` or `ShardedRows`. float32 data are solved in
        float32 (and certified in float64), everything else in float64.
    Y : (n,) or (n, C) targets.
    patterns : `Patterns` of this X.
    lam : penalty strength >= 0, exactly as in the formula; nothing is rescaled.
    loss : "squared", 1/(2nC) ||Z - Y||^2; "huber", linear beyond residuals of `huber_delta` (1.35);
        "logistic" for Y of -1 and 1; "softmax" for rows Y of probabilities, one-hot or not. Or an
        object: one of `cvxnn.losses` such as `Huber(delta=0.5)`, or a `LossChoice` of your own.
    sample_weight : (n,) positive numbers; n becomes their sum, and rows count accordingly.
    penalty : "neuron" (the paper's), "feature", "l1", "l2" (lam/2 ||U||^2) or "none". Or an object:
        one of `cvxnn.penalties` such as `L1()`, or one of your own; its strength becomes `lam`.
    bias : give each neuron an intercept, a column of ones inside its group.
    output_bias : add an intercept to each output, which is not penalised.
    normalize : solve for columns of unit norm, the paper's setting. The certificate then bounds
        that problem; networks are mapped back exactly and work on the raw X.

    Weights have shape (p, d, C), or (p, d + 1, C) with the intercepts last, in the problem's own
    units: those of the unit-norm columns if `normalize` is set.
    """

    kind = "C-GReLU"

    def __init__(
        self,
        X: ArrayLike,
        Y: ArrayLike,
        patterns: Patterns,
        lam: float,
        *,
        loss: str | LossChoice = "squared",
        penalty: str | Penalty = "neuron",
        bias: bool = False,
        output_bias: bool = False,
        normalize: bool = False,
        sample_weight: ArrayLike | None = None,
        huber_delta: float | None = None,
    ) -> None:
        X, chosen = check_features(X, sharded=True), choose_penalty(penalty)
        make_penalty(chosen, check_number(lam, "lam", minimum=0))  # refused before any work
        data = make_data(
            X,
            Y,
            patterns,
            choose_loss(loss, huber_delta),
            chosen,
            bias=bias,
            output_bias=output_bias,
            normalize=normalize,
            sample_weight=sample_weight,
        )
        self._pose(data, lam)

    def _over(self, patterns: Patterns) -> Self:
        patterns.check_belong_to(self._raw_data())
        check_size(self.operator.rows(), len(patterns), cones=False)
        return type(self)._of(self.data.with_patterns(patterns), self.lam)

    def _raw_data(self) -> Array:
        """X as it was given: without the column of ones, in its own units."""
        X: Any = self.operator.rows()
        kept = X.shape[1] - self.bias
        X = X.first_columns(kept) if is_stored(X) else X[:, :kept]
        scale = self.column_scale[: X.shape[1]]
        return divide_columns(X, 1 / scale) if self.normalize else X

    def network(self, weights: ArrayLike) -> GatedReLUNetwork:
        """The gated network with these weights, in the units of the raw X (theorem 2.2)."""
        U = self.check_weights(weights)
        return GatedReLUNetwork.from_convex(
            self.patterns,
            self._raw_units(U),
            bias=self.bias,
            b2=self._output_bias(U),
            flat_output=self.flat_targets,
        )
