"""Cones: projections by two implementations against scipy, singular cones, interior points."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, nnls
from scipy.sparse import csr_array

import cvxnn
from cvxnn.cones import interiors
from cvxnn.cones.cones import Cones
from cvxnn.cones.factors import KeptFactors
from cvxnn.cones.projection import ActiveRows
from cvxnn.kernels import native
from extras import needs

SINGULAR_X = np.array([[1.0, 0, 0], [0, 1, 0], [-1, -1, 0], [0, 0, 1]])  # the paper's example


@pytest.fixture(params=["native", "numpy"])
def implementation(request, monkeypatch):
    """Both implementations of the projection; the compiled one where it was built."""
    if request.param == "numpy":
        monkeypatch.setattr(native, "library", lambda: None)
    elif native.library() is None:
        pytest.skip("the compiled kernels were not built: no C compiler at installation")
    return request.param


def random_cones(n, d, p, seed=0):
    rng = np.random.default_rng(seed)
    X, gates = rng.standard_normal((n, d)), rng.standard_normal((d, p))
    return Cones(X, X @ gates >= 0, gates), X, rng


def signed(cones, X, pattern):
    return cones.signs[pattern][:, None] * X


@pytest.mark.parametrize(("n", "d"), [(30, 4), (6, 9), (200, 8), (64, 16), (5, 5), (3, 1), (1, 3)])
def test_projection_agrees_with_scipy(implementation, n, d):
    cones, X, rng = random_cones(n, d, 12)
    pattern = np.tile(np.arange(12), 2)
    points = rng.standard_normal((24, d))
    projected, _ = cones.project(points, pattern)
    for b, i in enumerate(pattern):
        A = signed(cones, X, i)
        gamma, _ = nnls(A.T, -points[b])
        np.testing.assert_allclose(projected[b], points[b] + A.T @ gamma, atol=1e-10)


def test_both_implementations_agree_to_rounding():
    if native.library() is None:
        pytest.skip("the compiled kernels were not built: no C compiler at installation")
    cones, _, rng = random_cones(300, 12, 40)
    pattern = np.arange(40)
    points = rng.standard_normal((40, 12))
    offsets = np.maximum(rng.standard_normal((40, 300)), 0)
    for shift in (None, offsets):
        compiled, _ = cones.project(points, pattern, offsets=shift)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native, "library", lambda: None)
            plain, _ = cones.project(points, pattern, offsets=shift)
        np.testing.assert_allclose(compiled, plain, atol=1e-9 * np.abs(plain).max())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 40), st.integers(1, 8), st.booleans())
@example(6, 32, 6, False)  # zero, with badly conditioned active rows
@example(6, 32, 6, True)
def test_projection_satisfies_the_optimality_conditions(seed, n, d, compiled):
    """v in K, x - v in the polar cone, <v, x - v> = 0: these characterise the projection."""
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(native, "library", lambda: None)
        cones, X, rng = random_cones(n, d, 3, seed)
        X[rng.random(n) < 0.2] = X[0]  # duplicated rows make active sets degenerate
        cones = Cones(X, cones.mask, cones.gates)
        x = rng.standard_normal((3, d))
        v, active = cones.project(x, np.arange(3))
    assert np.all(cones.contains(v, np.arange(3), tol=1e-9))
    assert np.all(np.abs(np.sum(v * (x - v), axis=1)) <= 1e-9 * np.sum(x * x, axis=1))
    for b in range(3):
        rows, gamma = active.rows[b, : active.count[b]], active.gamma[b, : active.count[b]]
        assert np.all(gamma >= 0)
        pulled = x[b] + gamma @ (cones.signs[b, rows][:, None] * cones.X[rows])
        np.testing.assert_allclose(pulled, v[b], atol=1e-8)


@pytest.mark.parametrize(("n", "d"), [(40, 3), (8, 12), (200, 6)])
def test_projection_onto_shifted_half_spaces(implementation, n, d):
    """The least-distance problem min ||w - x||, X~w >= b, through its reduction to scipy's NNLS."""
    cones, X, rng = random_cones(n, d, 10)
    pattern = np.arange(10)
    x = 0.3 * rng.standard_normal((10, d))
    u = rng.standard_normal((10, d))
    b = np.maximum(-(u @ X.T) * cones.signs, 0)  # feasible: w = t gate for a large t
    w, _ = cones.project(x, pattern, offsets=b)
    for i in pattern:
        A = signed(cones, X, i)
        assert np.min(A @ w[i] - b[i]) >= -1e-9 * np.abs(w).max()
        E = np.vstack([A.T, b[i] - A @ x[i]])
        f = np.append(np.zeros(d), 1.0)
        residual = E @ nnls(E, f, maxiter=10_000)[0] - f
        expected = x[i] - residual[:d] / residual[d]
        np.testing.assert_allclose(w[i], expected, atol=1e-6 * max(1, np.abs(expected).max()))


