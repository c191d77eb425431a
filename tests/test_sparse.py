"""Sparse data: every step gives what it gives for the same data as a dense array, in any format,
and X is never made dense on the way."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

import cvxnn
from cvxnn import CGReLU, CReLU, lambda_max, sample_patterns, solve
from cvxnn.arrays import to_numpy
from cvxnn.budget import Budget, spend
from cvxnn.cones.cones import Cones
from cvxnn.cones.sparse import FEW_ROWS, Span
from cvxnn.operators import ExpandedMatrix, SparseExpandedMatrix, expanded_matrix
from cvxnn.solvers.newton import systems
from cvxnn.solvers.newton.blocks import ConeBlocks
from cvxnn.solvers.newton.faces import Linearisation
from cvxnn.solvers.newton.systems import Products, ProductSystem, SingleRows
from extras import needs

SETTINGS = [{}, {"bias": True}, {"normalize": True}, {"bias": True, "normalize": True}]
LOSSES = [{"loss": "squared"}, {"loss": "logistic", "output_bias": True}]


def make_sparse(n, d, density=0.3, seed=0):
    """Random data with an empty row and an empty column, and targets of -1 and 1."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < density)
    X[n // 2] = X[:, d // 2] = 0.0
    Y = np.where(X @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n) > 0, 1.0, -1.0)
    return sparse.csr_array(X), X, Y


def both_problems(kind, n, d, p=8, share=0.1, bias=False, normalize=False, **settings):
    """The same problem on sparse and on dense data, at `share` of lambda_max."""
    S, X, Y = make_sparse(n, d)
    patterns = sample_patterns(X, p, bias=bias, normalize=normalize, random_state=0)
    settings |= {"bias": bias, "normalize": normalize}
    pair = [kind(data, Y, patterns, lam=1.0, **settings) for data in (S, X)]
    lam = share * lambda_max(pair[1])
    return [problem.with_lam(lam) for problem in pair]


@pytest.fixture
def nothing_dense(monkeypatch):
    """Refuses to make more than three rows or columns of length 2000 dense."""

    def guard(cls, name):
        method = getattr(cls, name)

        def guarded(self, *args, **kwargs):
            if 2000 in self.shape or 2001 in self.shape:
                assert min(self.shape) <= 3, f"{name} of a sparse array of shape {self.shape}"
            return method(self, *args, **kwargs)

        monkeypatch.setattr(cls, name, guarded)

    for form in ("csr", "csc", "coo"):
        for kind in ("array", "matrix"):
            for name in ("toarray", "todense"):
                guard(getattr(sparse, f"{form}_{kind}"), name)


# ------------------------------------------------------------------------------- the operator


def both_operators(n=40, d=12, p=9, dtype=np.float64, seed=0):
    S, X, _ = make_sparse(n, d)
    rng = np.random.default_rng(seed)
    mask = rng.random((n, p)) > 0.5
    return expanded_matrix(S.astype(dtype), mask), ExpandedMatrix(X.astype(dtype), mask), rng


def test_the_factory_chooses_by_the_data():
    sparse_operator, dense_operator, _ = both_operators()
    assert type(sparse_operator) is SparseExpandedMatrix
    assert type(expanded_matrix(dense_operator.rows(), dense_operator.mask)) is ExpandedMatrix


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("block", [2**22, 100])
@pytest.mark.parametrize("C", [1, 3])
def test_products_norms_and_kernel_are_those_of_the_dense_operator(monkeypatch, dtype, block, C):
    monkeypatch.setattr("cvxnn.operators.dense._BLOCK", block)
    ours, dense, rng = both_operators(dtype=dtype)
    U, R = rng.standard_normal((9, 12, C)), rng.standard_normal((40, C))
    U[[0, 4, 5]] = 0
    tolerance = {"rtol": 0, "atol": 1e-12 if dtype is np.float64 else 1e-4}
    assert ours.forward(U).dtype == ours.adjoint(R).dtype == dtype
    np.testing.assert_allclose(ours.forward(U), dense.forward(U), **tolerance)
    np.testing.assert_allclose(ours.forward(0 * U), np.zeros((40, C)))
    np.testing.assert_allclose(ours.adjoint(R), dense.adjoint(R), **tolerance)
    np.testing.assert_allclose(ours.block_norms(), dense.block_norms(), **tolerance)
    np.testing.assert_allclose(ours.kernel(), dense.kernel(), **tolerance)


