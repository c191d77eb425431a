"""Bounds from below: the scaling is feasible in fractions, the value is that of mpmath, rounded
down, and no other scaling gives much more."""

import dataclasses
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from mpmath import mpf
from scipy.special import expit

from cvxnn.certificates import Multipliers
from cvxnn.verification.dual_points import _Dual, _own_multipliers, _squared_limits, bound_of
from cvxnn.verification.exact import Exact, quotient, root
from cvxnn.verification.programs import LOSSES
from test_programs import make_program


@pytest.fixture(autouse=True)
def precision():
    with mpmath.workdps(150):
        yield


def gradient(program, seed, size=1.0):
    """A point in the domain of f*, up to rounding: the gradient at some predictions."""
    Z = size * np.random.default_rng(seed).standard_normal(program.Y.shape)
    w, Y = program.weight[:, None], program.Y
    if program.loss == "softmax":
        q = np.exp(Z - Z.max(axis=1, keepdims=True))
        return w * (Y.sum(axis=1, keepdims=True) * q / q.sum(axis=1, keepdims=True) - Y)
    if program.loss == "logistic":
        return -w * Y * expit(-Y * Z)
    R = Z - Y
    return w * (np.clip(R, -program.delta, program.delta) if program.loss == "huber" else R)


def entries(point):
    """T as fractions."""
    scale = Fraction(2) ** point.T.exponent
    return [[int(v) * scale for v in row] for row in point.T.ints]


def conjugate(program, T, tau, group):
    """-f*(tau T) over some classes in mpmath."""
    total = mpf(0)
    for row, y, w in zip(T, program.Y.tolist(), program.weight.tolist(), strict=True):
        w = mpf(w)
        point = [mpf(tau) * mpf(v.numerator) / v.denominator for v in row]
        if program.loss == "softmax":
            q, s = [mpf(b) + t / w for b, t in zip(y, point, strict=True)], sum(map(mpf, y))
            total += w * (s * mpmath.log(s) - sum(a * mpmath.log(a) for a in q if a > 0))
            continue
        for k in group:
            t, b = point[k], mpf(y[k])
            if program.loss == "logistic":
                q = -b * t / w
                total -= w * sum(a * mpmath.log(a) for a in (q, 1 - q) if a > 0)
            else:
                total -= t * b + t**2 / (2 * w)
    return total


@pytest.mark.parametrize("output_bias", [False, True])
@pytest.mark.parametrize("size", [1e-6, 1.0, 30.0, 300.0])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("loss", LOSSES)
def test_values_are_from_below_and_scalings_in_the_domain(loss, seed, size, output_bias):
    program = make_program(loss, seed, output_bias=output_bias)
    point = _Dual.of(program, gradient(program, seed, size))
    T = entries(point)
    if loss == "softmax":
        assert all(sum(row) == 0 for row in T)
    if output_bias:
        assert all(sum(column) == 0 for column in zip(*T, strict=True)) or point.dead.any()
    for group in point.groups:
        tau = point.best_multiple(group, 1e3)
        assert abs(tau) <= 1e3
        for row, y, w in zip(T, program.Y, program.weight, strict=True):
            for k in group:
                t, room = Fraction(tau) * row[k], Fraction(w)
                if loss == "huber":
                    assert abs(t) <= Fraction(program.delta) * room
                elif loss == "logistic":
                    assert 0 <= -int(y[k]) * t <= room
                elif loss == "softmax":
                    assert Fraction(y[k]) * room + t >= 0
        found = point.value(group, tau)
        true = conjugate(program, T, tau, group)
        assert mpf(found.below()) <= true
        scale = max(abs(true), mpf(10) ** -300)
        if loss in ("logistic", "softmax"):
            assert true - mpf(found.below()) <= scale * mpf(2) ** -51
        for other in (0.9 * tau, tau * (1 - 1e-9)):  # a concave function's best, or its end
            rest = conjugate(program, T, other, group)
            assert true >= rest - abs(rest) * mpf(10) ** -14