def test_warm_start_gives_the_same_projection(implementation):
    cones, _, rng = random_cones(150, 8, 20)
    pattern, x = np.arange(20), rng.standard_normal((20, 8))
    cold, active = cones.project(x, pattern)
    moved = x + 0.05 * rng.standard_normal(x.shape)
    warm, _ = cones.project(moved, pattern, start=active)
    np.testing.assert_allclose(warm, cones.project(moved, pattern)[0], atol=1e-10)
    nonsense = ActiveRows(rng.integers(0, 150, (20, 9)), np.ones((20, 9)), np.full(20, 5))
    np.testing.assert_allclose(cones.project(x, pattern, start=nonsense)[0], cold, atol=1e-10)


def projected_in_turn(cones, points, pattern, factors):
    """The projections of these points (steps, B, d), each from the active rows of the last."""
    blocks, active, found = np.arange(len(pattern)), None, []
    for x in points:
        kept = None if factors is None else factors.of(blocks)
        w, active = cones.project(x, pattern, start=active, kept=kept)
        if factors is not None:
            factors.make_room(blocks)
        found.append(w)
    return np.array(found)


def test_kept_factors_change_no_projection(implementation):
    cones, _, rng = random_cones(150, 40, 12)
    pattern = np.repeat(np.arange(12), 2)
    points = rng.standard_normal((24, 40)) + 0.05 * rng.standard_normal((6, 24, 40)).cumsum(axis=0)
    points = np.concatenate([points, points[-2:]])
    factors = KeptFactors(cones, 24)
    expected = projected_in_turn(cones, points, pattern, None)
    found = projected_in_turn(cones, points, pattern, factors)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_kept_factors_are_used_and_brought_up_to_date():
    if native.library() is None:
        pytest.skip("the compiled kernels were not built")
    cones, _, rng = random_cones(150, 40, 12)
    blocks, points = np.arange(12), rng.standard_normal((12, 40))
    factors = KeptFactors(cones, 12)
    factors.make_room(blocks)
    memory, slots = factors.of(blocks)
    w, active = cones.project(points, blocks, kept=(memory, slots))
    np.testing.assert_array_equal(memory[slots, 0], active.count)
    for b in blocks:
        k = active.count[b]
        A = cones.X[active.rows[b, :k]] * cones.signs[b, active.rows[b, :k], None]
        L = np.zeros((k, k))
        L[np.tril_indices(k)] = memory[slots[b], 1 + 40 :][: k * (k + 1) // 2]
        L[np.diag_indices(k)] = 1 / L.diagonal()
        np.testing.assert_allclose(L @ L.T, A @ A.T, atol=1e-12)
    memory[slots[0], 0] = -1.0  # one that was lost is made again
    memory[slots[1], 41:] *= 2.0  # and so is one that does not hold its rows tight
    again, _ = cones.project(points, blocks, start=active, kept=(memory, slots))
    np.testing.assert_allclose(again, w, atol=1e-12)
    assert memory[slots[0], 0] == active.count[0]


def test_factors_are_kept_for_the_blocks_that_were_asked_for_last(monkeypatch):
    cones, _, _ = random_cones(60, 40, 3)
    monkeypatch.setattr("cvxnn.cones.factors.MAX_ENTRIES", 4 * 861)  # of 40 rows each
    factors = KeptFactors(cones, 10)
    factors.make_room(np.array([1, 2, 3]))
    before = factors.of(np.arange(10))[1].copy()
    assert sorted(before[[1, 2, 3]]) == [0, 1, 2]
    factors.make_room(np.array([3, 7, 8]))
    after = factors.of(np.arange(10))[1]
    assert after[3] == before[3]
    held = np.flatnonzero(after >= 0)
    assert {3, 7, 8} <= set(held.tolist())
    assert len(set(after[held].tolist())) == len(held) == 4
    factors.renumber(np.array([8, -1, 3]))
    np.testing.assert_array_equal(factors.of(np.arange(3))[1], [after[8], -1, after[3]])
    factors.make_room(np.arange(3))
    slots = factors.of(np.arange(3))[1]
    assert (slots[0], slots[2]) == (after[8], after[3])
    assert len(set(slots.tolist())) == 3
    factors.make_room(np.zeros(0, dtype=int))
    factors.release()
    assert (factors.of(np.arange(3))[1] == -1).all()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_rows_that_leave_a_warm_start_may_come_back(implementation, seed):
    """In each of these some row leaves at once although the projection holds it tight."""
    cones, _, rng = random_cones(20, 10, 200, seed)
    pattern, x = np.arange(200), rng.standard_normal((200, 10))
    _, active = cones.project(x, pattern)
    moved = x + rng.standard_normal(x.shape)
    warm, _ = cones.project(moved, pattern, start=active)
    assert cones.contains(warm, pattern).all()
    np.testing.assert_allclose(warm, cones.project(moved, pattern)[0], atol=1e-10)


@pytest.mark.parametrize("scale", [1e-60, 1e-20, 1e20, 1e60])
def test_projection_scales_with_the_point(implementation, scale):
    """Far outside the range of single precision, too."""
    cones, _, rng = random_cones(200, 8, 20)
    pattern, x = np.arange(20), rng.standard_normal((20, 8))
    projected, _ = cones.project(x, pattern)
    np.testing.assert_allclose(cones.project(scale * x, pattern)[0] / scale, projected, atol=1e-12)
    offsets = np.maximum(rng.standard_normal((20, 200)), 0)
    shifted, _ = cones.project(x, pattern, offsets=offsets)
    again, _ = cones.project(scale * x, pattern, offsets=scale * offsets)
    np.testing.assert_allclose(again / scale, shifted, atol=1e-11 * np.abs(shifted).max())


def test_rows_that_single_precision_cannot_tell_apart(implementation):
    rng = np.random.default_rng(0)
    X = np.repeat(rng.standard_normal((50, 6)), 4, axis=0)
    X += 1e-9 * rng.standard_normal(X.shape)
    gates = rng.standard_normal((6, 20))
    cones, pattern = Cones(X, X @ gates >= 0, gates), np.arange(20)
    x = rng.standard_normal((20, 6))
    projected, _ = cones.project(x, pattern)
    assert cones.contains(projected, pattern).all()
    np.testing.assert_allclose(np.sum(projected * (x - projected), axis=1), 0, atol=1e-10)


def test_max_rows_gives_upper_bounds_that_fall(implementation):
    cones, _, rng = random_cones(200, 10, 30)
    pattern, x = np.arange(30), rng.standard_normal((30, 10))
    exact, _ = cones.project(x, pattern)
    bound, active = cones.project(x, pattern, max_rows=0)
    np.testing.assert_array_equal(bound, x)
    norms = np.linalg.norm(x, axis=1)
    for most in (1, 2, 4, 8, 1000):
        bound, active = cones.project(x, pattern, start=active, max_rows=most)
        for b in range(30):
            rows, gamma = active.rows[b, : active.count[b]], active.gamma[b, : active.count[b]]
            assert np.all(gamma >= 0)
            pulled = x[b] + gamma @ signed(cones, cones.X, b)[rows]
            np.testing.assert_allclose(bound[b], pulled, atol=1e-12)
        if most == 1:
            assert active.count.max() == 1
        before, norms = norms, np.linalg.norm(bound, axis=1)
        assert np.all(norms <= before + 1e-12)
        assert np.all(norms >= np.linalg.norm(exact, axis=1) - 1e-12)
    np.testing.assert_allclose(bound, exact, atol=1e-12)
    assert cones.violation(cones.project(x, pattern, max_rows=1)[0], pattern).max() > 0


def test_enough_ends_early_with_a_valid_upper_bound(implementation):
    cones, _, rng = random_cones(200, 10, 30)
    pattern, x = np.arange(30), rng.standard_normal((30, 10))
    exact = np.linalg.norm(cones.project(x, pattern)[0], axis=1)
    level = np.median(exact)
    early, active = cones.project(x, pattern, enough=level)
    norms = np.linalg.norm(early, axis=1)
    assert np.all(norms >= exact - 1e-10)  # any gamma >= 0 bounds from above
    assert np.all((norms <= level) == (exact <= level))
    assert active.count.sum() < cones.project(x, pattern)[1].count.sum()


def pulled(cones, x, active, pattern):
    """x + X~'gamma, from what a projection says about its rows."""
    moved = x.copy()
    X = cones.X.toarray() if isinstance(cones.X, csr_array) else cones.X
    for b, i in enumerate(pattern):
        rows, gamma = active.rows[b, : active.count[b]], active.gamma[b, : active.count[b]]
        assert np.all(gamma >= 0)
        moved[b] += gamma @ (cones.signs[i, rows][:, None] * X[rows])
    return moved


def exact_projections(cones, x, pattern):
    X = cones.X.toarray() if isinstance(cones.X, csr_array) else cones.X
    return np.array([v + signed(cones, X, i).T @ nnls(signed(cones, X, i).T, -v)[0]
                     for v, i in zip(x, pattern, strict=True)])  # fmt: skip


@pytest.mark.parametrize(("n", "d"), [(300, 70), (150, 100), (60, 90)])
@pytest.mark.parametrize("form", [np.asarray, csr_array])
def test_many_features(implementation, form, n, d):
    """Factors in tiles, sweeps, and what sparse rows do instead: cold, warm, bounds, rough ones."""
    rng = np.random.default_rng(0)
    X, gates = rng.standard_normal((n, d)), rng.standard_normal((d, 6))
    X *= (rng.random((n, d)) < 0.2) | (form is np.asarray)
    X[n // 2] = X[0]  # rows that depend on each other
    X[n // 3] = X[1] + X[2]
    cones, pattern = Cones(form(X), X @ gates >= 0, gates), np.arange(6)
    x = (X.T @ (cones.mask * rng.standard_normal((n, 6)))).T
    size = np.linalg.norm(x, axis=1)
    expected = exact_projections(cones, x, pattern)
    cold, active = cones.project(x, pattern)
    np.testing.assert_allclose(cold, expected, atol=1e-9 * size.max())
    np.testing.assert_allclose(pulled(cones, x, active, pattern), cold, atol=1e-9 * size.max())
    moved = x + 0.1 * rng.standard_normal(x.shape) * size[:, None] / np.sqrt(d)
    warm, _ = cones.project(moved, pattern, start=active)
    expected = exact_projections(cones, moved, pattern)
    np.testing.assert_allclose(warm, expected, atol=1e-9 * size.max())
    exact = np.linalg.norm(expected, axis=1)
    enough = np.where(np.arange(6) % 2, 1.1, 0.9) * exact
    for start in (None, active):
        bound, rows = cones.project(moved, pattern, enough=enough, start=start)
        norms = np.linalg.norm(bound, axis=1)
        assert np.all(norms[1::2] <= enough[1::2] * (1 + 1e-12))
        np.testing.assert_allclose(bound[::2], expected[::2], atol=1e-9 * size.max())
        rough, rows = cones.project(moved, pattern, enough=enough, start=start, rough=True)
        norms = np.linalg.norm(rough, axis=1)
        assert np.all(norms >= np.minimum(exact, enough) - 1e-9 * size)
        assert np.all(norms <= size * 1.2)
        np.testing.assert_allclose(
            pulled(cones, moved, rows, pattern), rough, atol=1e-9 * size.max()
        )


def test_multipliers_of_a_warm_start_may_be_enough(implementation):
    """In whatever units they are: then they stay as they are, but for a factor."""
    cones, _, rng = random_cones(200, 10, 30)
    pattern, x = np.arange(30), rng.standard_normal((30, 10))
    exact, active = cones.project(x, pattern)
    active.gamma *= 7.0
    enough = np.linalg.norm(exact, axis=1) * (1 + 1e-9)
    again, rows = cones.project(x, pattern, start=active, enough=enough)
    np.testing.assert_array_equal(rows.rows[:, :9], active.rows[:, :9])
    np.testing.assert_allclose(again, exact, atol=1e-8)
    np.testing.assert_allclose(pulled(cones, x, rows, pattern), again, atol=1e-12)


def test_threads_do_not_change_the_result(monkeypatch):
    if native.library() is None:
        pytest.skip("the compiled kernels were not built: no C compiler at installation")
    cones, _, rng = random_cones(100, 6, 50)
    x = rng.standard_normal((50, 6))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    single = cones.project(x, np.arange(50))[0]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    np.testing.assert_array_equal(cones.project(x, np.arange(50))[0], single)


def test_membership_violation_and_lift():
    cones, X, rng = random_cones(60, 4, 10)
    pattern = np.arange(10)
    gates = cones.gates.T
    assert cones.contains(gates, pattern).all()
    assert np.all(cones.violation(gates, pattern) == 0)
    outside = gates - 2 * rng.random((10, 1)) * rng.standard_normal((10, 4))
    worst = [
        max(0, -np.min(signed(cones, X, i) @ outside[i] / np.linalg.norm(X, axis=1)))
        for i in pattern
    ]
    np.testing.assert_allclose(cones.violation(outside, pattern), worst)
    assert max(worst) > 0
    assert np.all(cones.violation(cones.lift(outside, pattern), pattern) == 0)


def exactly_inside(cones, v, i):
    """Membership in rational numbers, for the rows as they were given."""
    X = cones.raw.toarray() if isinstance(cones.raw, csr_array) else cones.raw
    v = [Fraction(float(entry)) for entry in v]
    products = [sum(Fraction(float(a)) * b for a, b in zip(x, v, strict=True)) for x in X]
    signs = cones.signs[i].tolist()
    return all(sign * product >= 0 for sign, product in zip(signs, products, strict=True))


@pytest.mark.parametrize("form", [np.asarray, csr_array])
@pytest.mark.parametrize("scale", [1e-8, 1e-150, 1.0, 1e8])
def test_lifted_projections_are_inside_in_real_arithmetic(form, scale):
    """Projections lie on faces, where rounding decides on which side: about half of them are
    outside. Lifted by rounding errors they are inside beyond doubt."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 5)) * 10 ** rng.uniform(-3, 3, (40, 1)) * scale
    X[7] = 0
    gates = rng.standard_normal((5, 15))
    cones = Cones(form(X), X @ gates >= 0, gates)
    pattern = np.tile(np.arange(15), 3)
    x = rng.standard_normal((45, 5)) * 10 ** rng.uniform(-8, 8, (45, 1))
    projected, _ = cones.project(x, pattern)
    projected = projected[:, :] * np.where(np.arange(45) == 3, 0.0, 1.0)[:, None]
    lifted = cones.lift(projected, pattern)
    live = projected.any(axis=1)
    assert live.sum() > 20
    assert cones.proven_inside(lifted, pattern).all()
    assert all(exactly_inside(cones, v, i) for v, i in zip(lifted, pattern, strict=True))
    outside = [not exactly_inside(cones, v, i) for v, i in zip(projected, pattern, strict=True)]
    assert any(outside)
    moved = np.linalg.norm(lifted - projected, axis=1)
    slack = cones.slack(cones.interior, np.arange(15))[pattern]
    assert np.all(moved <= 1e-13 * np.linalg.norm(projected, axis=1) / slack)
    assert np.all(lifted[live].any(axis=1))
    np.testing.assert_array_equal(lifted[~live], 0)
    np.testing.assert_array_equal(cones.lift(lifted, pattern), lifted)  # to the bit
    within = cones.interior[pattern] * 3.0
    np.testing.assert_array_equal(cones.lift(within, pattern), within)


@pytest.mark.parametrize("width", [1e-3, 1e-6, 1e-8])
def test_narrow_cones_have_interior_points_and_lifts(width):
    """Two rows that leave an angle of twice the width between them, and rows that do not matter."""
    X = np.array([[width, 1.0, 0], [width, -1.0, 0], [1.0, 0, 0.5], [1.0, 0, -0.5]])
    turn, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))
    X = X @ turn
    cones = Cones(X, np.ones((4, 1), bool))
    assert not cones.singular[0]
    assert np.all(X @ cones.interior[0] > 0)
    x = np.random.default_rng(1).standard_normal((20, 3))
    x[:, :] += 3 * turn[0]
    pattern = np.zeros(20, dtype=int)
    lifted = cones.lift(cones.project(x, pattern)[0], pattern)
    assert lifted.any(axis=1).all()
    assert all(exactly_inside(cones, v, 0) for v in lifted)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 5))
def test_proofs_of_membership_are_proofs(seed, n, d):
    """Points on the faces, rounded: what is proven holds in rational numbers."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 4, (n, d)) * 10.0 ** rng.integers(-8, 9, (n, 1)) / 3
    v = rng.integers(-3, 4, (8, d)) / 7 * (1 + 1e-15 * rng.standard_normal((8, d)))
    cones = Cones(X, X @ v.T >= 0)
    proven = cones.proven_inside(v, np.arange(8))
    for i in np.flatnonzero(proven).tolist():
        assert exactly_inside(cones, v[i], i)
    assert (
        not cones.proven_inside(-v[proven], np.arange(8)[proven])[
            v[proven] @ np.abs(X).sum(axis=0) != 0
        ].any()
        or not X.any()
    )


def test_interior_points_are_strictly_inside_even_where_gates_tie():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 4))
    gate = rng.standard_normal(4)
    X[3] -= (X[3] @ gate) / (gate @ gate) * gate  # row 3 is orthogonal to the gate
    X[7] = 0  # and a zero row constrains nothing
    mask = (X @ gate >= -1e-12)[:, None]
    cones = Cones(X, mask, gate[:, None])
    inner = cones.interior[0]
    products = cones.signs[0] * (X @ inner)
    assert np.all(np.delete(products, 7) > 0)
    assert not cones.singular[0]
    assert "1 gate (first: pattern 0) tie" in cones.tie_notes()[0]
    assert Cones(X[:3], mask[:3], gate[:, None]).tie_notes() == ()


def test_gates_with_a_bias_are_said_to_be_no_points_of_cones_without():
    X = np.random.default_rng(0).standard_normal((30, 3))
    patterns = cvxnn.sample_patterns(X, 20, bias=True, random_state=0)
    with pytest.warns(cvxnn.PatternWarning):  # few of these have a cone at all
        problem = cvxnn.CReLU(X, X[:, 0], patterns, lam=0.1)
    assert "have a bias, but the cones have none" in problem.notes[0]
    assert not any("tie with" in note for note in problem.notes)
    with_bias = cvxnn.CReLU(X, X[:, 0], patterns, lam=0.1, bias=True)
    assert with_bias.notes == ()
    shares = cvxnn.sample_patterns(X, 20, active_share=0.9, random_state=0)
    with pytest.raises(ValueError, match="gates with a bias need a problem with bias=True"):
        cvxnn.CReLU(X, X[:, 0], shares, lam=0.1)


def test_the_papers_singular_cone():
    cones = Cones(SINGULAR_X, np.ones((4, 1), bool), None)
    assert cones.singular[0]
    point, tight = cones.relative_interior(0)
    np.testing.assert_array_equal(tight, [True, True, True, False])
    np.testing.assert_allclose(point[:2], 0, atol=1e-9)  # the cone is the ray of e_3
    assert point[2] > 0


def by_one_program(A):
    """Rows that are orthogonal to the whole cone: max sum t, A v >= t, 0 <= t <= 1."""
    m, d = A.shape
    answer = linprog(
        np.concatenate([np.zeros(d), -np.ones(m)]),
        A_ub=np.hstack([-A, np.eye(m)]),
        b_ub=np.zeros(m),
        bounds=[(None, None)] * d + [(0, 1)] * m,
    )
    return answer.x[d:] < 0.5


DATA = {
    "normal": lambda rng, n, d: rng.standard_normal((n, d)),
    "small integers": lambda rng, n, d: rng.integers(-1, 2, (n, d)).astype(float),
    "repeated": lambda rng, n, d: rng.integers(-3, 4, (n, d))[rng.integers(0, n, n)].astype(float),
    "low rank": lambda rng, n, d: (
        rng.standard_normal((n, 1 + d // 2)) @ rng.standard_normal((1 + d // 2, d))
    ),
    "zeros": lambda rng, n, d: rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.4),
    "opposites": lambda rng, n, d: (
        np.repeat(rng.standard_normal((n, d)), 2, axis=0)[:n] * rng.choice([-2.0, 1.0], (n, 1))
    ),
}


@pytest.mark.parametrize("form", [np.asarray, csr_array])
@pytest.mark.parametrize("gates", ["kept", "left out", "of another pattern"])
@pytest.mark.parametrize("data", DATA)
def test_interiors_are_those_of_one_large_program(data, gates, form):
    rng = np.random.default_rng(0)
    singular = 0
    for _ in range(12):
        n, d = int(rng.integers(1, 25)), int(rng.integers(1, 8))
        X = DATA[data](rng, n, d)
        gate = rng.integers(-2, 3, (d, 1)).astype(float)
        mask = X @ gate >= 0
        if gates == "of another pattern":
            mask[rng.integers(n)] ^= True
        cones = Cones(form(X), mask, None if gates == "left out" else gate)
        point, tight = cones.relative_interior(0)
        live = X.any(axis=1)
        A = cones.signs[0, live, None] * X[live] / np.linalg.norm(X[live], axis=1)[:, None]
        expected = by_one_program(A) if len(A) else np.zeros(0, bool)
        np.testing.assert_array_equal(tight[live], expected)
        assert not tight[~live].any()
        size = np.linalg.norm(point)
        assert np.all(A[~expected] @ point > 1e-12 * size)
        assert np.all(np.abs(A[expected] @ point) <= 1e-12 * size)
        assert cones.singular[0] == expected.any()
        assert expected.any() or np.all(A @ cones.interior[0] > 1e-12)
        singular += int(expected.any())
    assert singular > 0 or data not in ("small integers", "zeros")


def test_ties_take_no_more_memory_than_the_data(monkeypatch):
    """A linear program with a column for each row would take 3 GB here, for each pattern."""
    rng = np.random.default_rng(0)
    X = np.hstack([rng.integers(-3, 4, (20_000, 6)), np.eye(4)[rng.integers(0, 4, 20_000)]])
    gates, bias = rng.integers(-2, 3, (10, 20)), rng.integers(-2, 3, 20)
    patterns = cvxnn.Patterns.from_gates(X, gates.astype(float), bias.astype(float))
    sizes = []
    solve = interiors.linprog
    monkeypatch.setattr(
        interiors,
        "linprog",
        lambda c, A_ub, **other: sizes.append(A_ub.shape) or solve(c, A_ub=A_ub, **other),
    )
    problem = cvxnn.CReLU(X.astype(float), X[:, 0], patterns, lam=0.1, bias=True)
    assert "20 gates (first: pattern 0) tie with rows of X" in problem.notes[0]
    assert not sizes  # the mean of the tied rows does
    without = cvxnn.Patterns.from_mask(patterns.mask[:, :3])
    for found in (problem, cvxnn.CReLU(X.astype(float), X[:, 0], without, lam=0.1, bias=True)):
        assert found.cones.slack(found.cones.interior, np.arange(found.cones.p)).min() > 1e-9
    assert sizes
    assert max(rows * columns for rows, columns in sizes) < 20_000 * 11 / 4


@pytest.mark.parametrize("answers", [0, 1])
def test_a_linear_program_without_an_answer_is_not_the_end(answers, monkeypatch):
    """Other methods are tried; and if none of them has an answer, the error names the pattern."""
    solve, asked = interiors.linprog, []

    def unreliable(*args, method, **other):
        asked.append(method)
        found = solve(*args, method=method, **other)
        if not answers or method == "highs":
            found.x, found.status, found.message = None, 4, "numerical difficulties"
        return found

    monkeypatch.setattr(interiors, "linprog", unreliable)
    cones = Cones(SINGULAR_X, np.ones((4, 1), bool), None)
    if answers:
        np.testing.assert_array_equal(cones.relative_interior(0)[1], [True, True, True, False])
        assert set(asked) == {"highs", "highs-ipm"}
    else:
        with pytest.raises(RuntimeError, match=r"the cone of 0 has an interior.*numerical"):
            cones.relative_interior(0)
        assert set(asked) == set(interiors.METHODS)


def test_full_row_rank_has_no_singular_cones():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4, 6))
    every = np.array([[int(c) for c in f"{k:04b}"] for k in range(1, 16)], bool).T
    assert not Cones(X, every, None).singular.any()


