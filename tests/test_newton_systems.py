"""The linear algebra of the Newton solver: the derivative of the prox against finite differences,
the systems against the matrix itself."""

import numpy as np
import pytest
from scipy.linalg import null_space

from cvxnn.cones import Cones
from cvxnn.operators import ExpandedMatrix
from cvxnn.solvers import newton_systems
from cvxnn.solvers.newton_blocks import ConeBlocks, GatedBlocks, row_norms
from cvxnn.solvers.newton_systems import (
    Faces,
    FaceSystem,
    Linearisation,
    ProductSystem,
    conjugate_gradients,
    factor_single,
)

SIGMA, THRESHOLD = 0.7, 0.8


def make_blocks(kind, n=40, d=5, p=12, seed=0):
    """All blocks of a random matrix, with a point of each and its linearised prox."""
    rng = np.random.default_rng(seed)
    X, gates = rng.standard_normal((n, d)), rng.standard_normal((d, p))
    operator = ExpandedMatrix(X, X @ gates >= 0)
    blocks = GatedBlocks(operator)
    x = rng.standard_normal((p, d))
    if kind == "cone":
        blocks = ConeBlocks(operator, Cones(X, operator.mask, gates))
        x = np.concatenate([gates.T, gates.T]) + 0.5 * rng.standard_normal((2 * p, d))
    blocks.set_work(np.arange(blocks.size), 1.0)
    return blocks, x, rng


def prox(blocks, x):
    q = blocks.project(x, THRESHOLD)
    return q * np.maximum(1 - THRESHOLD / row_norms(q), 0)[:, None] if len(q) else q


def linearise(blocks, x):
    q = blocks.project(x, THRESHOLD)
    on = np.flatnonzero(row_norms(q) > THRESHOLD)
    norms = row_norms(q)[on]
    return Linearisation(on, q[on] / norms[:, None], THRESHOLD / norms)


def tight_rows(blocks, at):
    """The rows of X each active block is orthogonal to, by its definition."""
    pattern = blocks.work[at.on] % blocks.operator.p
    unit_rows = blocks.X / row_norms(blocks.X)[:, None]
    tight = np.abs(at.unit @ unit_rows.T) < 1e-10
    return [blocks.X[rows] for rows in tight], pattern


def dense_matrix(blocks, curvature, sigma, at, cones):
    """diag(h) + sigma sum_b D_b X P_b X' D_b, written out."""
    K = np.diag(curvature)
    rows, pattern = tight_rows(blocks, at)
    for b, (unit, c) in enumerate(zip(at.unit, at.ratio, strict=True)):
        F = np.eye(blocks.d)
        if cones and len(rows[b]):
            basis = null_space(rows[b])
            F = basis @ basis.T
        M = blocks.operator.mask[:, pattern[b], None] * blocks.X
        K += sigma * M @ ((1 - c) * F + c * np.outer(unit, unit)) @ M.T
    return K


# ---- the derivative ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["free", "cone"])
def test_the_derivative_is_that_of_the_prox(kind):
    blocks, x, rng = make_blocks(kind)
    at = linearise(blocks, x)
    assert 3 < len(at.on) < len(x)  # some blocks shrink to zero
    if kind == "cone":
        n_tight = [len(rows) for rows in tight_rows(blocks, at)[0]]
        assert len(set(n_tight)) > 1  # faces of different dimension
    for _ in range(5):
        step = rng.standard_normal(x.shape)
        difference = (prox(blocks, x + 1e-6 * step) - prox(blocks, x - 1e-6 * step)) / 2e-6
        linearise(blocks, x)  # a derivative is taken where the blocks were projected last
        derivative = np.zeros_like(x)
        derivative[at.on] = blocks.derivative(at, step[at.on])
        np.testing.assert_allclose(derivative, difference, atol=1e-7)


def test_the_derivative_is_symmetric_and_a_contraction():
    blocks, x, rng = make_blocks("cone")
    at = linearise(blocks, x)
    a, b = rng.standard_normal((2, len(at.on), blocks.d))
    Pa, Pb = blocks.derivative(at, a), blocks.derivative(at, b)
    np.testing.assert_allclose(np.sum(Pa * b, axis=1), np.sum(a * Pb, axis=1), atol=1e-12)
    assert np.all(row_norms(Pa) <= row_norms(a) * (1 + 1e-12))
    assert np.all(np.sum(Pa * a, axis=1) >= 0)


