"""Branch and bound over cones, against enumeration of all patterns and a checker of its own."""

import ctypes
import itertools
import math
import time
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import nnls

from cvxnn import threads
from cvxnn.bounds import growing
from cvxnn.bounds.branching import Branching, Search
from cvxnn.bounds.coordinates import Coordinates
from cvxnn.bounds.evidence import Evidence
from cvxnn.bounds.trees import LEAF, ConeTree
from cvxnn.kernels import native
from cvxnn.verification.prices import check_prices

COMPILED = native.library() is not None


@pytest.fixture(params=["compiled", "numpy"])
def twin(request, monkeypatch):
    """Both twins; what is compiled only where there was a compiler."""
    if request.param == "numpy":
        monkeypatch.setattr(native, "library", lambda: None)
    elif not COMPILED:
        pytest.skip("the compiled kernels were not built")
    return request.param


def price_of(X, theta):
    """The price by all 2^n patterns: the best direction of a pattern D is the projection of
    X'D theta onto the cone of the directions that have it."""
    best = 0.0
    for bits in itertools.product((0, 1), repeat=len(X)):
        D = np.array(bits)
        for sign in (1, -1):
            gradient = sign * X.T @ (D * theta)
            best = max(best, nnls((X * (2 * D - 1)[:, None]).T, -gradient)[1])
    return best


def draw(rng, kind):
    n, d = rng.integers(1, 7), rng.integers(1, 5)
    X, theta = rng.standard_normal((n, d)), rng.standard_normal(n)
    if kind == "whole numbers, with ties and zero rows":
        X, theta = rng.integers(-1, 2, (n, d)) * 1.0, rng.integers(-2, 3, n) * 1.0
    elif kind == "a column of ones":
        X[:, -1] = 1.0
    elif kind == "rows that are equal or opposite":
        X = X[rng.integers(0, n, n)] * rng.choice([1.0, -1.0, 2.0], (n, 1))
    elif kind == "two dimensions":
        X = rng.standard_normal((n, 2)) @ rng.standard_normal((2, d + 1))
    elif kind == "rows and columns of all sizes":
        X *= 10.0 ** rng.integers(-3, 4, (n, 1)) * 10.0 ** rng.integers(-6, 1, d)
    return X, theta


KINDS = [
    "plain",
    "whole numbers, with ties and zero rows",
    "a column of ones",
    "rows that are equal or opposite",
    "two dimensions",
    "rows and columns of all sizes",
]


def bound(X, theta, lam, tol=1e-6, max_seconds=20.0, **settings):
    return Branching(**settings).bound(
        X, np.reshape(theta, (len(X), -1)), lam, tol=tol, max_seconds=max_seconds
    )


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_are_above_the_price_and_close_to_it(twin, kind):
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(6 if twin == "compiled" else 1):
        X, theta = draw(rng, kind)
        price = price_of(X, theta)
        if price == 0:
            assert bound(X, theta, 1.0).above[0] <= 1e-12
            continue
        within = bound(X, theta, price * (1 + 1e-7), tol=1e-6)
        assert price * (1 - 1e-13) <= within.above[0] <= price * (1 + 1.2e-6)
        # a threshold below the price is never proven; a direction says why
        beyond = bound(X, theta, price * (1 - 1e-4), tol=1e-6)
        assert beyond.above[0] >= price * (1 - 1e-13)
        best = abs(beyond.neurons.prices[0])
        assert price * (1 - 0.99e-4) <= best <= price * (1 + 1e-12)
        u = beyond.neurons.directions[0]
        assert best == pytest.approx(abs(theta @ np.maximum(X @ u, 0)), rel=1e-12)