def singular_problem(mask, lam=0.01, **settings):
    patterns = cvxnn.Patterns.from_mask(mask)
    return cvxnn.CReLU(SINGULAR_X, np.array([0, 0, 0, 1.0]), patterns, lam=lam, **settings)


@needs("cvxpy")
def test_dropping_a_singular_pattern_can_raise_the_value():
    """The counterexample to theorem 3.3 for a sampled set: 0.0098 kept, 0.125 dropped."""
    only = np.ones((4, 1), bool)
    kept = cvxnn.solve(singular_problem(only, singular="keep"), "cvxpy", tol=1e-6)
    assert kept.certificate.objective == pytest.approx(0.0098, abs=1e-5)
    dropped = 0.5 / 4 * 1.0  # no pattern left: the zero model
    assert dropped == pytest.approx(0.125)
    with pytest.warns(cvxnn.PatternWarning, match="replaced by one whose cone contains its own"):
        replaced = singular_problem(only)
    value = cvxnn.solve(replaced, "cvxpy", tol=1e-6).certificate.objective
    assert value <= kept.certificate.objective * (1 + 1e-6)
    assert not replaced.cones.singular.any()
    assert replaced.patterns.mask[3, 0]  # the row that matters keeps its sign


@needs("cvxpy")
def test_a_singular_pattern_is_dropped_only_for_one_that_contains_it():
    container = np.array([1, 1, 0, 1], bool)  # differs on rows orthogonal to the cone only
    stranger = np.array([1, 1, 0, 0], bool)
    both = np.stack([np.ones(4, bool), container], axis=1)
    with pytest.warns(cvxnn.PatternWarning, match="dropped: the cone of 1 contains its own"):
        problem = singular_problem(both)
    np.testing.assert_array_equal(problem.patterns.mask, container[:, None])
    kept = cvxnn.solve(singular_problem(both, singular="keep"), "cvxpy", tol=1e-6)
    treated = cvxnn.solve(problem, "cvxpy", tol=1e-6)
    assert treated.certificate.objective == pytest.approx(kept.certificate.objective, rel=1e-6)
    with pytest.warns(cvxnn.PatternWarning, match="replaced"):
        problem = singular_problem(np.stack([np.ones(4, bool), stranger], axis=1))
    assert len(problem.patterns) == 2