def test_faces_project_onto_what_their_rows_leave():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((3, 2, 5))
    faces = Faces([(np.array([0]), np.zeros((1, 0, 5))), (np.array([3, 1, 2]), rows)], 4, 5)
    np.testing.assert_array_equal(faces.dimension, [5, 3, 3, 3])
    x = rng.standard_normal((4, 5))
    projected = faces.project(x)
    np.testing.assert_array_equal(projected[0], x[0])
    for b, A in zip((3, 1, 2), rows, strict=True):
        basis = null_space(A)
        np.testing.assert_allclose(projected[b], basis @ basis.T @ x[b], atol=1e-12)


# ---- the systems -------------------------------------------------------------------------------


@pytest.fixture(params=["formed", "by products"])
def way(request, monkeypatch):
    """Both ways to solve for blocks in cones."""
    if request.param == "by products":
        monkeypatch.setattr("cvxnn.solvers.newton_blocks.MAX_ENTRIES", 0)
    return request.param


@pytest.mark.parametrize("sigma", [1e-3, SIGMA, 10.0])
@pytest.mark.parametrize(("n", "d"), [(40, 5), (200, 4), (10, 8)])
def test_systems_of_cones_are_the_matrix(way, n, d, sigma):
    blocks, x, rng = make_blocks("cone", n, d)
    at = linearise(blocks, x)
    curvature, r = rng.uniform(0.1, 10, n), rng.standard_normal(n)
    system = blocks.system(curvature, sigma, at)
    assert isinstance(system, FaceSystem if way == "formed" else ProductSystem)
    expected = np.linalg.solve(dense_matrix(blocks, curvature, sigma, at, cones=True), r)
    np.testing.assert_allclose(system.solve(r, 1e-11), expected, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("sigma", [1e-3, SIGMA, 1e3])
@pytest.mark.parametrize(("n", "d"), [(40, 5), (200, 4), (10, 8)])
def test_systems_of_free_blocks_are_the_matrix(n, d, sigma):
    blocks, x, rng = make_blocks("free", n, d)
    at = linearise(blocks, x)
    curvature, r = rng.uniform(0.1, 10, n), rng.standard_normal(n)
    K = dense_matrix(blocks, curvature, sigma, at, cones=False)
    system = blocks.system(curvature, sigma, at)
    for tol, precision in ((1e-11, 1e-9), (1e-2, 1e-2)):
        solution = system.solve(r, tol)
        assert np.linalg.norm(K @ solution - r) <= 2 * precision * np.linalg.norm(r)


@pytest.mark.parametrize(("tol", "expected"), [(1e-2, np.float32), (1e-10, np.float64)])
def test_products_are_as_precise_as_asked(tol, expected, monkeypatch):
    blocks, x, rng = make_blocks("free")
    seen, select = [], ExpandedMatrix.select

    def spy(self, patterns, dtype=None):
        seen.append(dtype)
        return select(self, patterns, dtype)

    monkeypatch.setattr(ExpandedMatrix, "select", spy)
    system = blocks.system(np.ones(blocks.n), SIGMA, linearise(blocks, x))
    system.solve(rng.standard_normal(blocks.n), tol)
    assert seen == [expected]


@pytest.fixture
def preconditioners(monkeypatch):
    """The names of the preconditioners that were made."""
    made = []

    def spy(name, make):
        def noted(self):
            made.append(name)
            return make(self)

        return noted

    for name in ("cheap", "dense"):
        method = f"_{name}_preconditioner"
        monkeypatch.setattr(ProductSystem, method, spy(name, getattr(ProductSystem, method)))
    return made


@pytest.mark.parametrize(("tol", "precision"), [(1e-10, 1e-9), (1e-2, 1e-2)])
def test_a_dense_preconditioner_helps_where_the_cheap_one_does_not(
    tol, precision, preconditioners, monkeypatch
):
    """As soon as products are so dear that factoring is worth its price."""
    blocks, x, rng = make_blocks("free", n=120, d=6, p=30)
    at = linearise(blocks, x)
    curvature, r = rng.uniform(0.1, 10, 120), rng.standard_normal(120)
    sigma = 1e5
    K = dense_matrix(blocks, curvature, sigma, at, cones=False)
    monkeypatch.setattr(newton_systems, "PRODUCT_RATE", 1.0)
    iterations = []
    solve = newton_systems.conjugate_gradients

    def counted(*args):
        result = solve(*args)
        iterations.append(result[1])
        return result

    monkeypatch.setattr(newton_systems, "conjugate_gradients", counted)
    system = blocks.system(curvature, sigma, at)
    assert np.linalg.norm(K @ system.solve(r, 1e-10) - r) <= 1e-8 * np.linalg.norm(r)
    assert preconditioners == ["cheap", "dense"]
    assert iterations[1] < iterations[0]
    again = blocks.system(1.1 * curvature, sigma, at).solve(r, tol)  # it serves again
    K += np.diag(0.1 * curvature)
    assert np.linalg.norm(K @ again - r) <= 2 * precision * np.linalg.norm(r)
    assert preconditioners == ["cheap", "dense"]


def test_a_preconditioner_is_made_anew_once_it_no_longer_serves(preconditioners):
    blocks, x, rng = make_blocks("free", n=200, d=6, p=30)
    at, r = linearise(blocks, x), rng.standard_normal(200)
    curvature = rng.uniform(0.1, 10, 200)
    blocks.system(curvature, 1e-3, at).solve(r, 1e-8)
    blocks.system(curvature, 1.01e-3, at).solve(r, 1e-8)
    assert len(preconditioners) == 1
    system = blocks.system(curvature, 1e3, at)
    K = dense_matrix(blocks, curvature, 1e3, at, cones=False)
    assert np.linalg.norm(K @ system.solve(r, 1e-8) - r) <= 2e-8 * np.linalg.norm(r)
    assert len(preconditioners) > 1


def test_few_directions_are_enough_for_a_preconditioner(monkeypatch):
    """Where there is memory for some of them only."""
    blocks, x, rng = make_blocks("free", n=60)
    at, r = linearise(blocks, x), rng.standard_normal(60)
    monkeypatch.setattr(newton_systems, "MAX_ENTRIES", 2 * 60)
    solution = blocks.system(np.ones(60), SIGMA, at).solve(r, 1e-10)
    K = dense_matrix(blocks, np.ones(60), SIGMA, at, cones=False)
    assert np.linalg.norm(K @ solution - r) <= 1e-9 * np.linalg.norm(r)


@pytest.mark.parametrize(("R", "n"), [(5, 30), (30, 5), (7, 7), (1, 1)])
def test_face_systems_solve_for_the_smaller_side(R, n):
    rng = np.random.default_rng(0)
    columns, curvature = rng.standard_normal((R, n)), rng.uniform(0.1, 10, n)
    K = np.diag(curvature) + SIGMA * columns.T @ columns
    r = rng.standard_normal(n)
    system = FaceSystem(curvature, SIGMA, columns.copy())
    np.testing.assert_allclose(system.solve(r, 1e-3), np.linalg.solve(K, r), rtol=1e-10)


# ---- what they are made of ---------------------------------------------------------------------


def test_conjugate_gradients_solve_and_count():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((30, 30))
    K, r = A @ A.T + np.eye(30), rng.standard_normal(30)
    exact = np.linalg.solve(K, r)

    def run(precondition, tol, max_iter):
        x, n_iter, done = conjugate_gradients(lambda x: K @ x, precondition, r, tol, max_iter)
        assert done == (np.linalg.norm(K @ x - r) <= 1.01 * tol * np.linalg.norm(r))
        return x, n_iter, done

    plain, n_plain, done = run(lambda r: r, 1e-12, 1000)
    assert done
    np.testing.assert_allclose(plain, exact, rtol=1e-8)
    half, n_half, done = run(lambda r: r, 1e-12, 10)
    assert n_half == 10
    assert not done
    assert np.linalg.norm(half - exact) < np.linalg.norm(exact)
    perfect, n_perfect, done = run(lambda r: np.linalg.solve(K, r), 1e-10, 1000)
    assert n_perfect <= 2 < n_plain
    np.testing.assert_allclose(perfect, exact, rtol=1e-8)


def test_conjugate_gradients_of_nothing_are_nothing():
    """A residual of zero asks for no step."""
    x, _, done = conjugate_gradients(lambda x: 2 * x, lambda r: r, np.zeros(4), 1e-8, 10)
    assert done
    np.testing.assert_array_equal(x, 0)


def test_factors_in_single_precision():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((20, 50))
    K = (A @ A.T + np.eye(20)).astype(np.float32)
    factor = np.triu(factor_single(K.copy()))
    np.testing.assert_allclose(factor.T @ factor, K, rtol=1e-4, atol=1e-3)


def test_a_factor_of_an_ill_conditioned_matrix_is_close_to_it():
    """Rounding makes it indefinite; as a preconditioner its factor still has to be near."""
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((60, 60)))[0]
    exact = (Q * np.logspace(0, 12, 60)) @ Q.T
    single = ((exact + exact.T) / 2).astype(np.float32)
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(single)
    factor = np.triu(factor_single(single.copy())).astype(float)
    assert np.isfinite(factor).all()
    np.testing.assert_allclose(factor.T @ factor, exact, atol=1e-3 * np.abs(exact).max())
