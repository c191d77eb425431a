"""Proofs over all patterns: true ones are confirmed by code of its own, others are refused, and
nothing that is false is ever proven."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from click.testing import CliRunner

import cvxnn
from cvxnn import Bound, ModelFileError
from cvxnn.bounds.branching import Branching
from cvxnn.bounds.choice import bound_over_all_patterns
from cvxnn.bounds.enumeration import Enumeration
from cvxnn.bounds.evidence import Evidence
from cvxnn.bounds.one_input import OneInput
from cvxnn.bounds.trees import LEAF, ConeTree
from cvxnn.cli import main
from cvxnn.tables.model import Model
from cvxnn.tables.reading import read_table
from cvxnn.verification import cones, leaves
from cvxnn.verification.all_patterns import verify_bound
from cvxnn.verification.planes import check_plane
from cvxnn.verification.prices import CONFIRMED, NOT_FINISHED, REFUSED, check_prices
from cvxnn.verification.programs import Program
from cvxnn.verification.relaxations import check_relaxation
from cvxnn.verification.trees import RefusedError, Tree, middles
from extras import needs

SCALES = [1.0, 1e-150, 1e150]


def price_at(X, t, U):
    """t'(X u)_+ / ||u|| at the rows of U, by the dots of whole doubles."""
    U = U / np.linalg.norm(U, axis=1, keepdims=True)
    return np.maximum(U @ X.T, 0) @ t


def attained(X, t, rng, k=4000):
    """A price that is attained, nearly the highest: sampled, and then climbed."""
    U = np.vstack([rng.standard_normal((k, X.shape[1])), X, -X])
    U = U[np.any(U != 0, axis=1)]
    best = U[np.argsort(-price_at(X, t, U))[:20]]
    for step in 0.3 ** np.arange(1, 12):
        around = (best[:, None] / np.linalg.norm(best, axis=1)[:, None, None]) + step * (
            rng.standard_normal((len(best), 30, X.shape[1]))
        )
        best = np.vstack([best, around.reshape(-1, X.shape[1])])
        best = best[np.argsort(-price_at(X, t, best))[:20]]
    return float(price_at(X, t, best).max())


def proof_of(X, theta, *, over=1.02, tol=1e-3, seed=0):
    rng = np.random.default_rng(seed)
    lam = over * max(attained(X, theta, rng), attained(X, -theta, rng))
    found = Branching().bound(X, theta[:, None], lam, tol=tol, max_seconds=60)
    assert found.above[0] < math.inf
    return found


def checked(X, theta, found, factor=1.0, **other):
    evidence = other.pop("evidence", found.evidence)
    return check_prices(X, theta[:, None], found.above * factor, evidence, **other)


# -- trees