def test_singular_patterns_can_be_refused():
    with pytest.raises(ValueError, match=r"patterns: the cones of \[0\] are singular"):
        singular_problem(np.ones((4, 1), bool), singular="raise")


def test_patterns_that_no_gate_produces_are_dropped_with_a_word():
    X = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
    mask = np.array([[1, 1], [1, 0], [1, 1], [1, 0]], bool)  # the first: opposite rows all on
    with pytest.warns(cvxnn.PatternWarning, match="pattern 0 was dropped: no gate produces it"):
        problem = cvxnn.CReLU(X, np.ones(4), cvxnn.Patterns.from_mask(mask), lam=0.1)
    assert len(problem.patterns) == 1
    impossible = cvxnn.Patterns.from_mask(mask[:, :1])
    with pytest.raises(ValueError, match="no patterns are left"):
        cvxnn.CReLU(X, np.ones(4), impossible, lam=0.1)


@pytest.mark.parametrize("normalize", [False, True])
def test_replaced_gates_produce_the_replaced_patterns(normalize):
    """In the units of the raw X: the third unit vector is a gate that ties with three rows."""
    X = SINGULAR_X * np.array([1.0, 10.0, 100.0])
    patterns = cvxnn.Patterns.from_gates(X, np.array([[0.0], [0.0], [1.0]]))
    assert patterns.mask.all()
    with pytest.warns(cvxnn.PatternWarning, match="replaced"):
        problem = cvxnn.CReLU(X, np.ones(4), patterns, lam=0.1, normalize=normalize)
    np.testing.assert_array_equal(X @ problem.patterns.gates >= 0, problem.patterns.mask)
    assert not problem.patterns.mask.all()
