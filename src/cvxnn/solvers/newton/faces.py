"""Where the prox of the active blocks is linearised, and the faces of cones in which they lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from cvxnn import budget, panels
from cvxnn.arrays import Matrix
from cvxnn.cones.sparse import Span
from cvxnn.kernels import native
from cvxnn.kernels.projections import orthonormal_rows
from cvxnn.threads import cached_property


@dataclass(frozen=True, eq=False)
class Linearisation:
    """Where the prox is linearised: the active blocks `on` of the working set, their unit
    vectors (a, d), and the ratios c in (0, 1)."""

    on: np.ndarray
    unit: np.ndarray
    ratio: np.ndarray

    def shrink(self, rows: np.ndarray) -> np.ndarray:
        """(1 - c) r + c <r, q^> q^ for rows r (a, d) that lie in the faces."""
        along = self.ratio * np.einsum("ij,ij->i", rows, self.unit)
        return (1 - self.ratio)[:, None] * rows + along[:, None] * self.unit


class Bases(NamedTuple):
    """Orthonormal rows (R, d) of several blocks, block by block, and the block of each, (R,)."""

    rows: np.ndarray
    owner: np.ndarray

    def project(self, rows: np.ndarray) -> np.ndarray:
        """Rows (a, d), one for each block, projected onto the spans of these."""
        along = np.einsum("rd,rd->r", self.rows, rows[self.owner])
        result = np.zeros_like(rows)
        if len(along):
            first = np.flatnonzero(np.diff(self.owner, prepend=-1))
            result[self.owner[first]] = np.add.reduceat(along[:, None] * self.rows, first)
        return result


class Faces:
    """The faces of cones in which active blocks lie, from the rows they hold tight."""

    def __init__(
        self,
        X: np.ndarray,
        tight: np.ndarray,
        count: np.ndarray,
        given: Mapping[int, np.ndarray] | None = None,
    ) -> None:
        """Block b holds the rows of X (n, d) tight that tight[b] lists first, count[b] of them.
        `given` are orthonormal bases (m, d) of the faces of some blocks, where they are known."""
        self._X, self._tight, self._count = X, tight, count
        self._given = {} if given is None else given
        self.dimension = np.maximum(X.shape[1] - count, 0)
        for block, basis in self._given.items():
            self.dimension[block] = len(basis)

    @cached_property
    def bases(self) -> Bases:
        """Orthonormal rows that span the faces."""
        return self._bases(self.dimension, complement=True)

    @cached_property
    def _normals(self) -> Bases:
        """Orthonormal rows that span the tight rows."""
        return self._bases(np.minimum(self._count, self._X.shape[1]), complement=False)

    def _bases(self, sizes: np.ndarray, complement: bool) -> Bases:
        d = self._X.shape[1]
        edges = np.concatenate([[0], np.cumsum(sizes)])
        rows = np.empty((edges[-1], d))
        left = np.ones(len(sizes), dtype=bool)
        if complement:
            for block, basis in self._given.items():
                rows[edges[block] : edges[block + 1]] = basis
                left[block] = False
        which = np.flatnonzero(left)
        tight, count, first = self._tight[which], self._count[which], edges[which]
        if native.library() is not None:
            orthonormal_rows(self._X, tight, count, first, rows, complement=complement)
        else:
            for its, k, start in zip(tight, count.tolist(), first.tolist(), strict=True):
                budget.look()
                Q = np.linalg.qr(self._X[its[:k]].T, mode="complete")[0].T
                part = Q[k:] if complement else Q[:k]
                rows[start : start + len(part)] = part
        return Bases(rows, np.repeat(np.arange(len(sizes)), sizes))

    def columns(self, at: Linearisation, X: Matrix) -> tuple[np.ndarray, np.ndarray]:
        """X P^(1/2) in an orthonormal basis of each face: (R, n), and the block of each, (R,).
        P^(1/2) is sqrt(1 - c) F + (1 - sqrt(1 - c)) u^ u^'."""
        rows, owner = self.bases
        unit, shrunk = at.unit[owner], np.sqrt(1 - at.ratio)[owner, None]
        along = np.einsum("rd,rd->r", rows, unit)[:, None]
        return panels.multiply(shrunk * rows + (1 - shrunk) * along * unit, X.T), owner

    def project(self, rows: np.ndarray) -> np.ndarray:
        """Rows (a, d), one for each block, projected onto the spans of the faces."""
        fewer_normals = 2 * int(self._count.sum()) < self._count.size * self._X.shape[1]
        if "bases" in self.__dict__ or self._given or not fewer_normals:
            return self.bases.project(rows)
        return rows - self._normals.project(rows)


class SparseFaces(Faces):
    """The same for sparse rows, which enter by their Gram matrices."""

    def __init__(self, X: csr_array, active: list[np.ndarray]) -> None:
        """`active` are the tight rows of each block, indices into unit rows X."""
        self.dimension = np.array([X.shape[1] - len(rows) for rows in active])
        self._spans = [Span(X, rows) for rows in active]

    def columns(self, at: Linearisation, X: Matrix) -> tuple[np.ndarray, np.ndarray]:
        columns, owner = [at.unit @ X.T], [np.arange(len(at.on))]
        rng = np.random.default_rng(0)
        for b, unit in enumerate(at.unit):
            budget.look()
            m = self.dimension[b] - 1
            if m > 0:  # the face is the range of its projection, of random vectors for instance
                outside = self._spans[b].remove(rng.standard_normal((len(unit), m)))
                rows = np.linalg.qr(outside - np.outer(unit, unit @ outside))[0].T
                columns.append(np.sqrt(1 - at.ratio[b]) * (rows @ X.T))
                owner.append(np.full(m, b))
        return np.concatenate(columns), np.concatenate(owner)

    def project(self, rows: np.ndarray) -> np.ndarray:
        parts = []
        for row, span in zip(rows, self._spans, strict=True):
            budget.look()
            parts.append(span.remove(row))
        return np.array(parts).reshape(rows.shape)  # there may be none