def cones_of(tree):
    """The leaves of a tree by the rules of bounds/trees.py, with fractions."""
    r, nodes = tree.rank, iter(tree.nodes.tolist())
    edges = [(a, b) for a in range(r) for b in range(a + 1, r)]

    def below(cone):
        node = next(nodes)
        if node == LEAF:
            yield cone
            return
        a, b = edges[node]
        A, B = (sum(x * x for x in cone[j]) for j in (a, b))
        k = next(
            k for k in range(-200, 200) if Fraction(4) ** k * A < 2 * B <= 4 * Fraction(4) ** k * A
        )
        middle = [
            2 ** max(k, 0) * x + 2 ** max(-k, 0) * y for x, y in zip(cone[a], cone[b], strict=True)
        ]
        while all(x % 2 == 0 for x in middle):
            middle = [x // 2 for x in middle]
        for end in (a, b):
            yield from below([middle if j == end else cone[j] for j in range(r)])

    for number in range(2**r):
        signs = [-1 if number >> j & 1 else 1 for j in range(r)]
        yield from below([[signs[j] * (i == j) for i in range(r)] for j in range(r)])


def random_tree(rng, rank, n_splits):
    """A tree that is split at random places and edges."""
    roots = [None] * 2**rank

    def grown(splits):
        if splits == 0:
            return [LEAF]
        first = int(rng.integers(0, splits))
        edge = int(rng.integers(0, rank * (rank - 1) // 2))
        return [edge, *grown(first), *grown(splits - 1 - first)]

    shares = rng.multinomial(n_splits, np.full(len(roots), 1 / len(roots)))
    nodes = [node for share in shares for node in grown(int(share))]
    return ConeTree(rank, np.array(nodes, dtype=np.uint8))


@pytest.mark.parametrize("rank", [2, 3, 4, 5])
def test_trees_are_read_as_they_are_described(rank):
    rng = np.random.default_rng(rank)
    for n_splits in (0, 1, 5, 60):
        written = random_tree(rng, rank, n_splits)
        tree = Tree.of(written.to_bytes())
        assert tree.n_leaves == written.n_leaves
        X = rng.standard_normal((3, rank))
        given = cones._Given.of(X, np.ones(3), 1e-3, None)
        found = {}
        for piece in cones._pieces(tree, given):
            table, corners, nodes = piece._walk(tree)
            found.update(zip(nodes.tolist(), table[corners].tolist(), strict=True))
        assert [found[node] for node in sorted(found)] == list(cones_of(written))


def test_middles_are_exact_where_squares_are_not():
    rng = np.random.default_rng(0)
    for bits in (3, 20, 26, 40, 49):
        a = rng.integers(-(2**bits), 2**bits, (60, 4))
        b = a + rng.integers(-3, 4, a.shape)
        b[::3] = rng.integers(-5, 6, b[::3].shape) + 6
        for x, y, found in zip(a.tolist(), b.tolist(), middles(a, b).tolist(), strict=True):
            A, B = sum(v * v for v in x), sum(v * v for v in y)
            k = next(
                k
                for k in range(-99, 99)
                if Fraction(4) ** k * A < 2 * B <= 4 * Fraction(4) ** k * A
            )
            total = [2 ** max(k, 0) * v + 2 ** max(-k, 0) * w for v, w in zip(x, y, strict=True)]
            while all(v % 2 == 0 for v in total):
                total = [v // 2 for v in total]
            assert found == total
    with pytest.raises(RefusedError, match="too large"):
        middles(np.array([[2**53, 1]]), np.array([[2**53 - 2, 3]]))


def test_bytes_that_are_no_tree_are_refused():
    good = random_tree(np.random.default_rng(0), 3, 9).to_bytes()
    Tree.of(good)
    for bad in (
        b"",
        b"CNT2" + good[4:],
        good[:4] + bytes([9]) + good[5:],
        good[:-1],
        good + b"\0",
        good[:5] + (10**15).to_bytes(8, "little") + good[13:],
    ):
        with pytest.raises(RefusedError):
            Tree.of(bad)
    # without an orthant, and with one too many
    for count in (7, 9):
        nodes = np.zeros(count, dtype=np.uint8)
        sizes = count.to_bytes(8, "little") + (0).to_bytes(8, "little")
        with pytest.raises(RefusedError, match="cover"):
            Tree.of(b"CNT1" + bytes([3]) + sizes + np.packbits(nodes).tobytes())


# -- leaves: nothing false is proven


def test_no_false_leaf_is_proven():
    rng = np.random.default_rng(0)
    proven = 0
    for trial in range(60):
        r, n = int(rng.integers(1, 6)), int(rng.integers(1, 40))
        X = rng.standard_normal((n, r)) * (
            10.0 ** rng.integers(-6, 7, (n, 1)) if trial % 3 else 1.0
        )
        if trial % 4 == 0:
            X = np.round(X)
        t = rng.standard_normal(n)
        L = 50
        V = rng.integers(-9, 10, (L, r, r)).astype(float)
        V[::2] = V[::2, :1] * 40 + rng.integers(-3, 4, (25, r, r))  # narrow ones
        V = V[np.abs(np.linalg.det(V)) > 1e-9]
        rows = cones._whole_rows(cones._Given.of(X, t, 1.0, None), r)
        given = cones._Given.of(X, t, 1.0, None)
        b = rows.at(V.reshape(-1, r))[0].reshape(-1, r)
        inside = rng.exponential(size=(len(V), 400, r)) @ V
        size = np.linalg.norm(inside, axis=2)
        highest = np.max(
            np.maximum(inside @ given.rows.T, 0) @ np.where(given.positive, 1.0, -1.0) / size,
            axis=1,
        )
        for factor in (0.999, 1.0 - 1e-7, 1.0, 1.5):
            for k in range(0, len(V), 7):
                if highest[k] <= 1e-9:
                    continue
                done = leaves.prove(V[[k]], b[[k]], rows, float(highest[k]) * factor)
                assert factor > 1 - 1e-9 or not done[0]
                proven += int(done[0])
    assert proven > 100  # of those that are true


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("scale", SCALES)
def test_proofs_of_branch_and_bound_are_confirmed(rank, scale):
    rng = np.random.default_rng(rank)
    X = rng.standard_normal((30, rank))
    theta = rng.standard_normal(30)
    found = proof_of(X, theta)
    found = Branching().bound(
        X * scale, theta[:, None], float(found.above[0]) * scale, tol=1e-3, max_seconds=60
    )
    result = checked(X * scale, theta, found)
    assert result.status == CONFIRMED, result.reason
    assert result.n_leaves > 0
    assert f"{result.n_leaves:,} leaves" in result.how
    highest = max(attained(X, theta, rng), attained(X, -theta, rng)) * scale
    low = float(highest / found.above[0])
    assert checked(X * scale, theta, found, low * (1 - 1e-9)).status == REFUSED


def test_scales_within_a_problem():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((20, 3)) * 10.0 ** rng.integers(-140, 140, (20, 1))
    theta = rng.standard_normal(20) / np.abs(X).max(axis=1)
    found = proof_of(X / np.abs(X).max(axis=1, keepdims=True), theta * np.abs(X).max(axis=1))
    again = Branching().bound(X, theta[:, None], float(found.above[0]), tol=1e-3, max_seconds=60)
    assert checked(X, theta, again).status == CONFIRMED
    assert checked(X, theta, again, 0.9).status == REFUSED


@pytest.mark.parametrize("noise", [0.0, 1e-13])
def test_coordinates_are_free_to_be_wrong(noise):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((25, 3)) @ rng.standard_normal((3, 9))
    X += noise * rng.standard_normal(X.shape)
    theta = rng.standard_normal(25)
    found = proof_of(X, theta)
    Q = found.evidence.coordinates
    assert Q.shape == (9, 3)
    assert checked(X, theta, found).status == CONFIRMED
    for bad in (Q * 0.5, Q * 2, Q + 0.1, Q * 0, Q * math.nan, Q[:, :2], Q[:-1], None):
        evidence = found.evidence._replace(coordinates=bad)
        assert checked(X, theta, found, evidence=evidence).status == REFUSED
    highest = max(attained(X, theta, rng), attained(X, -theta, rng))
    false = float(highest / found.above[0]) * (1 - 1e-6)
    for other in (Q * (1 - 1e-6), Q + 1e-7, Q[:, ::-1], -Q):
        evidence = found.evidence._replace(coordinates=np.ascontiguousarray(other))
        assert checked(X, theta, found, false, evidence=evidence).status == REFUSED


def test_altered_trees_prove_no_more_than_the_truth():
    """Some altered trees still cover all directions, and their leaves can be proven: then the claim
    is true. With a claim that is false, none is confirmed."""
    rng = np.random.default_rng(0)
    X, theta = rng.standard_normal((40, 3)), rng.standard_normal(40)
    found = proof_of(X, theta, over=1.005, tol=1e-4)
    highest = max(attained(X, theta, rng), attained(X, -theta, rng))
    assert checked(X, theta, found).status == CONFIRMED
    refused = 0
    for trial in range(30):
        tree = bytearray(found.evidence.trees[0][trial % 2])
        at = int(rng.integers(0, len(tree)))
        tree[at] ^= 1 << int(rng.integers(0, 8))
        pair = list(found.evidence.trees[0])
        pair[trial % 2] = bytes(tree)
        evidence = found.evidence._replace(trees=(tuple(pair),))
        result = checked(X, theta, found, evidence=evidence)
        refused += result.status == REFUSED
        false = float(highest / found.above[0]) * (1 - 1e-6)
        assert checked(X, theta, found, false, evidence=evidence).status == REFUSED
    assert refused > 8


def test_the_time_limit_and_progress():
    rng = np.random.default_rng(0)
    X, theta = rng.standard_normal((40, 4)), rng.standard_normal(40)
    found = proof_of(X, theta)
    result = checked(X, theta, found, max_seconds=0.0)
    assert result.status == NOT_FINISHED
    assert "not finished" in result.reason
    seen = []
    checked(X, theta, found, report=lambda at: seen.append((at.leaves, at.n_leaves)))
    assert seen[-1][0] == seen[-1][1] > 0

    def interrupt(at):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checked(X, theta, found, report=interrupt)


def test_without_evidence_a_proof_is_found_or_not():
    rng = np.random.default_rng(0)
    X, theta = rng.standard_normal((7, 3)), rng.standard_normal(7)
    found = Enumeration().bound(X, theta[:, None], 1.0)
    assert checked(X, theta, found).status == CONFIRMED
    assert checked(X, theta, found, 1 - 1e-9).status == REFUSED
    wide = rng.standard_normal((7, 12))
    assert check_prices(wide, theta[:, None], np.array([1e9]), None).status == REFUSED
    assert check_prices(X, theta[:, None], np.array([-1.0]), None).status == REFUSED
    assert (
        check_prices(X, theta[:, None], np.array([math.nan]), None).status == CONFIRMED
    )  # of nothing


# -- planes and multipliers


def test_planes():
    rng = np.random.default_rng(0)
    for trial in range(150):
        n = int(rng.integers(1, 25))
        X, t = rng.standard_normal((n, 2)), rng.standard_normal(n)
        if trial % 3 == 0:
            X = np.round(X * 2)
        if trial % 5 == 0:
            X, t = X * 10.0 ** rng.integers(-150, 150), t * 10.0 ** rng.integers(-100, 100)
        if trial % 7 == 0:
            X[:, 1] = 1
        if trial % 11 == 0:
            X *= 10.0 ** rng.integers(-100, 100, (n, 1))
        above = float(OneInput().bound(X, t[:, None], 1.0).above[0])
        check_plane(X, t, above)
        if above > 0:
            with pytest.raises(RefusedError):
                check_plane(X, t, above * (1 - 1e-10))


def test_a_plane_in_more_columns():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 2)) @ rng.standard_normal((2, 6))
    theta = rng.standard_normal(30)
    for scale in SCALES:
        found = OneInput().bound(X * scale, theta[:, None], 1.0)
        assert checked(X * scale, theta, found).status == CONFIRMED
        assert checked(X * scale, theta, found, 1 - 1e-9).status == REFUSED


def test_multipliers_prove_no_more_than_the_truth():
    rng = np.random.default_rng(0)
    for trial in range(20):
        n, d = int(rng.integers(2, 30)), int(rng.integers(1, 6))
        scale = 10.0 ** rng.integers(-100, 100) if trial % 4 == 0 else 1.0
        X, t = rng.standard_normal((n, d)) * scale, rng.standard_normal(n)
        norms = np.linalg.norm(X, axis=1)
        gamma = rng.uniform(0, 1.2, n)
        beta = rng.uniform(-1.3, 1.3, n)
        multipliers = np.stack([norms * rng.uniform(0.1, 1.2, n), beta, gamma])
        if trial % 5 == 1:
            multipliers[:, 0] = [math.nan, -math.inf, -1.0]
        low = attained(X / scale, t, rng, 500) * scale
        check_relaxation(X, t, float(np.abs(t) @ norms) * 50, multipliers)
        if low > 0:
            with pytest.raises(RefusedError):
                check_relaxation(X, t, low * (1 - 1e-9), multipliers)


# -- from the data to the bound, and files


@cache
def trained(kind):
    rng = np.random.default_rng(0)
    if kind == "one input":
        X = rng.standard_normal((60, 1))
        return cvxnn.train(X, np.sin(3 * X[:, 0]), 0.01, max_seconds=300)
    X = rng.standard_normal((60, 2))
    y = np.abs(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(60)
    if kind == "squared":
        return cvxnn.train(X, y, 0.02, max_seconds=300)
    labels = np.eye(3)[np.digitize(y, np.quantile(y, [0.3, 0.7]))]
    return cvxnn.train(X, labels, 0.03, loss="softmax", output_bias=True, max_seconds=300)


KINDS = ("one input", "squared", "softmax")


@pytest.mark.parametrize("kind", KINDS)
def test_saved_proofs_are_confirmed(kind, tmp_path):
    result = trained(kind)
    assert result.bound.over_all_patterns
    found = cvxnn.verify(result)
    assert found.agrees, str(found)
    assert found.over_all.lower_bound >= result.bound.lower_bound
    assert found.over_all.objective <= result.bound.objective
    assert "any width" in str(found)
    path = tmp_path / "bound.cvxnn"
    result.bound.save(path)
    again = Bound.load(path)
    assert str(again) == str(result.bound)
    assert cvxnn.verify(again, result.problem).agrees
    late = cvxnn.verify(again, result.problem, max_seconds=0.0)
    assert not late.agrees
    assert "NOT finished" in str(late)


@pytest.mark.parametrize("kind", KINDS)
def test_tampered_proofs_are_refused(kind, tmp_path):
    result = trained(kind)
    bound, problem = result.bound, result.problem
    rng = np.random.default_rng(0)
    program = Program.of(problem)

    def refused(forged):
        forged.save(tmp_path / "forged.cvxnn")
        found = cvxnn.verify(Bound.load(tmp_path / "forged.cvxnn"), problem)
        assert found.finished
        return not found.agrees

    up = bound.lower_bound * (1 + 1e-9)
    assert refused(replace(bound, lower_bound=up))
    assert refused(replace(bound, lower_bound=result.objective * 2))
    assert refused(replace(bound, zero_objective=bound.zero_objective * 1.01))
    assert refused(replace(bound, scope="all patterns (SDP)"))
    met = max(attained(program.X, s * bound.dual[:, 0], rng) for s in (1, -1))
    lower = bound.price.copy()
    lower[0] = met * (1 - 1e-6)
    assert refused(replace(bound, price=lower))
    for _ in range(3):
        other = bound.dual.copy()
        row = int(rng.integers(0, len(other)))
        other[row] *= 1.3
        other[row - 1] *= 0.7
        # a dual point that is better, were its price that of the old one, proves something else
        assert refused(replace(bound, dual=other, lower_bound=up))
    assert not cvxnn.verify(bound, problem.with_lam(problem.lam * 0.9)).agrees
    if kind != "one input":
        empty = Evidence(tuple((b"", b"") for _ in bound.price), None)
        assert refused(replace(bound, evidence=empty))
        short = tuple((pair[0][:-1], pair[1]) for pair in bound.evidence.trees)
        assert refused(replace(bound, evidence=bound.evidence._replace(trees=short)))
        assert refused(replace(bound, scope="all patterns (exact)"))
        assert refused(replace(bound, scope="all patterns (proven, price <= (1 + 1e-09) lam)"))


def test_damaged_files_are_refused(tmp_path):
    bound, path = trained("squared").bound, tmp_path / "bound.cvxnn"
    bound.save(path)
    data, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(60):
        at = int(rng.integers(0, len(data)))
        damaged = bytearray(data)
        damaged[at] ^= 1 << int(rng.integers(0, 8))
        path.write_bytes(damaged)
        with pytest.raises(ModelFileError):
            Bound.load(path)
    trained("squared").network.save(path)
    with pytest.raises(ModelFileError, match="not that of a bound"):
        Bound.load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"price": np.zeros(3)},
        {"price": np.array([-1.0])},
        {"dual": np.full((60, 1), np.nan)},
        {"dual": np.zeros(60)},
        {"tree_lengths": np.array([[1, 2]])},
        {"tree_lengths": np.array([[-2, 2]])},
        {"trees": np.zeros(3)},
        {"unknown": np.zeros(3)},
    ],
)
def test_inconsistent_arrays_are_refused(change):
    bound = trained("squared").bound
    described, arrays = bound.description(), bound.arrays()
    assert str(Bound.of_parts(described, arrays)) == str(bound)
    with pytest.raises(ValueError):
        Bound.of_parts(described, {**arrays, **change})
    with pytest.raises(ValueError):
        Bound.of_parts({**described, "scope": "given patterns"}, arrays)