@pytest.mark.parametrize("patterns", [[4], [7, 2, 2, 5], [], list(range(9))])
@pytest.mark.parametrize("dtype", [None, np.float32, "float64"])
def test_selections_are_those_of_the_dense_operator(patterns, dtype):
    ours, dense, rng = both_operators()
    for operator in (ours, ours.select(np.arange(9))):
        some, expected = operator.select(patterns, dtype), dense.select(patterns)
        U, R = rng.standard_normal((len(patterns), 12, 2)), rng.standard_normal((40, 2))
        tolerance = 1e-12 if some.X.dtype == np.float64 else 1e-4
        with spend(Budget()) as spent:
            fit = some.forward(U)
        assert spent.passes.forward == pytest.approx(len(patterns) / 9)
        np.testing.assert_allclose(fit, expected.forward(U), atol=tolerance)
        np.testing.assert_allclose(some.adjoint(R), expected.adjoint(R), atol=tolerance)
        np.testing.assert_array_equal(some.mask, expected.mask)
        np.testing.assert_array_equal(some.mask_of(slice(None)), expected.mask.T)


def test_single_precision_has_a_twin_in_double():
    ours, dense, rng = both_operators(dtype=np.float32)
    twin = ours.in_double()
    assert twin.X.dtype == np.float64
    assert twin is ours.in_double() is twin.in_double()
    R = rng.standard_normal((40, 1))
    np.testing.assert_allclose(twin.adjoint(R), dense.in_double().adjoint(R), atol=1e-12)


# --------------------------------------------------------------------- what users pass in


def duplicates(X):
    """Every entry in two halves, which is a valid CSR matrix but not a canonical one."""
    S = sparse.csr_array(X)
    parts = np.repeat(S.data / 2, 2), np.repeat(S.indices, 2), 2 * S.indptr
    return sparse.csr_array(parts, shape=S.shape)


def stored_zeros(X):
    rows, columns = np.indices(X.shape).reshape(2, -1)
    return sparse.coo_array((X.reshape(-1), (rows, columns)), shape=X.shape)


FORMS = {
    "csr_matrix": sparse.csr_matrix,
    "csc_array": sparse.csc_array,
    "coo_matrix": sparse.coo_matrix,
    "lil_array": sparse.lil_array,
    "dok_matrix": sparse.dok_matrix,
    "bsr_array": sparse.bsr_array,
    "dia_array": sparse.dia_array,
    "integers": lambda X: sparse.csr_array(X.astype(int)),
    "long doubles": lambda X: sparse.coo_array(X.astype(np.longdouble)),
    "long indices": lambda X: _with_long_indices(sparse.csr_array(X)),
    "duplicates": duplicates,
    "stored zeros": stored_zeros,
}


def _with_long_indices(S):
    S.indices, S.indptr = S.indices.astype(np.int64), S.indptr.astype(np.int64)
    return S


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_format_gives_the_same_and_stays_as_it_is(form):
    _, X, Y = make_sparse(20, 6)
    X = np.round(8 * X)  # exact as integers
    values = form(X)
    before = values.copy()
    patterns = sample_patterns(values, 10, bias=True, normalize=True, random_state=0)
    settings = {"lam": 0.01, "bias": True, "normalize": True}
    problem = CGReLU(values, Y, patterns, **settings)
    dense = CGReLU(X, Y, sample_patterns(X, 10, bias=True, normalize=True, random_state=0), 0.01)
    np.testing.assert_array_equal(patterns.mask, dense.patterns.mask)
    np.testing.assert_allclose(
        problem.operator.rows().toarray(),
        CGReLU(X, Y, patterns, **settings).operator.rows(),
        rtol=1e-15,
    )
    network = problem.network(np.ones(problem.weight_shape))
    np.testing.assert_allclose(network.predict(values), network.predict(X), rtol=1e-12)
    assert values.nnz == before.nnz
    np.testing.assert_array_equal(values.toarray(), before.toarray())