@pytest.mark.parametrize("size", [1e-150, 1e150])
@pytest.mark.parametrize("weight", [1e-150, 1e-3, 1e150])
def test_scales_do_not_matter(size, weight):
    rng = np.random.default_rng(5)
    X, theta = rng.standard_normal((6, 3)), rng.standard_normal(6)
    price = price_of(X, theta)
    lam = price * size * weight  # up to 1e300
    with np.errstate(over="ignore"):
        result = bound(X * size, theta * weight, lam * (1 + 1e-7), tol=1e-6)
    # below 1e-300 an absolute error of 2^-1021 counts
    assert lam * (1 - 1e-13) <= result.above[0] <= lam * (1 + 1.2e-6) + 2.0**-1020


def test_rows_and_weights_of_very_different_sizes():
    X = np.array([[1e200, 1e-200], [1e-300, 1.0], [1.0, 1e-320]])
    theta = np.array([1e-200, -1.0, 1e-310])
    result = bound(X, theta, 1.0, tol=1e-3)
    assert 1.0 <= result.above[0] <= 1.001  # of the second row, with the sign turned


def exact_excess(X, theta, u, limit):
    """|theta'(X u)_+|^2 - limit^2 ||u||^2 in rational numbers."""
    u = [Fraction(float(x)) for x in u]
    value = Fraction(0)
    for row, weight in zip(X.tolist(), theta.tolist(), strict=True):
        product = sum(Fraction(a) * b for a, b in zip(row, u, strict=True))
        value += Fraction(weight) * max(product, Fraction(0))
    return value * value - Fraction(limit) ** 2 * sum(x * x for x in u)


def attained(X, theta):
    """The price up to rounding, and a direction that attains it: what bounds find, improved by
    ascent, until nothing better is found."""
    lam, u = 1e-9, None
    while True:
        found = bound(X, theta, lam, tol=1e-9).neurons
        if abs(found.prices[0]) <= lam * (1 + 1e-9):
            return lam, u
        new = found.directions[0]
        for _ in range(50):
            ascent = np.sign(found.prices[0]) * X.T @ ((X @ new > 0) * theta)
            ascent /= np.linalg.norm(ascent)
            if abs(theta @ np.maximum(X @ ascent, 0)) <= abs(theta @ np.maximum(X @ new, 0)):
                break
            new = ascent
        lam, u = abs(theta @ np.maximum(X @ new, 0)), new


@pytest.mark.parametrize("seed", range(4))
def test_rounding_never_makes_a_bound_too_low(seed):
    """At thresholds as close to the price as doubles get, in exact arithmetic."""
    rng = np.random.default_rng(seed)
    X, theta = rng.standard_normal((40, 3)), rng.standard_normal(40)
    lam, u = attained(X, theta)
    for excess in (-1e-15, 1e-14, 1e-12, 1e-10, 2e-9, 1e-8):
        result = bound(X, theta, lam * (1 + excess), tol=0)
        assert exact_excess(X, theta, u, float(result.above[0])) <= 0
    assert result.above[0] <= lam * (1 + 1.01e-8)


def test_nothing_to_bound():
    X = np.ones((4, 3))
    assert bound(X, np.zeros(4), 1.0).above[0] == 0
    assert bound(0 * X, np.ones(4), 1.0).above[0] <= 1e-300
    assert bound(X[:, :1], np.array([1.0, 1, -1, -1]), 1.0).above[0] <= 1e-12
    assert bound(X, np.array([1.0, np.nan, 1, 1]), 1.0).above[0] == math.inf
    assert bound(X * np.inf, np.ones(4), 1.0).above[0] == math.inf


def test_several_classes_are_bounded_one_by_one():
    rng = np.random.default_rng(0)
    X, Theta = rng.standard_normal((6, 3)), rng.standard_normal((6, 3)) * [1.0, 0.3, 0.0]
    prices = np.array([price_of(X, theta) for theta in Theta.T])
    result = bound(X, Theta, prices[0], tol=1e-6)
    assert np.all(result.above >= prices * (1 - 1e-13))
    assert np.all(result.above <= prices[0] * (1 + 1.2e-6))
    assert result.above[2] == 0
    assert "all patterns (proven" in result.scope
    several = bound(X, Theta, prices[1] * 0.9, tol=1e-3)
    assert 0 in several.neurons.classes


