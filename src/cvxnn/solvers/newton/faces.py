"""Where the prox of the active blocks is linearised, and the faces of cones in which they lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from cvxnn import budget, panels
from cvxnn.arrays import Matrix
from cvxnn.cones.sparse import Span
from cvxnn.threads import cached_property

FEW_ENTRIES = 2**16  # of the bases of faces that are found once for all their uses


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


class Faces:
    """The faces of cones in which active blocks lie, from the rows they hold tight."""

    def __init__(
        self,
        groups: list[tuple[np.ndarray, np.ndarray]],
        n_blocks: int,
        d: int,
        unit: np.ndarray | None = None,
        narrow: Sequence[tuple[np.ndarray, np.ndarray]] = (),
    ) -> None:
        """`groups` are blocks with equally many tight rows: which, and their rows (len, k, d).
        `unit` are the unit vectors of all blocks, (n_blocks, d), which `columns` needs. `narrow`
        are blocks whose faces are given by orthonormal bases: which, and these (len, d, m)."""
        self._groups, self._unit, self._narrow = groups, unit, narrow
        self.dimension = np.full(n_blocks, d)
        for which, rows in groups:
            self.dimension[which] -= rows.shape[1]
        for which, basis in narrow:
            self.dimension[which] = basis.shape[2]

    def _moments(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The groups in parts that take a moment to factor."""
        for which, rows in self._groups:
            k, d = rows.shape[1:]
            work = 4 * d * max(k, 1) * max(k, d)
            for part in budget.pieces(len(which), int(budget.PIECE * budget.RATE / work)):
                yield which[part], rows[part]

    @cached_property
    def _bases(self) -> list[tuple[np.ndarray, int, np.ndarray]]:
        """Blocks, the number k of their tight rows, and orthonormal bases of R^d (len, d, d): k
        vectors that span these rows, then the direction of the block itself, then the rest."""
        assert self._unit is not None
        bases = []
        for which, rows in self._moments():
            spanned = np.concatenate([rows, self._unit[which][:, None, :]], axis=1)
            Q = np.linalg.qr(spanned.transpose(0, 2, 1), mode="complete")[0]
            bases.append((which, rows.shape[1], Q))
        return bases

    @cached_property
    def _spans(self) -> list[tuple[np.ndarray, np.ndarray]]:
        if "_bases" in self.__dict__ or self.few:
            return [(which, Q[:, :, :k]) for which, k, Q in self._bases if k]
        return [
            (which, np.linalg.qr(rows.transpose(0, 2, 1))[0])
            for which, rows in self._moments()
            if rows.shape[1]
        ]

    @property
    def few(self) -> bool:
        """Whether whole bases take no longer to find than calls for parts of them."""
        return self._unit is not None and self._unit.size * self._unit.shape[1] <= FEW_ENTRIES

    def columns(self, at: Linearisation, X: Matrix) -> tuple[np.ndarray, np.ndarray]:
        """X P^(1/2) by an orthonormal basis of each face, the direction of the block itself first:
        (R, n), and the block of each, (R,)."""
        d = X.shape[1]
        bases, owner = [at.unit], [np.arange(len(at.on))]
        for which, k, Q in self._bases:
            if k + 1 < d:
                rest = Q[:, :, k + 1 :] * np.sqrt(1 - at.ratio[which])[:, None, None]
                bases.append(rest.transpose(0, 2, 1).reshape(-1, d))
                owner.append(np.repeat(which, d - k - 1))
        for which, basis in self._narrow:
            along = np.einsum("bdm,bd->bm", basis, at.unit[which])[:, :, None]
            rest = basis @ np.linalg.qr(along, mode="complete")[0][:, :, 1:]
            rest *= np.sqrt(1 - at.ratio[which])[:, None, None]
            bases.append(rest.transpose(0, 2, 1).reshape(-1, d))
            owner.append(np.repeat(which, rest.shape[2]))
        return panels.multiply(np.concatenate(bases), X.T), np.concatenate(owner)

    def bases(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Blocks, and orthonormal rows (len, dimension, d) that span their faces."""
        for which, rows in self._moments():
            every = np.linalg.qr(rows.transpose(0, 2, 1), mode="complete")[0]
            yield which, every[:, :, rows.shape[1] :].transpose(0, 2, 1)
        for which, basis in self._narrow:
            yield which, basis.transpose(0, 2, 1)

    def project(self, rows: np.ndarray) -> np.ndarray:
        """Rows (a, d), one for each block, projected onto the spans of the faces."""
        result = rows.copy()
        for which, Q in self._spans:
            part = Q.transpose(0, 2, 1) @ result[which][:, :, None]
            result[which] -= (Q @ part)[:, :, 0]
        for which, basis in self._narrow:
            part = basis.transpose(0, 2, 1) @ result[which][:, :, None]
            result[which] = (basis @ part)[:, :, 0]
        return result


class SparseFaces(Faces):
    """The same for sparse rows, which enter by their Gram matrices."""

    def __init__(self, X: csr_array, active: list[np.ndarray]) -> None:
        """`active` are the tight rows of each block, indices into unit rows X."""
        self.dimension = np.array([X.shape[1] - len(rows) for rows in active])
        self._tight = [Span(X, rows) for rows in active]

    def columns(self, at: Linearisation, X: Matrix) -> tuple[np.ndarray, np.ndarray]:
        columns, owner = [at.unit @ X.T], [np.arange(len(at.on))]
        rng = np.random.default_rng(0)
        for b, unit in enumerate(at.unit):
            budget.look()
            m = self.dimension[b] - 1
            if m > 0:  # the face is the range of its projection, of random vectors for instance
                outside = self._tight[b].remove(rng.standard_normal((len(unit), m)))
                rows = np.linalg.qr(outside - np.outer(unit, unit @ outside))[0].T
                columns.append(np.sqrt(1 - at.ratio[b]) * (rows @ X.T))
                owner.append(np.full(m, b))
        return np.concatenate(columns), np.concatenate(owner)

    def project(self, rows: np.ndarray) -> np.ndarray:
        parts = []
        for row, span in zip(rows, self._tight, strict=True):
            budget.look()
            parts.append(span.remove(row))
        return np.array(parts).reshape(rows.shape)  # there may be none
