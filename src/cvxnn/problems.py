"""Convex training problems: operator + loss + penalty (+ cones).

`CGReLU` is the paper's C-GReLU (section 2.2), the gated ReLU network as a group lasso,

    min_U  f(sum_i D_i X U_i) + lam sum_{i,k} ||U_i^k||_2,

and `CReLU` its C-ReLU (section 2.1), the ReLU network, with cone constraints:

    min_{V,W}  f(sum_i D_i X (V_i - W_i)) + lam sum_{i,k} ||V_i^k|| + ||W_i^k||
               with V_i^k, W_i^k in K_i.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, ClassVar, Self, overload

import numpy as np

from cvxnn import budget
from cvxnn.arrays import (
    Array,
    array_namespace,
    divide_columns,
    double,
    is_sparse,
    to_numpy,
    with_ones,
)
from cvxnn.cones.cones import Cones
from cvxnn.cones.projection import ActiveRows
from cvxnn.cones.singular import PatternWarning, treat_singular
from cvxnn.least_squares import KernelFactor, RangeComplement
from cvxnn.losses import LOSSES, Loss, LossChoice, choose_loss, make_loss
from cvxnn.memory import DOUBLE, check_memory, problem_bytes, weight_bytes
from cvxnn.networks import GatedReLUNetwork, ReLUNetwork
from cvxnn.operators import Operator, SignedMatrix, expanded_matrix
from cvxnn.patterns import Patterns, pattern_keys, unit_scale, warn_about_small
from cvxnn.penalties import PENALTIES, Penalty, choose_penalty, make_penalty
from cvxnn.problem_data import ProblemData
from cvxnn.proofs import Multipliers
from cvxnn.protocols import Problem
from cvxnn.smooth import Smooth
from cvxnn.threads import cached_property
from cvxnn.validation import (
    check_array,
    check_choice,
    check_features,
    check_flag,
    check_number,
    check_problem,
    check_targets,
    name_of,
    offers,
    same_library,
)

_BLOCK = 2**22  # products of rows and neurons held at a time


def _from_data(name: str) -> Any:
    """An attribute of the data as one of the problem."""
    return property(attrgetter(f"data.{name}"))


class ConvexProblem:
    """What both problems share: a loss of a linear operator's predictions plus a penalty.

    Weights are one array of blocks inside; `check_weights` takes them in from users and `present`
    hands them out.
    """

    kind: ClassVar[str]
    network: Any  # weights -> the network they stand for

    data: ProblemData
    lam: float
    penalty: Penalty  # at the strength lam

    patterns: Patterns = _from_data("patterns")
    operator: Operator = _from_data("operator")
    operator_double: Operator = _from_data("operator_double")
    kernel_factor: KernelFactor = _from_data("kernel_factor")
    loss: Loss = _from_data("loss")
    loss_name: str = _from_data("loss_name")
    penalty_name: str = _from_data("penalty_name")
    bias: bool = _from_data("bias")
    output_bias: bool = _from_data("output_bias")
    normalize: bool = _from_data("normalize")
    flat_targets: bool = _from_data("flat_targets")
    column_scale: np.ndarray = _from_data("column_scale")
    _range_complements: dict[str, RangeComplement] = _from_data("range_complements")

    @classmethod
    def _of(cls, data: ProblemData, lam: float) -> Self:
        """The problem of data that were checked before."""
        problem = cls.__new__(cls)
        problem._pose(data, lam)
        return problem

    def _pose(self, data: ProblemData, lam: float) -> None:
        self.data, self.lam = data, check_number(lam, "lam", minimum=0)
        self.penalty = make_penalty(data.penalty, self.lam)

    @property
    def weight_shape(self) -> tuple[int, int, int]:
        """The shape of all blocks: (blocks, features, classes)."""
        return (self.operator.p, self.operator.d, self.loss.Y.shape[1])

    @property
    def scope(self) -> str:
        """What a certificate of this problem speaks about."""
        p = len(self.patterns)
        columns = " on unit-norm columns" if self.normalize else ""
        return f"{self.kind} over {p} given pattern{'s' if p > 1 else ''}{columns}"

    def __repr__(self) -> str:
        n, C = self.loss.Y.shape
        return (
            f"{type(self).__name__}({n} rows, {self.operator.d} columns, {C} outputs, "
            f"{len(self.patterns)} patterns, loss {self.loss_name!r}, penalty "
            f"{self.penalty_name!r}, lam={self.lam:g})"
        )

    @property
    def smooth(self) -> Smooth:
        """A new one at each use: it remembers the points of one run."""
        return Smooth(self.operator, self.loss)

    def objective(self, weights: Any) -> float:
        """f(M U) + g(U)."""
        U = self.check_weights(weights)
        return self.loss.value(self.operator.forward(U)) + self.penalty.value(U)

    def zero_weights(self) -> Array:
        return self.operator.like(np.zeros(self.weight_shape), self._weight_dtype)

    @property
    def _weight_dtype(self) -> Any:
        return self.operator.dtype

    def check_weights(self, weights: Any, name: str = "weights") -> Array:
        """Weights as one array like the problem's data; (p, d) is taken as (p, d, 1)."""
        return self._check_blocks(weights, self.weight_shape, name)

    def present(self, U: Array) -> Any:
        """Weights as users see them."""
        return U

    def dual_correlation(self, Theta: Array, start: Any = None) -> Array:
        """What the dual constraint bounds, block by block, for a dual candidate Theta; `start` is
        where projections onto cones start, if there are any."""
        return self.operator_double.adjoint(Theta)

    def range_complement(self, B: Array) -> Array:
        """The part of B (n, C) outside range(M), where dual points live at lam = 0; with an
        output bias outside that of [M, 1]."""
        B = self._outside_operator(B)
        if not self.output_bias:
            return B
        xp = array_namespace(B)
        ones = self._outside_operator(xp.ones_like(B[:, :1]))
        size = xp.sum(ones * ones)
        if float(size) <= 1e-20 * B.shape[0]:  # 1 is in the range
            return B
        return B - ones * (xp.sum(ones * B, axis=0) / size)

    def _outside_operator(self, B: Array) -> Array:
        """Outside range(M), which is that of [M, -M] too."""
        operator, known = self.data.operator_double, self.data.range_complements
        method = RangeComplement.method_for(operator)
        if method not in known:
            known[method] = RangeComplement(operator, method)
        return known[method].of(B)

    def _output_bias(self, U: Array) -> np.ndarray | None:
        """The best output bias for these weights."""
        if not self.output_bias:
            return None
        return self.loss.intercept(self.operator_double.forward(double(U)))

    def max_violation(self, U: Array) -> float:
        return 0.0

    def proven_feasible(self, U: Array) -> tuple[Array, tuple[str, ...]]:
        """Weights next to U (float64) that are feasible in real arithmetic, and what is not proven
        about that, in words."""
        return U, ()

    def with_lam(self, lam: float) -> Self:
        """The same problem at another penalty strength; the data are shared."""
        other = copy.copy(self)
        other._pose(self.data, lam)
        return other

    @overload
    def with_patterns(self, patterns: Patterns) -> Any: ...
    @overload
    def with_patterns(self, patterns: Patterns, weights: Any) -> tuple[Any, Any]: ...
    def with_patterns(self, patterns: Patterns, weights: Any = None) -> Any:
        """The same problem over other patterns of the same rows; data, loss and penalty are shared.

        With `weights` of this problem, the answer is the pair (problem, weights): a block whose
        pattern is in both problems is carried over, all others are zero. That is a feasible start
        for the new problem, because a cone depends on nothing but the data and its pattern.
        """
        other = self._over(_check_patterns(patterns))
        if weights is None:
            return other
        return other, other.present(self._carried(self.check_weights(weights), other))

    def _over(self, patterns: Patterns) -> Any:
        raise NotImplementedError

    def _carried(self, U: Array, other: ConvexProblem) -> Array:
        """The blocks U of this problem as blocks of the other one, sign by sign for C-ReLU."""
        mine = {key: i for i, key in enumerate(pattern_keys(self.patterns.mask))}
        found = [
            (mine[key], j) for j, key in enumerate(pattern_keys(other.patterns.mask)) if key in mine
        ]
        source, place = np.array(found, dtype=int).reshape(-1, 2).T
        p, q = len(self.patterns), len(other.patterns)
        carried = other.zero_weights()
        for sign in range(len(U) // p):
            carried[place + sign * q] = U[source + sign * p]
        return carried

    def _check_blocks(self, weights: Any, shape: tuple[int, int, int], name: str) -> Array:
        U = check_array(weights, name)
        U = U if same_library(U, self.loss.Y) else to_numpy(U)
        U = self.operator.like(U, self._weight_dtype)
        if U.ndim == 2 and shape[2] == 1:
            U = U[:, :, None]
        if tuple(U.shape) != shape:
            raise ValueError(f"{name} must have shape {shape}, got {tuple(U.shape)}")
        return U

    def _raw_units(self, U: Array) -> np.ndarray:
        """Weights for the raw X: the way back from unit-norm columns."""
        return to_numpy(double(U)) / self.column_scale[None, :, None]


class CGReLU(ConvexProblem):
    """C-GReLU: a gated ReLU network as a convex program.

    Parameters
    ----------
    X : (n, d) data; NumPy, torch or any array-API array, lists, DataFrames, SciPy sparse
        matrices, which stay sparse. float32 data are solved in float32 (and certified in float64),
        everything else in float64.
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
        X: Any,
        Y: Any,
        patterns: Patterns,
        lam: float,
        *,
        loss: str | LossChoice = "squared",
        penalty: str | Penalty = "neuron",
        bias: bool = False,
        output_bias: bool = False,
        normalize: bool = False,
        sample_weight: Any = None,
        huber_delta: float | None = None,
    ) -> None:
        X, chosen = check_features(X), choose_penalty(penalty)
        make_penalty(chosen, check_number(lam, "lam", minimum=0))  # refused before any work
        data = _make_data(
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

    def _over(self, patterns: Patterns) -> CGReLU:
        patterns.check_belong_to(self._raw_data())
        _check_size(self.operator.rows(), len(patterns), cones=False)
        return type(self)._of(self.data.with_patterns(patterns), self.lam)

    def _raw_data(self) -> Array:
        """X as it was given: without the column of ones, in its own units."""
        X = self.operator.rows()
        X = X[:, : X.shape[1] - self.bias]
        scale = self.column_scale[: X.shape[1]]
        return divide_columns(X, 1 / scale) if self.normalize else X

    def network(self, weights: Any) -> GatedReLUNetwork:
        """The gated network with these weights, in the units of the raw X (theorem 2.2)."""
        U = self.check_weights(weights)
        return GatedReLUNetwork.from_convex(
            self.patterns,
            self._raw_units(U),
            bias=self.bias,
            b2=self._output_bias(U),
            flat_output=self.flat_targets,
        )


class CReLU(ConvexProblem):
    """C-ReLU: a ReLU network as a convex program with cone constraints.

    Parameters are those of `CGReLU`; the penalty is the paper's, and data are taken to NumPy.
    Weights are float64 whatever the data are: rounded to float32 they would leave their cones.

    singular : what to do with patterns whose cone lies in a subspace. "replace" drops one where a
        non-singular pattern with the same fit contains its cone, and otherwise replaces it by the
        pattern that the proof of proposition 3.2 constructs (the value can only fall); "keep"
        keeps it, "raise" refuses. What was done is warned about and stands in `notes`.

    Weights are the pair (V, W), each (p, d, C), as for `CGReLU`; inside they are stacked to
    (2p, d, C).
    """

    kind = "C-ReLU"

    def __init__(
        self,
        X: Any,
        Y: Any,
        patterns: Patterns,
        lam: float,
        *,
        loss: str | LossChoice = "squared",
        bias: bool = False,
        output_bias: bool = False,
        normalize: bool = False,
        singular: str = "replace",
        sample_weight: Any = None,
        huber_delta: float | None = None,
    ) -> None:
        check_choice(singular, "singular", ("replace", "keep", "raise"))
        gated = CGReLU(
            to_numpy(check_features(X), keep_sparse=True),
            Y,
            patterns,
            lam,
            loss=loss,
            bias=bias,
            output_bias=output_bias,
            normalize=normalize,
            sample_weight=sample_weight,
            huber_delta=huber_delta,
        )
        self._pose_over(gated.data, lam, singular, stacklevel=3)

    def _pose_over(self, data: ProblemData, lam: float, singular: str, stacklevel: int) -> None:
        """Take over gated data, after patterns with singular cones were dealt with."""
        cones = _make_cones(data)
        notes, patterns = cones.tie_notes(), data.patterns
        if singular != "keep" and cones.singular.any():
            if singular == "raise":
                found = np.flatnonzero(cones.singular).tolist()
                raise ValueError(f"patterns: the cones of {found} are singular")
            foreign = not data.bias and np.any(patterns.gate_bias)  # None is as good as zeros
            patterns, treated = treat_singular(patterns, cones, data.column_scale, data.bias)
            warnings.warn(_in_short(treated, bool(foreign)), PatternWarning, stacklevel=stacklevel)
            data = data.with_patterns(patterns)
            cones, notes = _make_cones(data), notes + treated
        self._pose(data, lam)
        self.cones, self.notes, self.singular = cones, notes, singular

    @classmethod
    def from_gated(cls, gated: CGReLU) -> CReLU:
        """The C-ReLU problem whose relaxation a given C-GReLU problem is; patterns are kept."""
        if not offers(gated.data.penalty, "neuron_norms"):
            raise ValueError(
                f"C-ReLU has the neuron penalty; the gated problem has {gated.penalty_name!r}"
            )
        if not gated.operator.in_numpy:
            raise TypeError("C-ReLU works on NumPy data; build the gated problem from NumPy arrays")
        problem = cls.__new__(cls)
        problem._pose_over(gated.data, gated.lam, "keep", stacklevel=3)
        return problem

    @property
    def gated(self) -> CGReLU:
        """The gated relaxation: the same data without the cones."""
        return CGReLU._of(self.data, self.lam)

    @cached_property
    def operator(self) -> Operator:
        return SignedMatrix(self.data.operator)

    @cached_property
    def operator_double(self) -> Operator:
        return SignedMatrix(self.data.operator_double)

    def _over(self, patterns: Patterns) -> CReLU:
        """Patterns with singular cones are treated as `singular` said when the problem was made."""
        other = type(self).__new__(type(self))
        gated = self.gated.with_patterns(patterns)
        other._pose_over(gated.data, self.lam, self.singular, stacklevel=4)
        return other

    @property
    def pattern_of_block(self) -> np.ndarray:
        """The pattern of each flat block; see `flat`."""
        p, C = len(self.patterns), self.weight_shape[2]
        return np.tile(np.repeat(np.arange(p), C), 2)

    def flat(self, U: Array) -> np.ndarray:
        """Blocks (2p, d, C) as rows (2pC, d), sign by sign, pattern by pattern, class by class."""
        return np.ascontiguousarray(np.asarray(U).transpose(0, 2, 1)).reshape(-1, U.shape[1])

    def unflat(self, rows: np.ndarray) -> np.ndarray:
        m, d, C = self.weight_shape
        return np.ascontiguousarray(rows.reshape(m, C, d).transpose(0, 2, 1))

    def check_weights(self, weights: Any, name: str = "weights") -> Array:
        if isinstance(weights, (tuple, list)) and len(weights) == 2:
            m, d, C = self.weight_shape
            parts = [self._check_blocks(part, (m // 2, d, C), name) for part in weights]
            return np.concatenate(parts, axis=0)
        return super().check_weights(weights, name)

    def present(self, U: Array) -> tuple[Array, Array]:
        p = len(self.patterns)
        return U[:p], U[p:]

    @property
    def _weight_dtype(self) -> Any:
        return np.float64

    def network(self, weights: Any) -> ReLUNetwork:
        """The ReLU network with these weights, in the units of the raw X (theorem 2.1)."""
        U = self.check_weights(weights)
        V, W = self.present(self._raw_units(U))
        return ReLUNetwork.from_convex(
            V, W, bias=self.bias, b2=self._output_bias(U), flat_output=self.flat_targets
        )

    def project(self, weights: Any) -> tuple[Array, Array]:
        """Weights (V, W) with every block projected onto its cone."""
        return self.present(self.make_feasible(self.check_weights(weights))[0])

    def make_feasible(
        self, U: Array, start: ActiveRows | None = None
    ) -> tuple[np.ndarray, ActiveRows]:
        """U with every block projected onto its cone and lifted over rounding, in float64. `start`
        are the active rows of an earlier call; those of this one are returned."""
        rows = self.flat(U).astype(np.float64)
        active = ActiveRows.empty(len(rows), self.cones.width) if start is None else start
        outside = np.flatnonzero(np.any(rows != 0, axis=1))
        pattern = self.pattern_of_block[outside]
        projected, state = self.cones.project(rows[outside], pattern, start=active.select(outside))
        active.store(outside, state)
        rows[outside] = self.cones.lift(projected, pattern)
        return self.unflat(rows), active

    def dual_correlation(self, Theta: Array, start: ActiveRows | None = None) -> Array:
        """Pi_K(-G) for the blocks G of the gradient. Blocks that are small enough as they are, for
        the scaling that would be best, need no projection. `start` are active rows of all flat
        blocks."""
        rows = -self.flat(self.operator_double.adjoint(Theta))
        self.project_correlation(rows, Theta, start, in_place=True)
        return self.unflat(rows)

    def project_correlation(
        self, rows: np.ndarray, Theta: Array, start: ActiveRows | None, in_place: bool = False
    ) -> tuple[np.ndarray, ActiveRows]:
        """Project those of the flat blocks -G that are too large for the scaling that would be
        best: their indices and active rows."""
        C = self.weight_shape[2]
        tau, _ = self.loss.best_dual(Theta, np.full(C, np.inf), np.zeros(C))
        enough = np.tile(self.lam / np.maximum(np.abs(tau), 1e-300), self.weight_shape[0])
        large = np.flatnonzero(np.linalg.norm(rows, axis=1) > enough)
        projected, active = self.cones.project(
            rows[large],
            self.pattern_of_block[large],
            enough=enough[large],
            start=None if start is None else start.select(large),
        )
        if in_place:
            rows[large] = projected
        return large, active

    def multipliers_of(self, blocks: np.ndarray, active: ActiveRows) -> Multipliers:
        """Multipliers of the rows of X from those of unit rows."""
        used = np.arange(active.rows.shape[1]) < active.count[:, None]
        used &= active.gamma > 0
        at, place = np.nonzero(used)
        row = active.rows[at, place]
        with np.errstate(over="ignore"):
            gamma = active.gamma[at, place] / self.cones.row_norms[row]
        some = np.isfinite(gamma)  # rows next to zero may do without theirs
        return Multipliers(blocks[at][some], row[some], gamma[some])

    def exceeds_dual_limit(self, G: Array) -> bool:
        """Whether some ||Pi_K(-G)|| > lam; found out with few projections where it is so."""
        rows, pattern = -self.flat(G), self.pattern_of_block
        norms = np.linalg.norm(rows, axis=1)
        order = np.argsort(-norms)
        for part in np.array_split(order, max(1, len(order) // 8)):
            part = part[norms[part] > self.lam]
            if len(part):
                projected, _ = self.cones.project(rows[part], pattern[part], enough=self.lam)
                if np.linalg.norm(projected, axis=1).max() > self.lam:
                    return True
        return False

    def max_violation(self, U: Array) -> float:
        rows = self.flat(U)
        live = np.flatnonzero(np.any(rows != 0, axis=1))
        return float(
            np.max(self.cones.violation(rows[live], self.pattern_of_block[live]), initial=0)
        )

    def proven_feasible(self, U: Array) -> tuple[Array, tuple[str, ...]]:
        """Every block lifted into its cone by as much as rounding may hide. Singular cones have no
        interior to lift into."""
        rows, pattern = self.flat(U), self.pattern_of_block
        live = np.flatnonzero(np.any(rows != 0, axis=1))
        short = live[~self.cones.proven_inside(rows[live], pattern[live])]
        if len(short) == 0:
            return U, ()
        rows[short] = self.cones.lift(rows[short], pattern[short])
        left = short[~self.cones.proven_inside(rows[short], pattern[short])]
        if len(left) == 0:
            return self.unflat(rows), ()
        kept = np.unique(pattern[left][self.cones.singular[pattern[left]]])
        why = f"those of {len(kept)} patterns are singular" if len(kept) else "they are too narrow"
        return self.unflat(rows), (
            f"{len(left)} weight vectors are in their cones up to rounding only: {why}",
        )

    def network_predictions(self, U: np.ndarray) -> np.ndarray:
        """sum +-(X v)_+, the predictions of the mapped network, which knows no patterns: (n, C)."""
        operator, (m, _, C) = self.operator_double, self.weight_shape
        Z = np.zeros((operator.n, C))
        for k in range(C):
            live = np.flatnonzero(np.any(U[:, :, k] != 0, axis=1))
            signs = np.where(live < m // 2, 1.0, -1.0)
            for rows in budget.pieces(len(Z), _BLOCK // max(1, len(live))):
                Z[rows, k] = np.maximum(operator.rows(rows) @ U[live, :, k].T, 0.0) @ signs
        return Z


def _check_patterns(patterns: Any) -> Patterns:
    if not isinstance(patterns, Patterns):
        raise TypeError(
            f"patterns must be Patterns, got {type(patterns).__name__}; "
            "see sample_patterns, Patterns.from_gates and Patterns.from_mask"
        )
    return patterns


def check_weights_fit(problem: Problem, further: int = 0) -> None:
    """Refuse work on weights that will not fit into memory, with so many `further` bytes."""
    blocks, d, C = problem.weight_shape
    sizes = {"n": problem.operator.n, "d": d, "p": len(problem.patterns), "C": C}
    check_memory(weight_bytes(blocks, d, C) + further, f"weights of {problem.kind}", **sizes)


def lambda_max(problem: Problem) -> float:
    """The smallest lam for which the zero model is optimal: the dual norm of M' grad f(0), for
    C-ReLU that of its projections onto the cones, which is smaller."""
    check_problem(problem)
    if not has_lambda_max(problem):
        raise ValueError(
            f"penalty {problem.penalty_name!r} has no lambda_max: no strength gives the zero model"
        )
    xp = array_namespace(problem.loss.Y)
    gradient = problem.loss.gradient(xp.zeros_like(double(problem.loss.Y)))
    check_weights_fit(problem)
    correlation = problem.operator_double.adjoint(gradient)
    if isinstance(problem, CReLU):
        return _largest_projection(problem, correlation)
    return float(xp.max(problem.penalty.dual_norm(correlation)))  # type: ignore[attr-defined]


def has_lambda_max(problem: Problem) -> bool:
    """Whether a large enough lam gives the zero model: a penalty that is a norm has a dual one."""
    return hasattr(problem.penalty, "dual_norm")


def _largest_projection(problem: CReLU, G: Array) -> float:
    """max ||Pi_K(-G)|| over the blocks, largest first: a block is given up as soon as it is known
    to stay below the largest one found."""
    rows, pattern = -problem.flat(G), problem.pattern_of_block
    norms = np.linalg.norm(rows, axis=1)
    largest = 0.0
    for part in np.array_split(np.argsort(-norms), max(1, len(norms) // 64)):
        part = part[norms[part] > largest]
        if len(part):
            projected, _ = problem.cones.project(rows[part], pattern[part], enough=largest)
            largest = max(largest, float(np.linalg.norm(projected, axis=1).max()))
    return largest


def _in_short(treated: Sequence[str], foreign: bool) -> str:
    """What was done to patterns with singular cones, for a warning."""
    cause = ["the gates of the patterns have a bias, but the problem has none: pass bias=True"]
    more = [f"{len(treated) - 3} more, see problem.notes"] if len(treated) > 3 else []
    return "; ".join([*(cause if foreign else []), *treated[:3], *more])


def _make_cones(data: ProblemData) -> Cones:
    """The cones of a problem's patterns, with its gates as interior points in its own units."""
    patterns, scale = data.patterns, data.column_scale
    _check_size(data.operator.rows(), len(patterns), cones=True)
    gates = None
    if patterns.gates is not None and patterns.gate_bias is not None:
        if data.bias:
            gates = np.vstack([patterns.gates, patterns.gate_bias]) * scale[:, None]
        else:  # a gate with a bias is no point of a cone without one
            gates = np.where(patterns.gate_bias == 0, patterns.gates * scale[:, None], 0.0)
    return Cones(data.operator_double.rows(), patterns.mask, gates)


def _make_data(
    X: Array,
    Y: Any,
    patterns: Patterns,
    loss: LossChoice,
    penalty: Penalty,
    *,
    bias: bool,
    output_bias: bool,
    normalize: bool,
    sample_weight: Any,
) -> ProblemData:
    """The data of a problem, checked. The size is checked before anything large is made."""
    Y, flat_targets = check_targets(Y, X)
    bias, normalize = check_flag(bias, "bias"), check_flag(normalize, "normalize")
    output_bias = check_flag(output_bias, "output_bias")
    bound = make_loss(loss, Y, sample_weight=sample_weight, intercept=output_bias)
    _check_patterns(patterns).check_belong_to(X)
    _check_size(X, len(patterns), cones=False, copies=bias + normalize)
    X, column_scale = _design_matrix(X, bias, normalize)
    return ProblemData(
        patterns=patterns,
        operator=expanded_matrix(X, patterns.mask),
        loss=bound,
        loss_name=name_of(loss, LOSSES),
        penalty=penalty,
        penalty_name=name_of(penalty, PENALTIES),
        bias=bias,
        output_bias=output_bias,
        normalize=normalize,
        flat_targets=flat_targets,
        column_scale=column_scale,
    )


def _check_size(X: Array, p: int, *, cones: bool, copies: int = 0) -> None:
    """Refuse a problem that will not fit into memory, before it is made."""
    (n, d), dense = X.shape, not is_sparse(X)
    need = problem_bytes(n, d, p, dense=dense, cones=cones) + (
        DOUBLE * copies * n * d if dense else 0
    )
    check_memory(need, "C-ReLU" if cones else "C-GReLU", n=n, d=d, p=p)


def _design_matrix(X: Array, bias: bool, normalize: bool) -> tuple[Array, np.ndarray]:
    """X with its column of ones and unit-norm columns, where asked for, and the column scale."""
    if bias:
        X = with_ones(X)
    if not normalize:
        return X, np.ones(X.shape[1])
    data = to_numpy(X, keep_sparse=True)
    scale = unit_scale(data)
    warn_about_small(data, scale, stacklevel=4)
    return divide_columns(X, scale), scale