@pytest.mark.parametrize("penalty", ["neuron", "feature", "l1", "cones"])
@pytest.mark.parametrize("loss", LOSSES)
def test_scalings_are_feasible_in_fractions(loss, penalty):
    cones = penalty == "cones"
    settings = {"cones": cones, "penalty": "neuron" if cones else penalty, "lam": 1e-3}
    program = make_program(loss, n=10, **settings)
    point = _Dual.of(program, gradient(program, 0))
    multipliers = _own_multipliers(point)[0] if cones else None
    squares = _squared_limits(point, multipliers)
    lam, T = Fraction(program.lam), entries(point)
    X, (n, p), (d, C) = program.X, program.mask.shape, (program.X.shape[1], 3)

    def correlation(i, j, k):
        return sum(
            (Fraction(X[r, j]) * T[r][k] for r in range(n) if program.mask[r, i]), Fraction(0)
        )

    G = {(i, j, k): correlation(i, j, k) for i in range(p) for j in range(d) for k in range(C)}
    blocks = {}
    if cones:
        for sign in (0, 1):
            for i, j, k in G:
                flat = (sign * p + i) * C + k
                blocks.setdefault(flat, [0] * d)[j] = G[i, j, k] if sign else -G[i, j, k]
        for b, row, gamma in zip(*multipliers, strict=True):
            on = 1 if program.mask[row, b // C % p] else -1
            for j in range(d):
                blocks[int(b)][j] += on * Fraction(gamma) * Fraction(X[row, j])
    for number, group in enumerate(point.groups):
        top = max(Fraction(int(v)) * Fraction(2) ** squares.exponent for v in
                  (squares.ints if len(point.groups) == 1 else squares.ints[[number]]))  # fmt: skip
        if cones:
            found = max(sum(v**2 for v in c) for b, c in blocks.items() if b % C in group)
        elif penalty == "neuron":
            found = max(sum(G[i, j, k] ** 2 for j in range(d)) for i in range(p) for k in group)
        elif penalty == "l1":
            found = max(G[i, j, k] ** 2 for i in range(p) for j in range(d) for k in group)
        else:
            found = max(sum(G[i, j, k] ** 2 for i in range(p) for k in range(C)) for j in range(d))
        assert found == top
        square = Exact.of(program.lam) * Exact.of(program.lam)
        tau = root(quotient(square, squares.max() if len(point.groups) == 1 else squares[number]))
        tau = Fraction(tau.below())
        assert tau**2 * found <= lam**2 < (tau * (1 + Fraction(1, 2**51))) ** 2 * found


def test_poor_points_prove_nothing():
    program = make_program("logistic")
    Theta = gradient(program, 0)
    assert bound_of(program, -Theta, None, None, 1.0)[0] == 0
    assert bound_of(program, 0 * Theta, None, None, 1.0)[0] == 0
    lifted = Theta + np.abs(Theta).max() * 50
    bound, how = bound_of(program, lifted, None, None, 1.0)
    assert bound == 0
    assert "proves nothing" in how


def test_points_of_all_sizes_prove_the_same():
    """Powers of two change no digit of a squared loss."""
    for loss in LOSSES[:2]:
        program = make_program(loss, lam=1e9)
        Theta = gradient(program, 0)
        bounds = {bound_of(program, 2.0**k * Theta, None, None, 1.0)[0] for k in (-300, 0, 300)}
        assert len(bounds) == 1


def test_without_a_penalty_the_radius_costs():
    program = make_program("squared", lam=0.0, output_bias=False)
    Theta = gradient(program, 0)
    bounds = [bound_of(program, Theta, None, r, 1.0)[0] for r in (0.0, 1e-3, 1e-2, 1.0, 1e9)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[1] > bounds[-1] == 0
    assert bound_of(program, Theta, None, None, 1e-3)[0] == bounds[2]  # ten times as large


def test_multipliers_have_to_fit():
    program = make_program("squared", cones=True)
    Theta, one = gradient(program, 0), np.zeros(1, dtype=int)
    for block, row, value in ((30, 0, 1.0), (-1, 0, 1.0), (0, 12, 1.0), (0, -1, 1.0)):
        wrong = Multipliers(one + block, one + row, np.full(1, value))
        with pytest.raises(ValueError, match="a block, a row and a value each"):
            bound_of(program, Theta, wrong, None, 1.0)
    with pytest.raises(ValueError, match="must be finite"):
        bound_of(program, Theta, Multipliers(one, one, np.full(1, np.inf)), None, 1.0)
    none = Multipliers(one[:0], one[:0], np.zeros(0))
    negative = Multipliers(one, one, np.full(1, -1.0))
    plain = dataclasses.replace(program, cones=False)
    expected = bound_of(plain, Theta, None, None, 1.0)[0]
    for multipliers in (none, negative):
        assert bound_of(program, Theta, multipliers, None, 1.0)[0] == expected
