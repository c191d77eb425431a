"""Where the rows of a fit are: in memory, or in a file where `max_memory` leaves too little.

A fit in memory holds its rows several times (as distinct, as scaled, with a column of ones, in
single precision) and what preconditions Newton's systems. With rows in a file it holds the bits of
the patterns, a few vectors for each output, some copies of the weights, and two chunks of rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse

from cvxnn import stored
from cvxnn.arrays import is_stored
from cvxnn.memory import TooLargeError, size_text
from cvxnn.solvers.newton.method import Newton
from cvxnn.solvers.rfista import RFISTA
from cvxnn.stored import StoredRows

ROW_COPIES = 6  # of X in float64 in a fit in memory: sorting the rows is what takes most
FEWEST = 10  # patterns: with fewer there is no point in a fit


def place(
    X: Any, *, n_patterns: int, n_outputs: int, cones: bool, generated: bool, most: int
) -> Any:
    """X itself, or rows of a file in memory, if a fit takes `most` bytes at most, beside X as it is
    given; else its rows in a temporary file. Raises where not even that is enough."""
    if issparse(X) or len(getattr(X, "shape", ())) != 2:
        return X
    n, d = X.shape
    need = in_memory_bytes(n, d, n_patterns, n_outputs) + (8 * n * d if is_stored(X) else 0)
    if need <= most:
        return X[:] if is_stored(X) else X
    sizes = f"{n:,} rows x {d} columns"
    if generated:
        raise TooLargeError(
            f"max_memory={size_text(most)} is too little to generate patterns on {sizes}: that "
            f"needs the rows in memory, about {size_text(need)} in all; sample them for a gated "
            "network, or train on fewer rows"
        )
    if cones:
        raise TooLargeError(
            f"max_memory={size_text(most)} is too little for a ReLU network on {sizes}: its cones "
            f"need the rows in memory, about {size_text(need)} in all; train a gated network, or "
            "on fewer rows"
        )
    need = in_file_bytes(n, d, n_patterns, n_outputs)
    if need > most:
        raise TooLargeError(
            f"max_memory={size_text(most)} is too little for {n_patterns} patterns on {sizes} with "
            f"{n_outputs} output{'s' if n_outputs > 1 else ''}, which take about "
            f"{size_text(need)} even with the rows in a file; {_what_fits(n, d, n_outputs, most)}"
        )
    return X if is_stored(X) else _in_file(X)


def in_memory_bytes(n: int, d: int, p: int, C: int) -> int:
    """What a fit in memory takes at most, beside X as it is given."""
    return ROW_COPIES * 8 * n * (d + 1) + n * p // 4 + Newton.scratch(n, d + 1, p, C)


def in_file_bytes(n: int, d: int, p: int, C: int) -> int:
    """What a fit with rows in a file takes at most: bits, as they are and of the active patterns,
    chunks as they are read and as columns are scaled, and what R-FISTA needs."""
    return n * p // 4 + 8 * stored.CHUNK + RFISTA.scratch(n, d + 1, p, C)


def _what_fits(n: int, d: int, C: int, most: int) -> str:
    least = in_file_bytes(n, d, FEWEST, C)
    if least > most:
        return f"at least {size_text(least)} are needed"
    per_pattern = (in_file_bytes(n, d, 2 * FEWEST, C) - least) / FEWEST
    return f"n_patterns={FEWEST + int((most - least) / per_pattern)} would fit"


def _in_file(X: Any) -> StoredRows:
    if not hasattr(X, "iloc"):
        return StoredRows.from_array(np.asanyarray(X), np.float64)
    step = max(1, stored.CHUNK // (8 * max(1, X.shape[1])))
    parts = (X.iloc[start : start + step] for start in range(0, len(X), step))
    return StoredRows.from_chunks(np.asarray(part, dtype=np.float64) for part in parts)