@needs("cvxpy")
def test_semidefinite_bounds_are_confirmed(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 9))
    y = np.abs(X[:, 0]) + 0.1 * rng.standard_normal(40)
    patterns = cvxnn.sample_patterns(X, 20, bias=True, random_state=0)
    problem = cvxnn.CReLU(X, y, patterns, 0.2, bias=True)
    solution = cvxnn.solve(problem, tol=1e-4)
    bound = bound_over_all_patterns(problem, solution.weights, solution.dual, "semidefinite")
    bound.save(tmp_path / "bound.cvxnn")
    again = Bound.load(tmp_path / "bound.cvxnn")
    assert cvxnn.verify(again, problem).agrees
    lower = replace(again, price=again.price * (1 - 1e-6))
    assert not cvxnn.verify(lower, problem).agrees
    scaled = again.evidence.multipliers * rng.uniform(0.5, 1.5, again.evidence.multipliers.shape)
    forged = replace(again, evidence=again.evidence._replace(multipliers=scaled))
    assert not cvxnn.verify(forged, problem).agrees


def test_what_verify_refuses():
    result = trained("squared")
    with pytest.raises(TypeError, match="its problem"):
        cvxnn.verify(result.bound)
    with pytest.raises(TypeError, match="not a bound"):
        cvxnn.verify(result.solution, result.problem)
    with pytest.raises(
        TypeError, match="Solution, such as a point of a path, a Training or a Bound"
    ):
        cvxnn.verify("bound")
    given = Bound.of_certificate(result.certificate)
    with pytest.raises(ValueError, match="given patterns"):
        cvxnn.verify(given, result.problem)
    patterns = cvxnn.sample_patterns(np.ones((4, 1)), 2, random_state=0)
    gated = cvxnn.CGReLU(np.ones((4, 1)), np.ones(4), patterns, lam=1.0)
    with pytest.raises(ValueError, match="C-ReLU"):
        cvxnn.verify(result.bound, gated)
    with pytest.raises(ValueError, match="targets"):
        verify_bound(replace(result.bound, dual=np.zeros((3, 1))), Program.of(result.problem))


