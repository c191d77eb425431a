"""What solvers, certificates and reports may ask of the data and their patterns.

An operator stands for the matrix that takes the weights of all blocks to predictions. Nothing
outside this package knows how X and the patterns are stored, so data in another form (in files, on
other machines) need a class here and no change elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from cvxnn.arrays import Array
from cvxnn.bits import Bits, Chosen
from cvxnn.ranks import Ranks

if TYPE_CHECKING:
    from cvxnn.operators.batches import Batch
    from cvxnn.operators.ragged import RaggedOperator


class Operator(Protocol):
    """A linear map from weights (p, d, C) to predictions (n, C). Products are in the precision of
    the data and are counted in the budget of the run."""

    n: int  # rows of this process
    d: int  # columns of X, with that of ones if there is one
    p: int  # blocks of weights

    @property
    def base(self) -> PatternOperator:
        """The operator of the patterns without their signs; it may be this one."""

    @property
    def dtype(self) -> Any:
        """The precision of X and of products."""

    @property
    def is_double(self) -> bool: ...

    @property
    def is_sparse(self) -> bool: ...

    @property
    def in_numpy(self) -> bool:
        """Whether NumPy computes with the data, dense or sparse."""

    @property
    def in_memory(self) -> bool:
        """Whether the rows are in memory; if not, `rows` gives some of them at a time."""

    @property
    def mask(self) -> np.ndarray:
        """The patterns as booleans: (n, patterns). It is large, and made at each use."""

    def rows(self, rows: slice = slice(None)) -> Any:
        """These rows of X, or all of them: an array or, of rows in a file, the file."""

    def like(self, values: ArrayLike, dtype: object = None) -> Array:
        """`values` as a dense array of the library and device, and unless given of the precision,
        of the data."""

    def forward(self, U: Array) -> Array:
        """The predictions of weights: (p, d, C) -> (n, C)."""

    def adjoint(self, R: Array) -> Array:
        """The correlation of all blocks with residuals: (n, C) -> (p, d, C)."""

    def block_norms(self) -> Array:
        """Upper bounds of the spectral norms of the blocks: (p,)."""

    def in_double(self) -> Self:
        """The same operator in float64, which may be this one."""


class PatternOperator(Operator, Protocol):
    """M = [D_1 X ... D_p X], with one block for each pattern."""

    @property
    def n_all(self) -> int:
        """Rows of all ranks."""

    @property
    def across(self) -> Ranks:
        """The ranks that have the other rows. Adjoint products, norms of blocks and magnitudes are
        those of all rows; whatever belongs to a row is that of the rows here."""

    @property
    def bits(self) -> Bits:
        """The patterns."""

    def mask_of(self, patterns: Chosen) -> np.ndarray:
        """These patterns (indices) as booleans, the rows of a pattern side by side: (k, n)."""

    def select(self, patterns: np.ndarray, dtype: DTypeLike | None = None) -> Self:
        """The operator of these patterns (indices), in float32 or float64 if asked for."""

    def ragged(self, patterns: Sequence[np.ndarray], dtype: type) -> RaggedOperator:
        """The operator of a set of patterns (indices) for each class."""

    def batch(self, rows: np.ndarray) -> Batch:
        """Products with these rows (indices) alone, in float32."""

    def in_single(self) -> Self:
        """The same operator in float32, which may be this one."""

    def with_data(self, X: Array) -> Self:
        """The operator of other data with the same patterns."""

    def with_patterns(self, patterns: Bits) -> Self:
        """The operator of the same data with other patterns."""

    def row_squares(self) -> np.ndarray:
        """The squared norms of the rows of X: (n,)."""

    def magnitudes(self, R: Array) -> Array:
        """|X|'R over the rows that some pattern uses, for R >= 0: (n, C) -> (d, C). The rounding
        error of an adjoint product is a small multiple of it, the same for all patterns."""

    def kernel(self) -> Array:
        """M M': (n, n)."""

    def solve_system(
        self,
        scale: np.ndarray,
        weight: np.ndarray,
        along: np.ndarray,
        unit: np.ndarray,
        span: np.ndarray,
        preconditioner: tuple[np.ndarray | None, np.ndarray | None, np.ndarray],
        r: np.ndarray,
        start: np.ndarray | None,
        *,
        tol: float,
        error: float,
        max_iter: int,
    ) -> tuple[np.ndarray, int, bool] | None:
        """Conjugate gradients for (I + S M P M'S) x = r in one compiled call, as
        `kernels.native.solve_system` describes it. None where there is none, and where products are
        so large that they are better shared among threads."""