# -- the tree, checked by code that only knows what trees.py says about it


def middle(a, b):
    A, B = sum(x * x for x in a), sum(x * x for x in b)
    k = next(k for k in range(-200, 200) if _closest(Fraction(4) ** k * A, B))
    new = [2 ** max(k, 0) * x + 2 ** max(-k, 0) * y for x, y in zip(a, b, strict=True)]
    while all(x % 2 == 0 for x in new):
        new = [x // 2 for x in new]
    return new


def _closest(A, B):
    return A < 2 * B and B <= 2 * A


def leaves_of(tree):
    """The vertices of all leaves."""
    r, nodes = tree.rank, iter(tree.nodes.tolist())
    edges = list(itertools.combinations(range(r), 2))

    def below(cone):
        edge = next(nodes)
        if edge == LEAF:
            yield cone
            return
        a, b = edges[edge]
        new = middle(cone[a], cone[b])
        for end in (a, b):
            yield from below([new if j == end else v for j, v in enumerate(cone)])

    for orthant in range(2**r):
        yield from below(
            [[(-1 if orthant >> j & 1 else 1) * (i == j) for i in range(r)] for j in range(r)]
        )
    assert next(nodes, None) is None


def leaf_bound(cone, Z, t):
    """A bound on the cone: multipliers by bisection of sets of rows, and a w for them."""
    V = np.array([[float(x) for x in v] for v in cone])
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    products = Z @ V.T
    up = t[t > 0] @ np.maximum(products[t > 0], 0)
    w = V.sum(axis=0)
    sets, best = [], math.inf
    rays = np.linalg.inv(V)  # columns d_j with d_j v_k = 1 for j = k and 0 otherwise
    for _ in range(15):
        sets.append((t * (t < 0) * (Z @ w > 0)) @ products)
        points = rays @ (np.array(sets) + up).T
        size = np.linalg.norm(points[:, 0]) + 1e-300
        scaled = rays * size / np.linalg.norm(rays, axis=0)
        A = np.vstack([np.hstack([points, scaled]), [size] * len(sets) + [0.0] * len(V)])
        x = nnls(A, np.append(np.zeros(len(V)), size))[0]
        w = A[:-1] @ x / x[: len(sets)].sum()
        best = min(best, np.linalg.norm(w))
    return best


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_a_checker_of_its_own_confirms_the_leaves(d):
    rng = np.random.default_rng(d)
    X, theta = rng.standard_normal((12, d)), rng.standard_normal(12)
    price = max(bound(X, theta, 1e-3, tol=1e-3).neurons.prices, key=abs, default=1.0)
    result = bound(X, theta, abs(price), tol=0.05)
    proof = result.evidence
    assert proof.coordinates is None
    for sign, tree in zip((1, -1), proof.trees[0], strict=True):
        tree = ConeTree.from_bytes(tree)
        cones = list(leaves_of(tree))
        assert len(cones) == tree.n_leaves
        for cone in cones[:: max(1, len(cones) // 30)]:
            assert leaf_bound(cone, X, sign * theta) <= result.above[0]


def test_the_cones_cover_all_directions():
    rng = np.random.default_rng(7)
    X, theta = rng.standard_normal((30, 3)), rng.standard_normal(30)
    lam = abs(bound(X, theta, 1e-3, tol=1e-3).neurons.prices[0])
    tree = ConeTree.from_bytes(bound(X, theta, lam, tol=0.01).evidence.trees[0][0])
    inverses = np.linalg.inv(np.array(list(leaves_of(tree)), dtype=float))
    for u in rng.standard_normal((200, 3)):
        alpha = u @ inverses
        assert np.sum(np.all(alpha >= 0, axis=1)) == 1


def test_a_tree_survives_bytes():
    tree = ConeTree(2, np.array([0, LEAF, 0, LEAF, LEAF, LEAF, LEAF, LEAF], dtype=np.uint8))
    again = ConeTree.from_bytes(tree.to_bytes())
    assert again.rank == 2
    assert again.n_leaves == 6
    assert tree.n_bytes == len(tree.to_bytes()) == 4 + 17 + 1
    np.testing.assert_array_equal(again.nodes, tree.nodes)
    rng = np.random.default_rng(0)
    X, theta = rng.standard_normal((30, 4)), rng.standard_normal(30)
    data = bound(X, theta, 3.0, tol=0.1).evidence.trees[0][0]
    tree = ConeTree.from_bytes(data)
    assert tree.to_bytes() == data
    assert tree.n_bytes == len(data)


def test_bad_bytes_are_refused():
    nodes = np.array([4, LEAF, LEAF] + [LEAF] * 7, dtype=np.uint8)
    with pytest.raises(ValueError, match="edge that does not exist"):
        ConeTree(3, nodes)
    nodes[0] = 2
    good = ConeTree(3, nodes).to_bytes()
    for data, message in (
        (b"", "not a tree"),
        (b"XXXX" + good[4:], "not a tree"),
        (good[:4] + b"\0" + good[5:], "dimensions"),
        (good[:4] + b"\2" + good[5:], "cut off"),
        (good[:-1], "cut off"),
        (good + b"\0", "cut off"),
        (good[:21] + bytes([good[21] ^ 64]) + good[22:], "number of splits"),
        (good[:22] + bytes([good[22] ^ 1]) + good[23:], "zeros"),
        (good[:23] + bytes([0b11000000]), "edge that does not exist"),
        (good[:5] + (2**60).to_bytes(8, "little") + good[13:], "cut off"),
    ):
        with pytest.raises(ValueError, match=message):
            ConeTree.from_bytes(data)
    for nodes in ([], [LEAF] * 7, [LEAF] * 9, [0] + [LEAF] * 8):
        with pytest.raises(ValueError, match="each orthant"):
            ConeTree(3, np.array(nodes, dtype=np.uint8))


def test_the_middle_of_an_edge_is_that_of_the_format():
    rng = np.random.default_rng(0)
    for _ in range(200):
        a, b = (rng.integers(0, 2 ** rng.integers(1, 50), 3) for _ in range(2))
        a[0], b[1] = a[0] + 1, b[1] + 1
        assert growing.middle(a, b).tolist() == middle(a.tolist(), b.tolist())


# -- limits


def problem_of(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng.standard_normal(n) / n


def test_results_do_not_depend_on_threads(monkeypatch):
    X, theta = problem_of(60, 4)
    lam = abs(bound(X, theta, 1e-6, tol=1e-3).neurons.prices[0])
    results = []
    for n_threads in (1, 2, 3):
        monkeypatch.setattr(threads, "n_threads", lambda n=n_threads: n)
        result = bound(X, theta, lam * 1.05, tol=0.01)
        results.append((result.above[0], result.evidence.trees[0], result.neurons.prices.tolist()))
    assert results[0] == results[1] == results[2]


def test_the_time_limit_holds_and_bounds_hold_at_any_time(twin):
    X, theta = problem_of(400, 6)
    start = time.perf_counter()
    result = bound(X, theta, 0.05, tol=1e-6, max_seconds=0.5)
    assert time.perf_counter() - start < 5
    prices = [abs(theta @ np.maximum(X @ u, 0)) for u in result.neurons.directions]
    assert result.above[0] >= max(prices, default=0.0)
    nothing = bound(X, theta, 0.05, tol=1e-6, max_seconds=0.0)
    assert nothing.above[0] == math.inf
    assert nothing.evidence.trees == ((None, None),)


@pytest.mark.skipif(not COMPILED, reason="the compiled kernels were not built")
def test_memory_is_bounded():
    X, theta = problem_of(300, 6)
    coordinates = Coordinates.of(X, 7)
    search = Search(coordinates, theta[:, None], 0.2, 1e-6, 2**20)
    search.run()
    assert sum(cone.n_bytes for side in search.sides for cone in side.cones) <= 2**20
    u = np.random.default_rng(0).standard_normal((1000, 6))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    assert search.above()[0] >= np.max(np.abs(theta @ np.maximum(X @ u.T, 0)))


@pytest.mark.skipif(not COMPILED, reason="the compiled kernels were not built")
def test_the_kernel_stops_when_it_is_asked_to():
    X, theta = problem_of(200, 5)
    search = Search(Coordinates.of(X, 7), theta[:, None], 0.01, 1e-6, 2**28)
    side = search.sides[0]
    side.extend(side.cones[0], side.limits(0.01, 0.01, 1e9), 2**24, ctypes.c_int(1))
    assert side.cones[0].status == growing.PAUSED
    assert side.cones[0].value == math.inf


# -- coordinates


def test_rank_is_found_and_more_is_refused():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 3)) @ rng.standard_normal((3, 12))
    coordinates = Coordinates.of(X, 4)
    assert coordinates.rank == 3
    assert coordinates.Q.shape == (12, 3)
    assert Coordinates.of(X, 2) is None
    assert Coordinates.of(np.hstack([X, rng.standard_normal((50, 12))]), 7) is None
    assert Branching(max_rank=3).handles(X, 1)
    assert not Branching(max_rank=2).handles(X, 1)
    with pytest.raises(ValueError, match="max_rank"):
        Branching(max_rank=9)


@pytest.mark.parametrize("noise", [0.0, 1e-13])
def test_what_coordinates_lose_is_in_the_bound(noise):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((7, 2)) @ rng.standard_normal((2, 5))
    X += noise * rng.standard_normal(X.shape)
    theta = rng.standard_normal(7)
    price = price_of(X, theta)
    result = bound(X, theta, price * (1 + 1e-7), tol=1e-6)
    assert result.evidence.coordinates.shape == (5, 2)
    assert price * (1 - 1e-13) <= result.above[0] <= price * (1 + 1.2e-6)
    assert result.neurons.directions.shape[1] == 5


def test_equal_rows_become_one():
    rng = np.random.default_rng(2)
    X, theta = rng.standard_normal((5, 3)), rng.standard_normal(20)
    many = np.vstack([X, X, 4 * X, X / 8])
    coordinates = Coordinates.of(many, 7)
    assert len(coordinates.rows) == 5
    weighted = coordinates.weighted(theta)
    total = theta[:5] + theta[5:10] + 4 * theta[10:15] + theta[15:] / 8
    for u in rng.standard_normal((20, 3)):
        exact = total @ np.maximum(X @ u, 0)
        scaled = weighted.weights @ np.maximum(weighted.rows @ u, 0) * 2.0**weighted.exponent
        assert scaled == pytest.approx(exact, rel=1e-12, abs=1e-12)
    # rows that cancel leave nothing
    assert len(coordinates.weighted(np.repeat([1.0, -1, 0, 0], 5)).rows) == 0


def test_weights_that_cancel_up_to_rounding_have_a_price():
    X, theta = np.array([[1.0, 2.0, 3.0]] * 3), np.array([[1.0], [2.0**-60], [-1.0]])
    found = Branching().bound(X, theta, 1.0, tol=1e-3, max_seconds=5)
    assert found.above[0] >= 2.0**-60 * 14**0.5
    assert check_prices(X, theta, found.above, found.evidence).status == "confirmed"


def test_coordinates_without_columns_are_refused():
    X, theta = np.eye(3), np.ones((3, 1))
    evidence = Evidence(coordinates=np.zeros((3, 0)))
    assert check_prices(X, theta, np.array([9.0]), evidence).status == "refused"