def test_models_keep_their_proofs(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = np.abs(X[:, 0]) + 0.1 * rng.standard_normal(60)
    data, file = tmp_path / "data.csv", tmp_path / "model.cvxnn"
    lines = [f"{a:.6f},{b:.6f},{c:.6f}" for (a, b), c in zip(X, y, strict=True)]
    data.write_text("\n".join(["a,b,y", *lines]))
    table = read_table(data)
    model = Model.fit(table, "y", alpha=0.05, patterns="generate", prove=True)
    assert model.proof.over_all_patterns
    model.save(file)
    again = Model.load(file)
    assert again.proof.description() == model.proof.description()
    found = again.verify(table)
    assert found.agrees, str(found)
    assert found.over_all.lower_bound >= model.proof.lower_bound
    assert again.prune(table).verify(table).agrees
    runner = CliRunner()
    run = runner.invoke(main, ["certify", str(file), str(data)])
    assert run.exit_code == 0
    assert "confirmed: ReLU networks of any width" in run.output
    assert "leaves" in run.output
    assert "bytes of evidence" in run.output
    run = runner.invoke(main, ["certify", str(file), str(data), "--max-seconds", "0.001"])
    assert run.exit_code == 4
    assert "NOT FINISHED" in run.output
    for forged in (
        replace(model.proof, lower_bound=model.proof.lower_bound * (1 + 1e-9)),
        replace(model.proof, price=model.proof.price * 0.9),
        replace(model.proof, dual=model.proof.dual * 1.01),
        replace(model.proof, evidence=Evidence(((b"", b""),))),
    ):
        replace(model, proof=forged).save(file)
        run = runner.invoke(main, ["certify", str(file), str(data)])
        assert run.exit_code == 4
        assert "NOT CONFIRMED: ReLU networks of any width" in run.output


def test_an_objective_below_the_lower_bound_is_refused():
    """It needs no network to see that: a bound of another problem, or a false objective."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    result = cvxnn.train(X, np.abs(X[:, 0]), lam=0.05)
    assert cvxnn.verify(result.bound, result.problem).agrees
    lower = replace(result.bound, objective=result.bound.lower_bound / 2)
    for bound, problem in (
        (lower, result.problem),
        (result.bound, result.problem.with_lam(0.1)),
    ):
        found = cvxnn.verify(bound, problem)
        assert not found.agrees
        assert any("below the lower bound" in text for text in found.differences)


def test_bounds_of_estimators_hold_no_proof_to_save(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 1))
    model = cvxnn.ReLURegressor(0.05, patterns="generate", prove=True).fit(X, np.abs(X[:, 0]))
    assert model.bound_.over_all_patterns
    with pytest.raises(ValueError, match="no proof to save"):
        model.bound_.save(tmp_path / "bound.cvxnn")


def test_a_method_that_cannot_prove_is_refused_before_training():
    rng, told = np.random.default_rng(0), []
    X = rng.standard_normal((40, 12))
    with pytest.raises(ValueError, match="'branching' cannot prove anything about 40 rows of 13"):
        cvxnn.train(X, X[:, 0], lam=0.05, prove="branching", callback=told.append)
    assert not told
