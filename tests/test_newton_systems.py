"""The linear algebra of the Newton solver: the derivative of the prox against finite differences,
the systems against the matrix written out."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import block_diag, null_space

import cvxnn
from conftest import make_data
from cvxnn.cones.cones import Cones
from cvxnn.losses import Root, make_loss
from cvxnn.operators.dense import ExpandedMatrix
from cvxnn.solvers.newton import blocks as newton_blocks
from cvxnn.solvers.newton import joint as newton_joint
from cvxnn.solvers.newton import preconditioners as newton_preconditioners
from cvxnn.solvers.newton import systems as newton_systems
from cvxnn.solvers.newton.blocks import ConeBlocks, GatedBlocks, JointBlocks, row_norms
from cvxnn.solvers.newton.faces import Faces, Linearisation
from cvxnn.solvers.newton.joint import CoupledInverse, JointSolver
from cvxnn.solvers.newton.preconditioners import factor_shifted
from cvxnn.solvers.newton.systems import FaceSystem, ProductSystem, conjugate_gradients

SIGMA, THRESHOLD = 0.7, 0.8


def random_blocks(kind, n=40, d=5, p=12, C=1, seed=0):
    """All blocks of a random matrix for C outputs, and a point of each."""
    rng = np.random.default_rng(seed)
    X, gates = rng.standard_normal((n, d)), rng.standard_normal((d, p))
    operator = ExpandedMatrix(X, X @ gates >= 0)
    blocks = JointBlocks([GatedBlocks(operator) for _ in range(C)])
    x = rng.standard_normal((C * p, d))
    if kind == "cone":
        cones = Cones(X, operator.mask, gates)
        blocks = JointBlocks([ConeBlocks(operator, cones) for _ in range(C)])
        x = np.tile(gates.T, (2 * C, 1)) + 0.5 * rng.standard_normal((2 * C * p, d))
    blocks.set_work(np.arange(blocks.size), 1.0)
    return blocks, x, rng


def prox(blocks, x):
    q = blocks.project(x, THRESHOLD)
    return q * np.maximum(1 - THRESHOLD / row_norms(q), 0)[:, None]


def linearise(blocks, x):
    q = blocks.project(x, THRESHOLD)
    on = np.flatnonzero(row_norms(q) > THRESHOLD)
    norms = row_norms(q)[on]
    return Linearisation(on, q[on] / norms[:, None], THRESHOLD / norms)


def tight_rows(blocks, at):
    """The rows of X each active block is orthogonal to, by its definition."""
    unit_rows = blocks.X / row_norms(blocks.X)[:, None]
    return [blocks.X[rows] for rows in np.abs(at.unit @ unit_rows.T) < 1e-10]


def dense_matrix(blocks, sigma, at):
    """A = sigma sum_b D_b X P_b X' D_b for each output, as one matrix for (n, C) in rows."""
    part = blocks.parts[0]
    n, C, p = blocks.n, len(blocks.parts), part.operator.p
    cones = isinstance(part, ConeBlocks)
    A = np.zeros((C, n, n))
    tight = tight_rows(blocks, at)
    for b, unit, c, rows in zip(blocks.work[at.on], at.unit, at.ratio, tight, strict=True):
        F = np.eye(blocks.d)
        if cones and len(rows):
            basis = null_space(rows)
            F = basis @ basis.T
        M = part.operator.mask[:, b % p, None] * blocks.X
        A[b // part.size] += sigma * M @ ((1 - c) * F + c * np.outer(unit, unit)) @ M.T
    order = np.arange(n * C).reshape(C, n).T.reshape(-1)
    return block_diag(*A)[np.ix_(order, order)]


ROOTS = ("scalar", "with zeros", "intercept", "several", "coupled", "coupled intercept")


def make_root(kind, n, seed=0):
    """A square root of a Hessian of order 1; the losses' own where they have a name."""
    rng = np.random.default_rng(seed)
    if kind in ("scalar", "with zeros"):  # such as outliers have
        scale = rng.uniform(0.3, 3, (n, 1))
        return Root(scale * (rng.random((n, 1)) < 0.7) if kind == "with zeros" else scale)
    C = {"intercept": 1}.get(kind, 3)
    Z = rng.standard_normal((n, C))
    coupled = "coupled" in kind
    Y = np.eye(3)[np.arange(n) % 3] if coupled else np.sign(rng.standard_normal((n, C)))
    loss = make_loss("softmax" if coupled else "logistic", Y, intercept=kind != "coupled")
    root = loss.root(Z)
    assert (root.unit is not None) == coupled
    assert (root.span is not None) == (kind != "coupled")
    return replace(root, scale=np.sqrt(n) * root.scale)


def matrix_of(root):
    """L, column by column."""
    unit = np.eye(root.scale.size).reshape(-1, *root.scale.shape)
    return np.stack([root.apply(e).reshape(-1) for e in unit], axis=1)


def exact_step(root, A, r):
    """L x with (I + L'A L) x = L'r, and what an error of x in the residual may cost in it."""
    L = matrix_of(root)
    b = L.T @ r.reshape(-1)
    step = L @ np.linalg.solve(np.eye(len(L)) + L.T @ A @ L, b)
    return step.reshape(r.shape), np.linalg.norm(L, 2) * np.linalg.norm(b)


# ---- the blocks --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gated", "relu"])
def test_outputs_share_one_copy_of_the_rows(kind):
    X, Y = make_data(30, 4, C=3)
    patterns = cvxnn.sample_patterns(X, 8, random_state=0)
    problem = {"gated": cvxnn.CGReLU, "relu": cvxnn.CReLU}[kind](X, Y, patterns, lam=0.1)
    rows = newton_blocks.single_rows(problem)
    blocks = [newton_blocks.make_blocks(problem, C, rows) for C in (1, 2)]
    copies = [part.products.rows.X for joint in blocks for part in joint.parts]
    single = problem.operator_double.base.in_single().rows()  # what products are made with
    assert all(copy is single for copy in copies)


def test_large_preconditioners_are_let_go_between_outputs(monkeypatch):
    """The answer is the same, and no output keeps what is large while others have their turn."""
    X, Y = make_data(60, 8, C=3)
    problem = cvxnn.CGReLU(X, Y, cvxnn.sample_patterns(X, 60, random_state=0), lam=1e-3)
    monkeypatch.setattr(newton_blocks, "MAX_FORMED", 0)  # systems by products
    kept = cvxnn.solve(problem, "newton", tol=1e-8)
    released, release = [], newton_systems.Products.release

    def watch(products):
        before = products.preconditioner
        release(products)
        released.append(before is not None and products.preconditioner is None)

    monkeypatch.setattr(newton_systems.Products, "release", watch)
    monkeypatch.setattr(newton_preconditioners, "MAX_KEPT", 0)
    let_go = cvxnn.solve(problem, "newton", tol=1e-8)
    assert any(released)
    assert kept.converged
    assert let_go.converged
    assert let_go.certificate.objective == pytest.approx(kept.certificate.objective, rel=1e-7)


@pytest.mark.parametrize("kind", ["gated", "relu"])
def test_joint_blocks_are_those_of_the_problem(kind):
    """Products with a working set are the problem's, one output after the other."""
    X, Y = make_data(30, 4, C=3)
    patterns = cvxnn.sample_patterns(X, 8, random_state=0)
    problem = {"gated": cvxnn.CGReLU, "relu": cvxnn.CReLU}[kind](X, Y, patterns, lam=0.1)
    rng = np.random.default_rng(0)
    blocks = newton_blocks.make_blocks(problem, 3)
    m = problem.weight_shape[0]
    assert blocks.size == 3 * m
    work = np.sort(rng.permutation(blocks.size)[: blocks.size // 2])
    blocks.set_work(work, 1.0)
    rows = np.zeros((blocks.size, 4))
    rows[work] = rng.standard_normal((len(work), 4))
    U = rows.reshape(3, m, 4).transpose(1, 2, 0)
    np.testing.assert_allclose(blocks.forward(rows[work]), problem.operator.forward(U), atol=1e-12)
    theta = rng.standard_normal((30, 3))
    correlations = -problem.operator.adjoint(theta).transpose(2, 0, 1).reshape(-1, 4)
    np.testing.assert_allclose(blocks.correlation(theta), correlations[work], atol=1e-12)
    if kind == "relu":
        correlations, _ = problem.cones.project(correlations, np.tile(np.arange(8), 6))
    found, exact = blocks.all_correlations(theta, 7.0, None, 1.0), row_norms(correlations)
    assert np.all(row_norms(found) >= np.minimum(exact, 7.0) * (1 - 1e-9))
    few = found.copy()
    blocks.shorten(few, 7.0, few=True)  # more than there are here
    blocks.shorten(found, 7.0)
    np.testing.assert_allclose(few, found, atol=1e-9)
    bounded = row_norms(found)
    assert 0 < np.sum(exact > 7.0) < len(exact)
    np.testing.assert_allclose(bounded[exact > 7.0], exact[exact > 7.0], rtol=1e-9)
    assert np.all(bounded[exact <= 7.0] <= 7.0 * (1 + 1e-9))
    lifted = np.zeros_like(rows)
    lifted[work] = blocks.lift(work, rows[work])
    U = lifted.reshape(3, m, 4).transpose(1, 2, 0)
    assert problem.max_violation(U) <= 1e-13
    projected = blocks.project(rows[work], 0.0)
    np.testing.assert_allclose(projected, lifted[work], atol=1e-9)


# ---- the derivative ----------------------------------------------------------------------------


@pytest.mark.parametrize("C", [1, 2])
@pytest.mark.parametrize("kind", ["free", "cone"])
def test_the_derivative_is_that_of_the_prox(kind, C):
    blocks, x, rng = random_blocks(kind, C=C)
    at = linearise(blocks, x)
    assert 3 < len(at.on) < len(x)  # some blocks shrink to zero
    if kind == "cone":
        n_tight = [len(rows) for rows in tight_rows(blocks, at)]
        assert len(set(n_tight)) > 1  # faces of different dimension
    for _ in range(5):
        step = rng.standard_normal(x.shape)
        difference = (prox(blocks, x + 1e-6 * step) - prox(blocks, x - 1e-6 * step)) / 2e-6
        linearise(blocks, x)  # a derivative is taken where the blocks were projected last
        derivative = np.zeros_like(x)
        derivative[at.on] = blocks.derivative(at, step[at.on])
        np.testing.assert_allclose(derivative, difference, atol=1e-7)


def test_the_derivative_is_symmetric_and_a_contraction():
    blocks, x, rng = random_blocks("cone")
    at = linearise(blocks, x)
    a, b = rng.standard_normal((2, len(at.on), blocks.d))
    Pa, Pb = blocks.derivative(at, a), blocks.derivative(at, b)
    np.testing.assert_allclose(np.sum(Pa * b, axis=1), np.sum(a * Pb, axis=1), atol=1e-12)
    assert np.all(row_norms(Pa) <= row_norms(a) * (1 + 1e-12))
    assert np.all(np.sum(Pa * a, axis=1) >= 0)


def test_faces_project_onto_what_their_rows_leave():
    rng = np.random.default_rng(0)
    X, x = rng.standard_normal((9, 5)), rng.standard_normal((4, 5))
    tight = np.array([rng.choice(9, 6, replace=False) for _ in range(4)])
    for count, given in (([0, 2, 3, 4], [1]), ([1, 2, 1, 0], []), ([4, 5, 4, 5], [0])):
        known = {b: null_space(X[tight[b, : count[b]]]).T for b in given}
        faces = Faces(X, tight, np.array(count), known)
        np.testing.assert_array_equal(faces.dimension, 5 - np.array(count))
        before = faces.project(x)
        assert len(faces.bases.rows) == faces.dimension.sum()
        for projected in (before, faces.project(x)):
            for b, k in enumerate(count):
                basis = null_space(X[tight[b, :k]]) if k else np.eye(5)
                np.testing.assert_allclose(projected[b], basis @ basis.T @ x[b], atol=1e-12)


def test_columns_are_a_root_of_the_derivative():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((9, 5))
    tight, count = np.array([[0, 1, 2], [3, 4, 5]]), np.array([3, 1])
    faces = Faces(X, tight, count)
    unit = faces.project(rng.standard_normal((2, 5)))
    unit /= np.linalg.norm(unit, axis=1)[:, None]
    at = Linearisation(np.arange(2), unit, np.array([0.3, 0.9]))
    columns, owner = faces.columns(at, X)
    for b in range(2):
        P = np.array([at.shrink(faces.project(np.tile(e, (2, 1))))[b] for e in np.eye(5)])
        its = columns[owner == b]
        np.testing.assert_allclose(its.T @ its, X @ P @ X.T, atol=1e-12)


# ---- the systems -------------------------------------------------------------------------------


@pytest.fixture
def by_products(monkeypatch):
    """No block is so small that its columns are formed."""
    monkeypatch.setattr(newton_blocks, "MAX_ENTRIES", 0)
    monkeypatch.setattr(newton_blocks, "MAX_FORMED", 0)


@pytest.fixture(params=["formed", "formed apart", "by products"])
def way(request, monkeypatch):
    """All ways to a step: columns of all outputs in one factor, in one for each output, or none."""
    if request.param == "formed apart":
        monkeypatch.setattr(newton_joint, "MAX_COUPLED", 0)
    elif request.param == "by products":
        request.getfixturevalue("by_products")
    return request.param


@pytest.mark.parametrize("sigma", [1e-3, SIGMA, 10.0])
@pytest.mark.parametrize(("n", "d"), [(40, 5), (200, 4), (10, 8)])
@pytest.mark.parametrize("kind", ROOTS)
def test_systems_of_cones_are_the_matrix(way, kind, n, d, sigma):
    root = make_root(kind, n)
    blocks, x, rng = random_blocks("cone", n, d, C=root.scale.shape[1])
    at, r = linearise(blocks, x), rng.standard_normal(root.scale.shape)
    system = blocks.parts[0].system(root.scale[:, 0], sigma, next(blocks._split(at))[1])
    assert isinstance(system, ProductSystem if way == "by products" else FaceSystem)
    expected, size = exact_step(root, dense_matrix(blocks, sigma, at), r)
    step = blocks.solve(root, sigma, at, r, 1e-11)
    assert np.linalg.norm(step - expected) <= 1e-9 * size


@pytest.mark.parametrize("sigma", [1e-3, SIGMA, 1e3])
@pytest.mark.parametrize(("n", "d"), [(40, 5), (200, 4), (10, 8)])
@pytest.mark.parametrize("kind", ROOTS)
def test_systems_of_free_blocks_are_the_matrix(way, kind, n, d, sigma):
    root = make_root(kind, n)
    blocks, x, rng = random_blocks("free", n, d, C=root.scale.shape[1])
    at, r = linearise(blocks, x), rng.standard_normal(root.scale.shape)
    expected, size = exact_step(root, dense_matrix(blocks, sigma, at), r)
    for tol, precision in ((1e-11, 1e-9), (1e-2, 1e-2)):
        step = blocks.solve(root, sigma, at, r, tol)
        assert np.linalg.norm(step - expected) <= 2 * precision * size


@pytest.mark.parametrize("kind", ["coupled", "coupled intercept"])
def test_an_output_without_active_blocks_is_part_of_the_system(way, kind):
    """The prox of all its blocks is zero, but the loss still couples it to the others."""
    root = make_root(kind, 40)
    for blocks_kind in ("free", "cone"):
        blocks, x, rng = random_blocks(blocks_kind, C=3)
        x[blocks.parts[0].size : 2 * blocks.parts[0].size] *= 1e-3
        at, r = linearise(blocks, x), rng.standard_normal((40, 3))
        owner = at.on // blocks.parts[0].size
        assert np.array_equal(np.unique(owner), [0, 2])
        expected, size = exact_step(root, dense_matrix(blocks, SIGMA, at), r)
        step = blocks.solve(root, SIGMA, at, r, 1e-11)
        assert np.linalg.norm(step - expected) <= 1e-9 * size


@pytest.mark.parametrize("kind", ROOTS)
def test_steps_descend(kind):
    """L x = (H^-1 + A)^-1 r where H has an inverse; where it has none, r'L x >= 0 all the same,
    and L x stays where the loss has curvature."""
    root = make_root(kind, 40)
    blocks, x, rng = random_blocks("free", C=root.scale.shape[1])
    at, r = linearise(blocks, x), rng.standard_normal(root.scale.shape)
    step = blocks.solve(root, SIGMA, at, r, 1e-11)
    assert np.sum(step * r) > 0
    L, A = matrix_of(root), dense_matrix(blocks, SIGMA, at)
    outside = null_space(L.T)
    np.testing.assert_allclose(outside.T @ step.reshape(-1), 0, atol=1e-9)
    if kind == "scalar":
        expected = np.linalg.solve(np.linalg.inv(L @ L.T) + A, r)
        np.testing.assert_allclose(step, expected, atol=1e-9)
    if kind in ("intercept", "several", "coupled intercept"):
        np.testing.assert_allclose(step.sum(axis=0), 0, atol=1e-9)
    if "coupled" in kind:
        np.testing.assert_allclose(step.sum(axis=1), 0, atol=1e-9)


def solve_one(blocks, scale, sigma, at, r, tol):
    """For one output with the scale (n,), which is L."""
    return blocks.solve(Root(scale[:, None]), sigma, at, r[:, None], tol)[:, 0]


def check_one(blocks, scale, sigma, at, r, step, precision):
    expected, size = exact_step(Root(scale[:, None]), dense_matrix(blocks, sigma, at), r[:, None])
    assert np.linalg.norm(step - expected[:, 0]) <= precision * size


@pytest.mark.parametrize(("tol", "expected"), [(1e-2, np.float32), (1e-10, np.float64)])
def test_products_are_as_precise_as_asked(tol, expected, by_products, monkeypatch):
    blocks, x, rng = random_blocks("free")
    seen, select = [], ExpandedMatrix.select

    def spy(self, patterns, dtype=None):
        seen.append(dtype)
        return select(self, patterns, dtype)

    monkeypatch.setattr(ExpandedMatrix, "select", spy)
    n = blocks.n
    solve_one(blocks, np.ones(n), SIGMA, linearise(blocks, x), rng.standard_normal(n), tol)
    assert seen == [expected]


@pytest.fixture
def iterations(monkeypatch):
    """Those of each solution by conjugate gradients."""
    counts = []
    solve = conjugate_gradients

    def counted(*args):
        result = solve(*args)
        counts.append(result[1])
        return result

    monkeypatch.setattr(newton_joint, "conjugate_gradients", counted)
    monkeypatch.setattr(ExpandedMatrix, "solve_system", lambda *args, **limits: None)
    return counts


@pytest.fixture
def preconditioners(by_products, monkeypatch):
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
    tol, precision, preconditioners, iterations, monkeypatch
):
    """As soon as products are so dear that factoring is worth its price."""
    blocks, x, rng = random_blocks("free", n=120, d=6, p=30)
    at = linearise(blocks, x)
    scale, r = rng.uniform(0.3, 3, 120), rng.standard_normal(120)
    sigma = 1e5
    monkeypatch.setattr(newton_systems, "PRODUCT_RATE", 1.0)
    step = solve_one(blocks, scale, sigma, at, r, 1e-10)
    check_one(blocks, scale, sigma, at, r, step, 1e-8)
    assert preconditioners == ["cheap", "dense"]
    assert iterations[1] < iterations[0]
    again = solve_one(blocks, 0.95 * scale, sigma, at, r, tol)  # it serves again
    check_one(blocks, 0.95 * scale, sigma, at, r, again, 2 * precision)
    assert preconditioners == ["cheap", "dense"]


def test_a_preconditioner_is_made_anew_once_it_no_longer_serves(preconditioners):
    blocks, x, rng = random_blocks("free", n=200, d=6, p=30)
    at, r = linearise(blocks, x), rng.standard_normal(200)
    scale = rng.uniform(0.3, 3, 200)
    solve_one(blocks, scale, 1e-3, at, r, 1e-8)
    solve_one(blocks, scale, 1.01e-3, at, r, 1e-8)
    assert len(preconditioners) == 1
    step = solve_one(blocks, scale, 1e3, at, r, 1e-8)
    check_one(blocks, scale, 1e3, at, r, step, 2e-8)
    assert len(preconditioners) > 1


def test_coupled_outputs_have_a_preconditioner_each(preconditioners):
    root = make_root("coupled", 60)
    blocks, x, rng = random_blocks("free", n=60, C=3)
    at, r = linearise(blocks, x), rng.standard_normal((60, 3))
    blocks.solve(root, 1e-2, at, r, 1e-6)
    assert preconditioners == ["cheap"] * 3
    blocks.solve(root, 1.01e-2, at, r, 1e-6)
    assert len(preconditioners) == 3


@pytest.mark.parametrize("kind", ["coupled", "coupled intercept"])
@pytest.mark.parametrize("blocks_kind", ["free", "cone"])
def test_inverses_of_single_outputs_give_that_of_coupled_ones(
    kind, blocks_kind, iterations, monkeypatch
):
    """In exact arithmetic one iteration would do, however large sigma is."""
    monkeypatch.setattr(newton_joint, "MAX_COUPLED", 0)
    root = make_root(kind, 60)
    blocks, x, rng = random_blocks(blocks_kind, n=60, C=3)
    at, r = linearise(blocks, x), rng.standard_normal((60, 3))
    expected, size = exact_step(root, dense_matrix(blocks, 1e3, at), r)
    step = blocks.solve(root, 1e3, at, r, 1e-8)  # outputs apart, and iterations
    assert np.linalg.norm(step - expected) <= 1e-7 * size
    monkeypatch.setattr(newton_joint, "FEW_ITERATIONS", 0)
    step = blocks.solve(root, 1e3, at, r, 1e-8)
    assert np.linalg.norm(step - expected) <= 1e-7 * size
    assert iterations[-1] <= 3
    monkeypatch.setattr(newton_joint, "MAX_COUPLED_ROWS", 0)  # without their coupling
    blocks.solve(root, 1e3, at, r, 1e-8)
    assert iterations[-1] > 10


def test_few_directions_are_enough_for_a_preconditioner(by_products, monkeypatch):
    """Where there is memory for some of them only."""
    blocks, x, rng = random_blocks("free", n=60)
    at, r = linearise(blocks, x), rng.standard_normal(60)
    monkeypatch.setattr(newton_systems, "MAX_ENTRIES", 2 * 60)
    step = solve_one(blocks, np.ones(60), SIGMA, at, r, 1e-10)
    check_one(blocks, np.ones(60), SIGMA, at, r, step, 1e-9)


@pytest.mark.parametrize(("R", "n"), [(5, 30), (30, 5), (7, 7), (1, 1)])
def test_face_systems_solve_for_the_smaller_side(R, n):
    """I + S C'C S sigma, its inverse and its products."""
    rng = np.random.default_rng(0)
    columns, scale = rng.standard_normal((R, n)), rng.uniform(0, 3, n)
    A = SIGMA * scale[:, None] * (columns.T @ columns) * scale
    r = rng.standard_normal(n)
    system = FaceSystem(scale, SIGMA, columns.copy())
    assert system.exact
    np.testing.assert_allclose(system.product(r), A @ r, atol=1e-12)
    expected = np.linalg.solve(np.eye(n) + A, r)
    np.testing.assert_allclose(system.inverse(r), expected, rtol=1e-10, atol=1e-13)


def test_product_systems_multiply_with_the_matrix(by_products):
    """And their preconditioners are close to its inverse, the dense one closer."""
    blocks, x, rng = random_blocks("free", n=60, d=4, p=20)
    at, r = linearise(blocks, x), rng.standard_normal(60)
    scale = rng.uniform(0, 2, 60)
    system = blocks.parts[0].system(scale, SIGMA, at)
    assert isinstance(system, ProductSystem)
    assert not system.exact
    assert not system.ready
    A = scale[:, None] * dense_matrix(blocks, SIGMA, at) * scale
    system = system.with_precision(1e-10)
    np.testing.assert_allclose(system.product(r), A @ r, atol=1e-11)
    exact = np.linalg.solve(np.eye(60) + A, r)
    errors = []
    for dense in (False, True):
        system.renew(dense)
        assert system.ready
        errors.append(np.linalg.norm(system.inverse(r) - exact) / np.linalg.norm(exact))
    assert errors[1] < 1e-3
    assert errors[1] < errors[0] < 1


def test_product_systems_do_not_disturb_each_other(by_products):
    """Those of one output share X and a preconditioner, and nothing that their products need."""
    blocks, x, rng = random_blocks("free", n=60, d=4, p=20)
    at, other_at, r = linearise(blocks, x), linearise(blocks, 2 * x), rng.standard_normal(60)
    scale, other = rng.uniform(0, 2, 60), rng.uniform(0, 2, 60)
    first = blocks.parts[0].system(scale, SIGMA, at)
    second = blocks.parts[0].system(other, 3 * SIGMA, other_at)
    rough = first.with_precision(1e-2)
    for system, s, sigma, where in (
        (first, scale, SIGMA, at),
        (second, other, 3 * SIGMA, other_at),
    ):
        A = s[:, None] * dense_matrix(blocks, sigma, where) * s
        np.testing.assert_allclose(system.product(r), A @ r, atol=1e-11)
    assert 1e-12 < np.abs(rough.product(r) - first.product(r)).max() < 1e-3
    first.renew(False)
    assert second.ready
    np.testing.assert_array_equal(first.inverse(r), second.inverse(r))


def test_a_solver_remembers_preconditioners_only(by_products):
    """A second solution does not depend on what was solved before, but for its preconditioner."""
    root = make_root("coupled", 60)
    blocks, x, rng = random_blocks("free", n=60, C=3)
    at, r = linearise(blocks, x), rng.standard_normal((60, 3))
    blocks.solve(root, 1e-2, at, r, 1e-6)
    before = set(vars(blocks._solver))
    assert before == {"_dense", "_count_when_new", "_coupled_inverse", "_kept", "_double"}
    blocks.solve(make_root("coupled", 60, seed=1), 1e3, at, 2 * r, 1e-9)
    step = blocks.solve(root, 1e-2, at, r, 1e-11)
    expected, size = exact_step(root, dense_matrix(blocks, 1e-2, at), r)
    assert np.linalg.norm(step - expected) <= 1e-9 * size
    assert set(vars(blocks._solver)) == before


def test_systems_of_both_kinds_are_solved_together(monkeypatch):
    """One output has so many faces that it is not formed."""
    root = make_root("coupled intercept", 40)
    blocks, x, rng = random_blocks("cone", C=3)
    at, r = linearise(blocks, x), rng.standard_normal((40, 3))
    parts = list(blocks._split(at))
    systems = []
    for k, (part, its, _) in enumerate(parts):
        monkeypatch.setattr(newton_blocks, "MAX_ENTRIES", 0 if k == 1 else 10**6)
        systems.append(part.system(root.scale[:, k], SIGMA, its))
    assert [system.exact for system in systems] == [True, False, True]
    expected, size = exact_step(root, dense_matrix(blocks, SIGMA, at), r)
    step = JointSolver().solve(root, systems, r, 1e-11)
    assert np.linalg.norm(step - expected) <= 1e-9 * size


def test_an_output_bias_without_curvature_leaves_an_empty_span():
    blocks, x, rng = random_blocks("cone", C=1)
    at, r, scale = linearise(blocks, x), rng.standard_normal((40, 1)), np.full((40, 1), 0.3)
    ((part, its, _),) = blocks._split(at)
    system = part.system(scale[:, 0], SIGMA, its)
    plain, empty = (
        JointSolver().solve(Root(scale, None, span), [system], r, 1e-11)
        for span in (None, np.zeros((40, 0)))
    )
    np.testing.assert_array_equal(empty, plain)


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


def test_conjugate_gradients_go_on_from_a_start():
    """An unfinished solution is a start for the rest, and a finished one needs a step at most."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((30, 30))
    K, r = A @ A.T + np.eye(30), rng.standard_normal(30)
    whole, n_whole, _ = conjugate_gradients(lambda x: K @ x, lambda r: r, r, 1e-8, 1000)
    half, _, done = conjugate_gradients(lambda x: K @ x, lambda r: r, r, 1e-8, n_whole // 2)
    assert not done
    rest = conjugate_gradients(lambda x: K @ x, lambda r: r, r, 1e-8, 1000, np.inf, half)
    assert rest[2]
    assert np.linalg.norm(K @ rest[0] - r) <= 1.01e-8 * np.linalg.norm(r)
    again = conjugate_gradients(lambda x: K @ x, lambda r: r, r, 1e-7, 1000, np.inf, whole)
    assert again[1] <= 1


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("span", [0, 2])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize(("dtype", "tol"), [(np.float32, 1e-3), (np.float64, 1e-10)])
def test_compiled_systems_are_solved_as_in_numpy(dtype, tol, dense, span, start, by_products):
    """Against NumPy's own solution of the whole matrix, and with the iterations of the twin."""
    n, sigma = 70, 0.3
    blocks, x, rng = random_blocks("free", n=n)
    at, scale = linearise(blocks, x), rng.uniform(0.3, 3, n)
    Q = np.linalg.qr(rng.standard_normal((n, span)))[0] if span else np.zeros((n, 0))
    part = blocks.parts[0]
    system = replace(part.system(scale, sigma, at), dtype=dtype)
    system.renew(dense)
    r = rng.standard_normal(n)
    r -= Q @ (Q.T @ r)
    before = r - Q @ (Q.T @ r) if start else None
    found = system.iterate(Q, r, before, tol, np.inf, 300)
    if found is None:
        pytest.skip("the kernels were not built")
    root = Root(np.ones((n, 1)), span=Q)

    def apply(x):
        return root.project((x + system.product(x))[:, None])[:, 0]

    def precondition(r):
        return root.project(system.inverse(r)[:, None])[:, 0]

    twin = conjugate_gradients(apply, precondition, r, tol, 300, np.inf, before)
    assert found[2]
    assert twin[2]
    # rounding in single precision costs some iterations, and more on one machine than on another
    assert abs(found[1] - twin[1]) <= (1 if dtype == np.float64 else max(1, 0.1 * twin[1]))
    T = np.eye(n) - Q @ Q.T
    A = scale[:, None] * dense_matrix(blocks, sigma, at) * scale
    expected = np.linalg.lstsq(T @ (np.eye(n) + A) @ T, r, rcond=1e-12)[0]
    assert np.linalg.norm(found[0] - expected) <= 2 * tol * np.linalg.norm(r)


def test_conjugate_gradients_of_nothing_are_nothing():
    """A residual of zero asks for no step."""
    x, _, done = conjugate_gradients(lambda x: 2 * x, lambda r: r, np.zeros(4), 1e-8, 10)
    assert done
    np.testing.assert_array_equal(x, 0)


def test_factors_in_single_precision():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((20, 50))
    K = (A @ A.T + np.eye(20)).astype(np.float32)
    factor = np.tril(factor_shifted(K.copy()))
    np.testing.assert_allclose(factor @ factor.T, K, rtol=1e-4, atol=1e-3)


def test_a_factor_of_an_ill_conditioned_matrix_is_close_to_it():
    """Rounding makes it indefinite; as a preconditioner its factor still has to be near."""
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((60, 60)))[0]
    exact = (Q * np.logspace(0, 12, 60)) @ Q.T
    single = ((exact + exact.T) / 2).astype(np.float32)
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(single)
    factor = np.tril(factor_shifted(single.copy())).astype(float)
    assert np.isfinite(factor).all()
    np.testing.assert_allclose(factor @ factor.T, exact, atol=1e-3 * np.abs(exact).max())


def test_a_coupled_inverse_has_one_precision():
    """Single outputs may be inverted in either; the result is the inverse on the range of T."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((3, 20, 30))
    systems = [np.eye(20) + part @ part.T for part in A]
    inverses = [np.linalg.inv(K).astype(t) for K, t in zip(systems, "fdf", strict=True)]
    v = rng.random((20, 3)) + 0.1
    v /= np.linalg.norm(v, axis=1)[:, None]
    root = Root(np.ones((20, 3)), v)
    inverse = CoupledInverse(inverses, root)
    assert {part.dtype for part in inverse._inverses} == {np.dtype(np.float64)}
    x = root.project(rng.standard_normal((20, 3)))
    product = np.stack([K @ x[:, k] for k, K in enumerate(systems)], axis=1)
    np.testing.assert_allclose(inverse(root.project(product)), x, atol=1e-4)


def test_a_coupled_preconditioner_is_the_inverse_of_what_it_is_made_of():
    """On the range of T, for outputs with a diagonal and for one without."""
    rng = np.random.default_rng(0)
    n, v = 20, rng.random((20, 3)) + 0.1
    v /= np.linalg.norm(v, axis=1)[:, None]
    T = Root(np.ones((n, 3)), v)
    roots = [rng.random(n) + 0.5, rng.random(n) + 0.5, None]
    V = [rng.standard_normal((R, n)) for R in (5, 30, 0)]
    parts = [
        newton_preconditioners.Preconditioner(np.eye(1), root, rows.astype(np.float32))
        for root, rows in zip(roots, V, strict=True)
    ]
    inverse = newton_preconditioners.CoupledPreconditioner(parts, v)
    x = T.project(rng.standard_normal((n, 3)))
    product = np.empty_like(x)
    for k, (root, rows) in enumerate(zip(roots, V, strict=True)):
        D = np.diag(np.ones(n) if root is None else root)
        product[:, k] = D @ (np.eye(n) + rows.T @ rows) @ D @ x[:, k]
    np.testing.assert_allclose(inverse(T.project(product)), x, atol=1e-4)


@pytest.mark.parametrize("R", [40, 90])
def test_large_systems_of_faces_are_factored_in_single_precision(R, monkeypatch):
    """The factor serves a later system; one that is too ill-conditioned for it is solved in double
    precision, and so are those after it."""
    rng = np.random.default_rng(0)
    n, solver, root = 60, JointSolver(), make_root("scalar", 60)
    monkeypatch.setattr(newton_joint, "WORTHWHILE", 10)
    columns, r = rng.standard_normal((R, n)), rng.standard_normal((n, 1))

    def error(columns):
        system = newton_systems.FaceSystem(root.scale[:, 0], 1.0, columns.copy())
        b = root.adjoint(r)
        expected = root.apply(np.linalg.solve(np.eye(n) + system.columns.T @ system.columns, b))
        found = solver.solve(root, [system], r, 1e-7)
        return np.linalg.norm(found - expected) / np.linalg.norm(expected)

    assert 1e-12 < error(columns) < 1e-2
    kept = solver._kept
    assert error(columns * (1 + 1e-3 * rng.standard_normal((R, n)))) < 1e-2
    assert solver._kept is kept is not None
    assert not solver._double
    assert error(columns * np.geomspace(1, 1e3, R)[:, None]) < 1e-2
    assert error(columns * np.geomspace(1, 1e5, n)) < 1e-2
    assert solver._double
    assert error(columns) < 1e-12


def test_on_the_way_only_the_longest_rows_are_shortened(monkeypatch):
    """Twice as many as may join the working set."""
    monkeypatch.setattr(ConeBlocks, "batch", 2)
    X, Y = make_data(60, 6)
    patterns = cvxnn.sample_patterns(X, 20, random_state=0)
    problem = cvxnn.CReLU(X, Y, patterns, lam=0.1)
    (blocks,) = newton_blocks.make_blocks(problem, 1).parts
    blocks.set_work(np.zeros(0, dtype=np.int64), 1.0)
    found = blocks.all_correlations(Y, 1e9, None, 1.0)
    before = row_norms(found)
    blocks.shorten(found, 0.0, few=True)
    changed = np.flatnonzero(row_norms(found) < before * (1 - 1e-12))
    assert 0 < len(changed) <= 4
    assert set(changed.tolist()) <= set(np.argsort(-before)[:4].tolist())
