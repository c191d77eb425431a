"""Patterns whose cones lie in a subspace are dropped, or replaced by others with the same fit."""

from __future__ import annotations

import numpy as np

from cvxnn.cones.cones import Cones
from cvxnn.patterns import Patterns


class PatternWarning(UserWarning):
    """Patterns were dropped or replaced because their cones are singular."""


def treat_singular(
    patterns: Patterns, cones: Cones, column_scale: np.ndarray, bias: bool
) -> tuple[Patterns, tuple[str, ...]]:
    """Patterns without singular cones, never with a higher optimal value, and what was done.

    The cone of pattern i lies in a subspace because of rows that are orthogonal to all of it. Any
    signs of these rows give a cone that contains it, with the same fit on it. If the other rows
    agree with those of a non-singular pattern, i is dropped; else the signs come from a generic
    vector, which makes the cone non-singular (proof of proposition 3.2). Dropping without such a
    pattern present, as the paper's theorem 3.3 has it, can raise the value.
    """
    keep = np.flatnonzero(~cones.singular).tolist()
    mask = patterns.mask.copy()
    gates = None if patterns.gates is None else patterns.gates.copy()
    gate_bias = None if patterns.gate_bias is None else patterns.gate_bias.copy()
    notes = []
    for i in np.flatnonzero(cones.singular).tolist():
        inner, tight = cones.relative_interior(i)
        others = cones.live & ~tight
        if not others.any():
            notes.append(
                f"pattern {i} was dropped: no gate produces it, and its cone contains only 0"
            )
            continue
        twins = [j for j in keep if np.array_equal(mask[others, j], mask[others, i])]
        if twins:
            notes.append(
                f"pattern {i} is singular and was dropped: the cone of {twins[0]} contains its own"
            )
            continue
        gate = _generic_gate(cones, i, inner, tight)
        mask[tight, i] = cones.X[tight] @ gate >= 0
        if gates is not None and gate_bias is not None:
            raw = gate / column_scale
            gates[:, i], gate_bias[i] = (raw[:-1], raw[-1]) if bias else (raw, 0.0)
        keep.append(i)
        notes.append(f"pattern {i} is singular and was replaced by one whose cone contains its own")
    if not keep:
        biased = not bias and gate_bias is not None and gate_bias.any()
        hint = "; gates with a bias need a problem with bias=True" if biased else ""
        raise ValueError(f"no patterns are left: every cone contains only zero{hint}")
    chosen = np.sort(np.asarray(keep))
    return Patterns(mask, gates, gate_bias, patterns.strict).select(chosen), tuple(notes)


def _generic_gate(cones: Cones, i: int, inner: np.ndarray, tight: np.ndarray) -> np.ndarray:
    """A vector without ties that agrees with pattern i outside `tight`: a generic direction,
    inclined to the signs that are there, plus a multiple of the relative interior point."""
    signs = cones.signs[i]
    noise = np.random.default_rng(0).standard_normal(cones.d)
    lean = signs[tight] @ cones.X[tight]
    generic = lean + 0.1 * max(float(np.linalg.norm(lean)), 1.0) * noise
    others = cones.live & ~tight
    ahead = signs[others] * (cones.X[others] @ inner)
    behind = -signs[others] * (cones.X[others] @ generic)
    return generic + (1.0 + 2.0 * max(float(np.max(behind / ahead)), 0.0)) * inner