BAD = {
    "nan": (sparse.csr_array([[0, 1.0], [np.nan, 2]]), ValueError, "nan at row 1, column 0"),
    "inf": (sparse.coo_array([[0, 1.0], [3, np.inf]]), ValueError, r"inf at row 1.*\(1 such"),
    "overflow": (duplicates(np.array([[1e308, 0], [0, 1e308]])) * 2, ValueError, "inf at row 0"),
    "complex": (sparse.csr_array([[1j, 1], [0, 1]]), TypeError, "complex"),
    "no rows": (sparse.csr_array((0, 3)), ValueError, "empty"),
    "no columns": (sparse.csc_array((3, 0)), ValueError, "empty"),
    "1-d": (sparse.coo_array(np.ones(4)), ValueError, "2-dimensional"),
}


@pytest.mark.parametrize(("values", "error", "reason"), BAD.values(), ids=BAD)
def test_bad_sparse_data_are_refused(values, error, reason):
    gates = np.ones((values.shape[-1], 1))
    for call in (
        lambda: sample_patterns(values, 3),
        lambda: cvxnn.Patterns.from_gates(values, gates),
    ):
        with pytest.raises(error, match=f"^X .*{reason}"):
            call()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("sampling", [{}, {"active_share": 0.3}, {"strict": True}], ids=str)
def test_patterns_are_those_of_dense_data(settings, sampling, dtype):
    S, X, _ = make_sparse(50, 10)
    S, X = S.astype(dtype), X.astype(dtype)
    settings = {"random_state": 0, **sampling, **settings}
    if "active_share" in sampling:
        settings.pop("bias", None)
    ours, dense = sample_patterns(S, 30, **settings), sample_patterns(X, 30, **settings)
    np.testing.assert_array_equal(ours.mask, dense.mask)
    np.testing.assert_allclose(ours.gates, dense.gates, rtol=1e-6)
    again = cvxnn.Patterns.from_gates(S, ours.gates, ours.gate_bias, strict=ours.strict)
    np.testing.assert_array_equal(again.mask, ours.mask)


def test_patterns_of_other_data_are_refused():
    S, X, Y = make_sparse(30, 5)
    patterns = sample_patterns(make_sparse(30, 5, seed=1)[0], 10, random_state=0)
    for data in (S, X):
        with pytest.raises(ValueError, match="belong to other data: their gates disagree"):
            CGReLU(data, Y, patterns, lam=0.1)


# ------------------------------------------------------------------------- the same optimum


SOLVERS = [(CGReLU, "newton", 1e-8), (CGReLU, "rfista", 1e-6), (CReLU, "newton", 1e-8)]
SHAPES = [(60, 8), (25, 60)]


