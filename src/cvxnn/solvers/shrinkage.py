"""The prox of the norms of rows: shorter rows, in the plain metric or in one of the columns'."""

from __future__ import annotations

import numpy as np

ACCURATE = 64  # how far from 1 a norm may be, in units of the rounding of one number
MAX_STEPS = 40  # of the search for the norm of a row; a few are enough


def norms(rows: np.ndarray) -> np.ndarray:
    return np.sqrt(np.einsum("ij,ij->i", rows, rows))


def shrink(rows: np.ndarray, by: float) -> np.ndarray:
    """argmin_u  t ||u|| + 1/2 ||u - w||^2 for every row w, with t = `by`."""
    return rows * np.maximum(1 - by / np.maximum(norms(rows), 1e-300), 0.0)[:, None]


def shrink_in_metric(rows: np.ndarray, by: float, metric: np.ndarray) -> np.ndarray:
    """argmin_u  t ||u|| + 1/2 sum_j h_j (u_j - w_j)^2 for every row w, with t = `by` and the metric
    h (d,), in the precision of the rows.

    It is zero where ||h o w|| <= t. Elsewhere u = h o w / (h + t / r) with its norm r, the root of
    F(r) = ||h o w / (h r + t)|| = 1. Newton's method for 1/F = 1 takes few steps: 1/F is nearly
    linear, and concave, so that steps never go too far up.
    """
    if by == 0:
        return rows
    dtype = rows.dtype
    h, t, tiny = metric.astype(dtype), dtype.type(by), np.finfo(dtype).tiny
    scaled = rows * h
    size = norms(scaled)
    result = np.zeros_like(rows)
    live = np.flatnonzero(size > t)
    if len(live) == 0:
        return result
    scaled = scaled[live]
    r = np.maximum(1 - t / size[live], dtype.type(1e-6)) * norms(rows[live])
    for _ in range(MAX_STEPS):
        below = np.multiply.outer(r, h)
        below += t
        parts = scaled / below
        value = norms(parts)
        if np.all(np.abs(value - 1) <= ACCURATE * np.finfo(dtype).eps):
            break
        parts *= parts
        parts /= below
        slope = parts @ h / value  # -F'
        r = np.maximum(r + (value - 1) * value / slope, tiny)
    result[live] = scaled * (r[:, None] / (np.multiply.outer(r, h) + t))
    return result
