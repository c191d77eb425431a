"""C-ReLU, the ReLU network as a convex program with cone constraints."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from cvxnn import budget
from cvxnn.arrays import (
    Array,
    array_namespace,
    double,
    is_stored,
    like,
    to_numpy,
    widest,
)
from cvxnn.cones.cones import Cones
from cvxnn.cones.projection import ActiveRows
from cvxnn.cones.screening import LastProjections
from cvxnn.cones.singular import PatternWarning, treat_singular
from cvxnn.losses import LossChoice
from cvxnn.networks import ReLUNetwork
from cvxnn.operators import Operator, SignedMatrix
from cvxnn.patterns import Patterns
from cvxnn.problems.base import ConvexProblem
from cvxnn.problems.columns import Columns
from cvxnn.problems.data import ProblemData
from cvxnn.problems.gated import CGReLU
from cvxnn.problems.sizes import check_size
from cvxnn.proofs import Multipliers
from cvxnn.sharded import is_sharded
from cvxnn.threads import cached_property
from cvxnn.validation import check_choice, check_features, offers

_BLOCK = 2**22  # products of rows and neurons held at a time
_LATER = 0.3  # of the longest: how long blocks are that may be left for later
_FEW = 64  # blocks that are projected at a time, longest first: those may be all that matter


class CReLU(ConvexProblem):
    """C-ReLU: a ReLU network as a convex program with cone constraints.

    Parameters are those of `CGReLU`; the penalty is the paper's, and data are taken to NumPy. On a
    device (`solve(..., device=...)`) are products and constraints; the cones remain in NumPy.
    Weights are float64 whatever the data are: rounded to float32 they would leave their cones.

    singular : what to do with patterns whose cone lies in a subspace. "replace" drops one where a
        non-singular pattern with the same fit contains its cone, and otherwise replaces it by the
        pattern that the proof of proposition 3.2 constructs (the value can only fall); "keep"
        keeps it, "raise" refuses. What was done is warned about and stands in `notes`.

    Weights are the pair (V, W), each (p, d, C), as for `CGReLU`; inside they are stacked to
    (2p, d, C).
    """

    kind = "C-ReLU"
    _other_cones: tuple[Columns, Cones] | None = None  # the cones in other columns

    def __init__(
        self,
        X: ArrayLike,
        Y: ArrayLike,
        patterns: Patterns,
        lam: float,
        *,
        loss: str | LossChoice = "squared",
        bias: bool = False,
        output_bias: bool = False,
        normalize: bool = False,
        singular: str = "replace",
        sample_weight: ArrayLike | None = None,
        huber_delta: float | None = None,
    ) -> None:
        check_choice(singular, "singular", ("replace", "keep", "raise"))
        _check_in_memory(not is_stored(X) and not is_sharded(X))
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
            unused_bias = not data.bias and bool(np.any(patterns.gate_bias))  # false for None
            patterns, treated = treat_singular(patterns, cones, data.column_scale, data.bias)
            warnings.warn(_summary(treated, unused_bias), PatternWarning, stacklevel=stacklevel)
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
        _check_in_memory(gated.operator.in_memory)
        if not gated.operator.in_numpy:
            raise TypeError("C-ReLU works on NumPy data; build the gated problem from NumPy arrays")
        problem = cls.__new__(cls)
        problem._pose_over(gated.data, gated.lam, "keep", stacklevel=3)
        return problem

    def in_columns(self, columns: Columns) -> Self:
        other, data = type(self).__new__(type(self)), self.data.in_columns(columns)
        other._pose(data, self.lam)
        if self._other_cones is None or self._other_cones[0] is not columns:
            gates = self.cones.gates
            gates = None if gates is None else columns.coordinates(gates)
            cones = Cones(data.operator_double.rows(), self.patterns.mask, gates)
            self._other_cones = columns, cones
        other.cones, other.notes, other.singular = self._other_cones[1], self.notes, self.singular
        return other

    def _with_data(self, data: ProblemData) -> Self:
        other = type(self)._of(data, self.lam)
        other.cones, other.notes, other.singular = self.cones, self.notes, self.singular
        return other

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

    def _over(self, patterns: Patterns) -> Self:
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

    @cached_property
    def sides(self) -> tuple[Array, Array]:
        """The signs of 2 D_i - I, (p, n), and `pattern_of_block`, where the data are."""
        if self.operator.in_numpy:
            return self.cones.signs, self.pattern_of_block
        X = self.operator.rows()
        xp = array_namespace(X)
        return like(X, self.cones.signs, xp.int8), like(X, self.pattern_of_block, xp.int64)

    def flat(self, U: Array) -> Any:
        """Blocks (2p, d, C) as rows (2pC, d), sign by sign, pattern by pattern, class by class."""
        xp = array_namespace(U)
        rows = xp.reshape(xp.permute_dims(U, (0, 2, 1)), (-1, U.shape[1]))
        return np.ascontiguousarray(rows) if isinstance(rows, np.ndarray) else rows

    def unflat(self, rows: Array) -> Any:
        m, d, C = self.weight_shape
        xp = array_namespace(rows)
        blocks = xp.permute_dims(xp.reshape(rows, (m, C, d)), (0, 2, 1))
        return np.ascontiguousarray(blocks) if isinstance(blocks, np.ndarray) else blocks

    def check_weights(self, weights: ArrayLike, name: str = "weights") -> Array:
        """(V, W), a pair or one array (2, p, d, C), as one array; or what this returns."""
        m, d, C = self.weight_shape
        each, shape = (m // 2, d, C), tuple(getattr(weights, "shape", ()))
        if shape == each:
            raise ValueError(
                f"{name} must be the pair (V, W), each of shape {each}, got one such array; "
                "`decompose` makes a pair of those of a gated problem"
            )
        if shape == (2, *each) or (isinstance(weights, (tuple, list)) and len(weights) == 2):
            pair: Any = weights
            parts = [self._check_blocks(part, each, name) for part in pair]
            return array_namespace(parts[0]).concat(parts, axis=0)
        return super().check_weights(weights, name)

    def present(self, U: Array) -> tuple[Array, Array]:
        p = len(self.patterns)
        return U[:p, ...], U[p:, ...]

    @property
    def _weight_dtype(self) -> object:
        return widest(self.loss.Y)

    def network(self, weights: ArrayLike) -> ReLUNetwork:
        """The ReLU network with these weights, in the units of the raw X (theorem 2.1)."""
        U = self.check_weights(weights)
        V, W = self.present(self._raw_units(U))
        return ReLUNetwork.from_convex(
            V, W, bias=self.bias, b2=self._output_bias(U), flat_output=self.flat_targets
        )

    def project(self, weights: ArrayLike) -> tuple[Array, Array]:
        """Weights (V, W) with every block projected onto its cone."""
        return self.present(self.make_feasible(self.check_weights(weights))[0])

    def make_feasible(
        self, U: Array, start: ActiveRows | None = None
    ) -> tuple[np.ndarray, ActiveRows]:
        """U with every block projected onto its cone and lifted over rounding, in float64. `start`
        are the active rows of an earlier call; those of this one are returned."""
        rows = self.flat(to_numpy(U)).astype(np.float64)
        active = ActiveRows.empty(len(rows), self.cones.width) if start is None else start
        outside = np.flatnonzero(np.any(rows != 0, axis=1))
        pattern = self.pattern_of_block[outside]
        projected, state = self.cones.project(rows[outside], pattern, start=active.used(outside))
        active.store(outside, state)
        rows[outside] = self.cones.lift(projected, pattern)
        return self.unflat(rows), active

    def dual_correlation(self, Theta: Array, start: ActiveRows | None = None) -> Array:
        """Pi_K(-G) for the blocks G of the gradient. Blocks that are small enough as they are, for
        the scaling that would be best, need no projection. `start` are active rows of all flat
        blocks."""
        rows = -self.flat(double(to_numpy(self.operator_double.adjoint(Theta))))
        self.project_correlation(rows, Theta, start, in_place=True)
        return self.operator_double.like(self.unflat(rows))

    def project_correlation(
        self,
        rows: np.ndarray,
        Theta: Array,
        start: ActiveRows | None,
        in_place: bool = False,
        rough: bool = False,
    ) -> tuple[np.ndarray, ActiveRows]:
        """Project those of the flat blocks -G that are too large for the scaling that would be
        best; returns their indices and active rows.

        The longest of a class limits the scaling. The others need be no shorter, so rough bounds
        (see `Cones.project`) do for most of them, and with `rough` for all.
        """
        C = self.weight_shape[2]
        free, none = like(Theta, np.full(C, np.inf)), like(Theta, np.zeros(C))
        tau = to_numpy(self.loss.best_dual(Theta, free, none)[0])
        enough = np.tile(self.lam / np.maximum(np.abs(tau), 1e-300), self.weight_shape[0])
        large = np.flatnonzero(np.linalg.norm(rows, axis=1) > enough)
        points, pattern, classes = rows[large], self.pattern_of_block[large], large % C
        enough, longest = enough[large], np.zeros(C)
        # what the multipliers of the start prove as they are
        start = None if start is None else start.used(large)
        projected, active = self.cones.project(points, pattern, enough=np.inf, start=start)
        bounds = np.linalg.norm(projected, axis=1)

        def project(part: np.ndarray, rough: bool) -> None:
            projected[part], state = self.cones.project(
                points[part],
                pattern[part],
                enough=np.maximum(enough[part], longest[classes[part]]),
                start=active.used(part),
                rough=rough,
            )
            active.store(part, state)
            bounds[part] = np.linalg.norm(projected[part], axis=1)
            if not rough:
                np.maximum.at(longest, classes[part], bounds[part])

        def too_long() -> np.ndarray:
            left = np.flatnonzero(bounds > np.maximum(enough, longest[classes]))
            return left[np.argsort(-bounds[left], kind="stable")]

        if start is not None and not rough:
            project(too_long()[:_FEW], rough=False)
        project(too_long(), rough=True)
        left = too_long()
        while len(left) and not rough:
            project(left[:_FEW], rough=False)
            left = left[_FEW:]
            left = left[bounds[left] > longest[classes[left]]]
        if in_place:
            rows[large] = projected
        return large, active

    def shorten_correlation(self, rows: np.ndarray, Theta: Array, last: LastProjections) -> None:
        """The same in place, where the last projections show which blocks are small enough. Rough
        bounds tell which of the others may be the longest of their class."""
        C = self.weight_shape[2]
        tau, _ = self.loss.best_dual(Theta, np.full(C, np.inf), np.zeros(C))
        limit = self.lam / np.maximum(np.abs(tau), 1e-300)
        enough = np.tile(limit, self.weight_shape[0])
        large = np.flatnonzero(np.linalg.norm(rows, axis=1) > enough)
        points = rows[large]

        def project(part: np.ndarray, rough: bool) -> np.ndarray:
            which = large[part]
            pattern = self.pattern_of_block[which]
            rows[which] = last.project(
                self.cones, points[part], which, pattern, enough[which], rough
            )
            with np.errstate(under="ignore"):  # projections may leave entries next to zero
                return np.linalg.norm(rows[which], axis=1)

        if not last.active.count.any():  # much shorter ones than the longest have time
            longest = np.argsort(-np.linalg.norm(points, axis=1), kind="stable")[:_FEW]
            np.maximum.at(enough, large, _LATER * project(longest, rough=False).max(initial=0.0))
        sizes = project(np.arange(len(large)), rough=True)
        left = np.argsort(-sizes, kind="stable")
        while True:
            left = left[sizes[left] > limit[large[left] % C]]
            if len(left) == 0:
                return
            part, left = left[:_FEW], left[_FEW:]
            np.maximum.at(limit, large[part] % C, project(part, rough=False))

    def multipliers_of(self, blocks: np.ndarray, active: ActiveRows) -> Multipliers:
        """Multipliers of the rows of X from those of unit rows, block by block."""
        used = np.arange(active.rows.shape[1]) < active.count[:, None]
        used &= active.gamma > 0
        at, place = np.nonzero(used)
        row = active.rows[at, place]
        with np.errstate(over="ignore"):
            gamma = active.gamma[at, place] / self.cones.row_norms[row]
        some = np.isfinite(
            gamma
        )  # those of rows close to zero may be left out: any gamma >= 0 is valid
        return Multipliers(blocks[at][some], row[some], gamma[some])

    def exceeds_dual_limit(self, G: Array) -> bool:
        """Whether some ||Pi_K(-G)|| > lam. Where it is true, few projections are enough to tell."""
        rows, pattern = -self.flat(double(to_numpy(G))), self.pattern_of_block
        norms = np.linalg.norm(rows, axis=1)
        order = np.argsort(-norms)
        # a few at a time, longest first: the first part mostly decides
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


def _summary(treated: Sequence[str], unused_bias: bool) -> str:
    """What was done to patterns with singular cones, for a warning."""
    cause = ["the gates of the patterns have a bias, but the problem has none: pass bias=True"]
    more = [f"{len(treated) - 3} more, see problem.notes"] if len(treated) > 3 else []
    return "; ".join([*(cause if unused_bias else []), *treated[:3], *more])


def _check_in_memory(in_memory: bool) -> None:
    if not in_memory:
        raise TypeError(
            "C-ReLU needs its rows in the memory of one process, for projections onto their cones, "
            "and these are in a file or in several processes; train a gated network, or take a "
            "sample of the rows, such as X[:100_000]"
        )


def _make_cones(data: ProblemData) -> Cones:
    """The cones of a problem's patterns, with its gates as interior points in its own units."""
    patterns, scale = data.patterns, data.column_scale
    check_size(data.operator.rows(), len(patterns), cones=True)
    gates = None
    if patterns.gates is not None and patterns.gate_bias is not None:
        if data.bias:
            gates = np.vstack([patterns.gates, patterns.gate_bias]) * scale[:, None]
        else:  # in these cones, a gate with a bias is not a point
            gates = np.where(patterns.gate_bias == 0, patterns.gates * scale[:, None], 0.0)
    return Cones(data.operator_double.rows(), patterns.mask, gates)