@pytest.mark.parametrize(
    ("kind", "solver", "tol", "loss", "shape"),
    [(*solver, loss, shape) for solver in SOLVERS for loss in LOSSES for shape in SHAPES]
    # slow, and slower with an output bias: every loss and every shape once
    + [(CReLU, "al", 1e-6, LOSSES[0], SHAPES[0]), (CReLU, "al", 1e-3, LOSSES[1], SHAPES[1])]
    + [
        pytest.param(CReLU, "al", tol, loss, shape, marks=pytest.mark.exhaustive)
        for tol, loss, shape in zip((1e-6, 1e-3), LOSSES, SHAPES[::-1], strict=True)
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_solvers_reach_the_value_of_dense_data(kind, solver, tol, loss, shape):
    ours, dense = both_problems(kind, *shape, **loss)
    assert lambda_max(ours) == pytest.approx(lambda_max(dense), rel=1e-12)
    solution, expected = solve(ours, solver, tol=tol), solve(dense, tol=1e-8)
    certificate = solution.certificate
    assert certificate.relative_gap <= tol
    value = expected.certificate.objective
    assert certificate.objective == pytest.approx(value, rel=max(tol, 1e-6))
    again = cvxnn.certify(dense, solution.weights, solution.dual)  # which tries more dual points
    assert again.objective == pytest.approx(certificate.objective, rel=1e-12)
    assert again.relative_gap <= certificate.relative_gap + 1e-9
    if kind is CReLU:
        assert certificate.network_objective == pytest.approx(certificate.objective, rel=1e-6)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("kind", [CGReLU, CReLU])
def test_intercepts_and_unit_columns(kind, settings):
    ours, dense = both_problems(kind, 40, 8, **settings)
    np.testing.assert_allclose(ours.column_scale, dense.column_scale, rtol=1e-14)
    np.testing.assert_allclose(ours.operator.rows().toarray(), dense.operator.rows(), rtol=1e-14)
    solution, expected = solve(ours, tol=1e-8), solve(dense, tol=1e-8)
    value = expected.certificate.objective
    assert solution.certificate.objective == pytest.approx(value, rel=1e-6)
    S, X, Y = make_sparse(40, 8)
    network = solution.network()
    np.testing.assert_allclose(network.predict(S), network.predict(X), atol=1e-12)
    if not settings.get("normalize"):
        assert network.objective(S, Y, ours.lam) == pytest.approx(value, rel=1e-6)


def test_several_outputs_and_coupled_ones():
    S, X, _ = make_sparse(40, 8)
    Y = np.eye(3)[np.random.default_rng(0).integers(3, size=40)]
    patterns = sample_patterns(S, 8, random_state=0)
    for kind in (CGReLU, CReLU):
        for loss in ("squared", "softmax"):
            values = [
                solve(kind(data, Y, patterns, 0.005, loss=loss), tol=1e-7).certificate.objective
                for data in (S, X)
            ]
            assert values[0] == pytest.approx(values[1], rel=1e-6)


def test_single_precision_is_certified_in_double():
    S, X, Y = make_sparse(60, 8)
    patterns = sample_patterns(S.astype(np.float32), 8, random_state=0)
    for kind in (CGReLU, CReLU):
        problem = kind(S.astype(np.float32), Y, patterns, 0.01)
        assert problem.operator.rows().dtype == np.float32
        solution, expected = solve(problem), solve(kind(X, Y, patterns, 0.01))
        assert solution.converged
        value = expected.certificate.objective
        assert solution.certificate.objective == pytest.approx(value, rel=2e-4)


@pytest.mark.parametrize("penalty", ["feature", "l1", "l2"])
def test_other_penalties(penalty):
    S, X, Y = make_sparse(40, 6)
    patterns = sample_patterns(S, 8, random_state=0)
    values = [
        solve(CGReLU(data, Y, patterns, 0.02, penalty=penalty), tol=1e-6).certificate.objective
        for data in (S, X)
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-6)


@pytest.mark.parametrize("solver", ["direct", "lsmr"])
def test_least_squares_solvers(solver):
    S, X, Y = make_sparse(40, 3)
    patterns = sample_patterns(S, 4, random_state=0)
    solution = solve(CGReLU(S, Y, patterns, 0.0, penalty="none"), solver, tol=1e-9)
    expected = solve(CGReLU(X, Y, patterns, 0.0, penalty="none"), "direct", tol=1e-9)
    assert solution.converged
    np.testing.assert_allclose(solution.weights, expected.weights, atol=1e-8)


@needs("cvxpy")
def test_the_conic_oracle_takes_sparse_data():
    for kind in (CGReLU, CReLU):
        ours, _ = both_problems(kind, 20, 4, p=4)
        oracle = solve(ours, "cvxpy", tol=1e-5)
        value = solve(ours, tol=1e-8).certificate.objective
        assert oracle.certificate.objective == pytest.approx(value, rel=1e-5)


def test_cones_without_a_penalty():
    S, _, Y = make_sparse(20, 30)
    problem = CReLU(S, Y, sample_patterns(S, 4, random_state=0), 0.0)
    solution = solve(problem, tol=1e-2)
    assert solution.solver.name == "al"
    assert solution.converged


@pytest.mark.parametrize("kind", [CGReLU, CReLU])
def test_paths_and_their_checkpoints(kind, tmp_path):
    ours, dense = both_problems(kind, 40, 8)
    path = cvxnn.path(ours, n_lams=4, eps=0.05, tol=1e-6, checkpoint=tmp_path / "path")
    expected = cvxnn.path(dense, n_lams=4, eps=0.05, tol=1e-6)
    np.testing.assert_allclose(path.lams, expected.lams)
    np.testing.assert_allclose(path.objectives, expected.objectives, rtol=1e-6)
    assert path.relative_gaps.max() <= 1e-6
    again = cvxnn.path(ours, n_lams=4, eps=0.05, tol=1e-6, checkpoint=tmp_path / "path")
    np.testing.assert_allclose(again.coefs, path.coefs)
    ours.operator.rows().data[0] += 1
    with pytest.raises(cvxnn.CheckpointError, match="another problem"):
        cvxnn.path(ours, lams=path.lams, tol=1e-6, checkpoint=tmp_path / "path")


def test_networks_and_their_maps_back():
    S, X, _ = make_sparse(40, 8)
    for kind in (CGReLU, CReLU):
        ours, _ = both_problems(kind, 40, 8, bias=True)
        solution = solve(ours, tol=1e-6)
        network = solution.network()
        for convex, same in zip(network.to_convex(S), network.to_convex(X), strict=True):
            if isinstance(convex, cvxnn.Patterns):
                np.testing.assert_array_equal(convex.mask, same.mask)
            else:
                np.testing.assert_allclose(convex, same)
        pruned = cvxnn.prune(network, S)
        assert pruned.n_neurons == cvxnn.prune(network, X).n_neurons
        np.testing.assert_allclose(pruned.predict(S), network.predict(X), atol=1e-7)
        if kind is CGReLU:  # ReLU neurons tie with rows, so that rounding decides
            masks = [cvxnn.Patterns.from_network(data, network).mask for data in (S, X)]
            np.testing.assert_array_equal(*masks)


# --------------------------------------------------------------------------------- the cones


def both_cones(n, d, p=6, density=0.3, seed=0):
    S, X, _ = make_sparse(n, d, density)
    rng = np.random.default_rng(seed)
    gates = rng.standard_normal((d, p))
    mask = X @ gates >= 0
    return Cones(S, mask, gates), Cones(X, mask, gates), rng


@pytest.mark.parametrize("shape", [(300, 10), (60, 40), (40, 80), (30, 700), (400, 600)], ids=str)
def test_projections_are_those_of_dense_rows(shape):
    ours, dense, rng = both_cones(*shape, density=0.3 if shape[1] < 100 else 0.02)
    points, pattern = rng.standard_normal((12, shape[1])), np.arange(12) % 6
    projected, active = ours.project(points, pattern)
    expected, _ = dense.project(points, pattern)
    np.testing.assert_allclose(projected, expected, atol=1e-10)
    assert ours.violation(projected, pattern).max() < 1e-12
    # the multipliers prove that there is no nearer point
    for point, q, rows, gamma, i, k in zip(
        points, projected, active.rows, active.gamma, pattern, active.count, strict=True
    ):
        assert np.all(gamma[:k] > 0)
        signed = gamma[:k] * ours.signs[i, rows[:k]]
        np.testing.assert_allclose(point + signed @ ours.X[rows[:k]], q, atol=1e-10)
        assert abs(q @ (point - q)) < 1e-10
    # warm starts, of nearby points or of far ones, change nothing
    for moved in (points + 0.01 * rng.standard_normal(points.shape), -points):
        warm, _ = ours.project(moved, pattern, start=active)
        np.testing.assert_allclose(warm, ours.project(moved, pattern)[0], atol=1e-10)


def test_many_active_rows_are_solved_for_by_iteration(monkeypatch):
    ours, _, rng = both_cones(400, 600, density=0.02)
    points, pattern = rng.standard_normal((3, 600)), np.arange(3)
    projected, active = ours.project(points, pattern)
    assert active.count.min() > FEW_ROWS
    monkeypatch.setattr("cvxnn.cones.sparse.MAX_ITERATIONS", 0)  # it fails, and a factor takes over
    np.testing.assert_allclose(ours.project(points, pattern)[0], projected, atol=1e-10)


def test_projections_end_when_they_are_short_enough():
    ours, dense, rng = both_cones(300, 40)
    points, pattern = rng.standard_normal((6, 40)), np.arange(6)
    full = np.linalg.norm(dense.project(points, pattern)[0], axis=1)
    early, active = ours.project(points, pattern, enough=1.5 * full)
    norms = np.linalg.norm(early, axis=1)
    assert np.all((full - 1e-12 <= norms) & (norms <= 1.5 * full))
    assert np.all(active.gamma >= 0)
    few, active = ours.project(points, pattern, max_rows=3)
    assert np.all(active.count <= 3)
    assert np.all(np.linalg.norm(few, axis=1) >= full - 1e-12)


def test_a_point_of_the_polar_cone_is_projected_to_zero():
    ours, _, rng = both_cones(60, 10)
    weights = rng.random((6, 60))
    polar = -np.stack([(weights[i] * ours.signs[i]) @ ours.X for i in range(6)])
    projected, _ = ours.project(polar, np.arange(6))
    np.testing.assert_array_equal(projected, 0.0)


def test_equal_and_opposite_rows():
    rng = np.random.default_rng(0)
    base = sparse.csr_array(make_sparse(30, 700, 0.02)[0])
    X = sparse.vstack([base, base, 2 * base, base[:5]], format="csr")
    gates = rng.standard_normal((700, 4))
    mask = X @ gates >= 0
    mask[90:] = ~mask[:5]  # both signs of a row: tight everywhere
    ours, dense = Cones(X, mask), Cones(X.toarray(), mask)
    points = rng.standard_normal((4, 700))
    projected, active = ours.project(points, np.arange(4))
    np.testing.assert_allclose(projected, dense.project(points, np.arange(4))[0], atol=1e-10)
    for b, count in enumerate(active.count):  # equal rows may share a multiplier
        rows, gamma = active.rows[b, :count], active.gamma[b, :count]
        pulled = points[b] + (gamma * ours.signs[b, rows]) @ ours.X[rows]
        np.testing.assert_allclose(pulled, projected[b], atol=1e-10)


def test_interior_points_and_singular_patterns():
    S, X, Y = make_sparse(30, 6)
    for data in (S, X):  # rows with both signs of the same pattern make its cone singular
        stacked = sparse.vstack([S, -S[:2]], format="csr") if data is S else np.vstack([X, -X[:2]])
        mask = X @ np.random.default_rng(1).standard_normal((6, 4)) >= 0
        mask = np.vstack([mask, ~mask[:2]])
        mask[30, 1] = ~mask[30, 1]
        found = Cones(stacked, mask)
        assert found.singular.tolist() == [False, True, False, False]
        inner = found.interior[[0, 2, 3]]
        assert found.slack(inner, np.array([0, 2, 3])).min() > 0
        outside = np.random.default_rng(2).standard_normal((3, 6))
        lifted = found.lift(outside, np.array([0, 2, 3]))
        assert found.violation(lifted, np.array([0, 2, 3])).max() < 1e-12
        with pytest.warns(cvxnn.PatternWarning, match="pattern 1 is singular"):
            problem = CReLU(stacked, np.append(Y, Y[:2]), cvxnn.Patterns(mask), 0.01)
        if data is S:
            value = solve(problem, tol=1e-8).certificate.objective
        else:
            expected = solve(problem, tol=1e-8).certificate.objective
    assert value == pytest.approx(expected, rel=1e-6)


def test_gates_with_a_bias_the_cones_have_not():
    S, X, Y = make_sparse(30, 40)
    patterns = sample_patterns(S, 4, bias=True, random_state=0)
    ours, dense = CReLU(S, Y, patterns, 0.05), CReLU(X, Y, patterns, 0.05)
    assert ours.notes == dense.notes
    value = solve(dense, tol=1e-8).certificate.objective
    assert solve(ours, tol=1e-8).certificate.objective == pytest.approx(value, rel=1e-6)


# ------------------------------------------------------------------------- Newton's systems


@pytest.mark.parametrize(("k", "d"), [(0, 5), (3, 5), (40, 600), (FEW_ROWS + 50, 600)])
def test_spans(k, d):
    rng = np.random.default_rng(0)
    X = sparse.random_array((400, d), density=min(1.0, 30 / d), random_state=rng, format="csr")
    norms = np.sqrt((X * X).sum(axis=1))
    X = sparse.csr_array(sparse.diags_array(1 / np.where(norms > 0, norms, 1)) @ X)
    rows = rng.permutation(400)[:k]
    span, A = Span(X, rows), X[rows].toarray()
    x = rng.standard_normal((d, 3))
    outside = x - np.linalg.pinv(A) @ (A @ x) if k else x
    np.testing.assert_allclose(span.remove(x), outside, atol=1e-8)
    np.testing.assert_allclose(span.remove(x[:, 0]), outside[:, 0], atol=1e-6)
    assert span.independent().all()
    twice = Span(X, np.append(rows, rows))
    assert twice.independent().tolist() == [True] * k + [False] * k


def both_blocks(n, d):
    """Cone blocks of a sparse and of a dense operator, projected at the same points."""
    ours, dense, rng = both_cones(n, d, density=0.3 if d < 100 else 0.02)
    points = rng.standard_normal((12, d)) + 0.5 * np.tile(ours.gates.T, (2, 1))
    pair = []
    for cones_ in (ours, dense):
        X = make_sparse(n, d, 0.3 if d < 100 else 0.02)[cones_ is dense]
        blocks = ConeBlocks(expanded_matrix(X, cones_.mask), cones_)
        blocks.set_work(np.arange(12), 1.0)
        q = blocks.project(points, 0.0)
        norms = np.linalg.norm(q, axis=1)
        on = np.flatnonzero(norms > 0.1)
        pair.append((blocks, Linearisation(on, q[on] / norms[on, None], 0.1 / norms[on])))
    return pair, rng


@pytest.mark.parametrize("shape", [(200, 10), (30, 40), (40, 600)], ids=str)
def test_derivatives_and_systems_of_cones(shape):
    ((ours, at), (dense, dense_at)), rng = both_blocks(*shape)
    np.testing.assert_array_equal(at.on, dense_at.on)
    rows = rng.standard_normal((len(at.on), shape[1]))
    np.testing.assert_allclose(
        ours.derivative(at, rows), dense.derivative(dense_at, rows), atol=1e-7
    )
    scale, r = rng.random(shape[0]), rng.standard_normal(shape[0])
    faces = ours._faces(at)
    assert faces.dimension.tolist() == dense._faces(dense_at).dimension.tolist()
    columns, owner = faces.columns(at, ours.X)
    others, dense_owner = dense._faces(dense_at).columns(dense_at, dense.X)
    for b in range(len(at.on)):
        C, D = columns[owner == b], others[dense_owner == b]
        np.testing.assert_allclose(C.T @ C, D.T @ D, atol=1e-8)
    system, expected = ours.system(scale, 2.0, at), dense.system(scale, 2.0, dense_at)
    if isinstance(system, ProductSystem):
        system = system.with_precision(1e-7)
    np.testing.assert_allclose(system.product(r), expected.product(r), atol=1e-6)


def test_free_systems_and_both_preconditioners():
    ours, dense, rng = both_operators(60, 12, 9)
    on = np.array([0, 3, 4, 8])
    unit = rng.standard_normal((4, 12))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    at, scale = Linearisation(on, unit, np.array([0.2, 0.5, 0.1, 0.9])), rng.random(60)
    pair = [
        ProductSystem(Products(SingleRows(operator)), scale, 3.0, on, at).with_precision(1e-7)
        for operator in (ours, dense)
    ]
    r = rng.standard_normal(60)
    np.testing.assert_allclose(pair[0].product(r), pair[1].product(r), atol=1e-10)
    for kind in (False, True):  # with no more features than the rank they are the same
        for system in pair:
            system.renew(kind)
        np.testing.assert_allclose(pair[0].inverse(r), pair[1].inverse(r), atol=1e-4)


def test_leading_columns_hold_most_of_the_matrix(monkeypatch):
    rng = np.random.default_rng(0)
    low = rng.standard_normal((80, 3)) @ rng.standard_normal((3, 50))
    S = sparse.csr_array(low + 0.01 * make_sparse(80, 50)[1])
    monkeypatch.setattr(systems, "RANK", 4)
    leading = systems.leading_columns(S)
    assert leading.shape == (80, 4)
    values = np.linalg.svd(S.toarray(), compute_uv=False)
    np.testing.assert_allclose(np.linalg.svd(leading, compute_uv=False)[:3], values[:3], rtol=1e-3)
    np.testing.assert_array_equal(leading, systems.leading_columns(S))  # no chance in it


# -------------------------------------------------------------------------- nothing is dense


def test_more_features_than_samples_without_a_dense_copy(nothing_dense):
    rng = np.random.default_rng(0)
    S = sparse.random_array((60, 2000), density=0.01, random_state=rng, format="csr")
    Y = np.where(S @ rng.standard_normal(2000) > 0, 1.0, -1.0)
    with pytest.raises(AssertionError, match="toarray of a sparse array of shape"):
        S.toarray()
    for bias, normalize in ((False, False), (True, True)):
        settings = {"bias": bias, "normalize": normalize}
        patterns = sample_patterns(S.tocsc(), 10, random_state=0, **settings)
        gated = CGReLU(S, Y, patterns, 1.0, loss="logistic", output_bias=True, **settings)
        relu = CReLU(S, Y, patterns, 1.0, **settings)
        for problem, other in ((gated, "rfista"), (relu, "al")):
            path = cvxnn.path(problem, n_lams=3, eps=0.1, tol=1e-6)
            assert path.relative_gaps.max() <= 1e-6
            solution = solve(path[-1].problem, other, tol=1e-2)
            low = path[-1].certificate.lower_bound
            assert low <= solution.certificate.objective <= low * 1.02
            network = path[-1].network()
            assert network.predict(S).shape == (60,)
            cvxnn.prune(network, S)


def test_memory_without_a_dense_copy():
    """The data would be 400 MB as an array; weights are 3 MB."""
    n, d, p = 5000, 10_000, 40
    rng = np.random.default_rng(0)
    S = sparse.random_array((n, d), density=0.001, random_state=rng, format="csr")
    Y = np.where(S @ rng.standard_normal(d) > 0, 1.0, -1.0)
    tracemalloc.start()
    try:
        patterns = sample_patterns(S, p, random_state=0)
        problem = CGReLU(S, Y, patterns, 1.0, loss="logistic")
        problem = problem.with_lam(0.5 * lambda_max(problem))
        solution = solve(problem, tol=1e-3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert solution.converged
    assert peak < 1e8


# ----------------------------------------------------------------------- what cannot be done


def test_what_takes_no_sparse_data_says_so():
    S, X, Y = make_sparse(20, 4)
    patterns = sample_patterns(S, 4, random_state=0)
    gated = solve(CGReLU(S, Y, patterns, 0.05))
    with pytest.raises(TypeError, match="decompositions do not handle"):
        cvxnn.decompose(gated)
    with pytest.raises(ValueError, match=r"'decomposition' does not handle .*sparse data.*al, "):
        solve(CReLU(S, Y, patterns, 0.05), "decomposition")
    with pytest.raises(TypeError, match="sparse matrix; this needs a dense array"):
        to_numpy(gated.problem.operator.rows())
    for call in (
        lambda: CGReLU(X, sparse.csr_array(Y[:, None]), patterns, 0.05),
        lambda: cvxnn.Patterns.from_gates(X, sparse.csr_array(patterns.gates)),
        lambda: cvxnn.GatedReLUNetwork.from_convex(patterns, sparse.csr_array(X)),
    ):
        with pytest.raises(TypeError, match="is a sparse matrix; a dense array is expected"):
            call()


def test_active_rows_take_no_more_room_than_there_are_rows():
    ours, dense, _ = both_cones(30, 700, density=0.02)
    assert ours.width == dense.width == 31
