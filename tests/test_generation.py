"""Generated patterns: the search for prices, sliding, and training over all patterns."""

from __future__ import annotations

import math
import warnings
from itertools import combinations, product

import numpy as np
import pytest
from scipy.optimize import nnls
from scipy.sparse import csr_array

import cvxnn
from cvxnn import budget
from cvxnn.bounds import choice
from cvxnn.bounds.base import Neurons, Units
from cvxnn.bounds.enumeration import Enumeration
from cvxnn.generation import descents, method
from cvxnn.generation.cells import consolidated, gates_near, network_of, over_units, units_of
from cvxnn.generation.descents import Descents
from cvxnn.generation.kinks import polish
from cvxnn.generation.method import generate
from cvxnn.generation.pricing import DEEP, QUICK, Effort, Pricing
from cvxnn.generation.rounds import Round
from cvxnn.generation.sliding import Sliding, _Descent
from cvxnn.solvers.results import Status
from extras import needs

# -- the oracle: every pattern there is, by the directions in which cells have their edges


def all_gates(A: np.ndarray) -> np.ndarray:
    """A point of every cell of directions, for rows A (n, d) in general position: around each
    direction that is orthogonal to d - 1 rows there are 2^(d-1) of them."""
    n, d = A.shape
    gates = []
    for some in combinations(range(n), d - 1):
        rows = A[list(some)]
        edge = np.linalg.svd(rows)[2][-1]
        others = np.delete(A, some, axis=0) @ edge
        for signs in product((-1.0, 1.0), repeat=d - 1):
            aside = np.linalg.lstsq(rows, np.array(signs), rcond=None)[0]
            moved = np.abs(np.delete(A, some, axis=0) @ aside)
            step = 0.5 * np.min(np.abs(others) / np.maximum(moved, 1e-12))
            gates += [edge + step * aside, -edge + step * aside]
    return np.array(gates)


def all_patterns(X: np.ndarray, bias: bool) -> cvxnn.Patterns:
    gates = all_gates(np.column_stack([X, np.ones(len(X))]) if bias else X)
    if bias:
        return cvxnn.Patterns.from_gates(X, gates[:, :-1].T, gates[:, -1])
    return cvxnn.Patterns.from_gates(X, gates.T)


def exact_price(A: np.ndarray, Theta: np.ndarray) -> float:
    """max |Theta_k'(A u)_+| over unit vectors u: the longest projection onto a cell."""
    on = np.unique(A @ all_gates(A).T > 0, axis=1)
    longest = 0.0
    for column in on.T:
        rows = A * np.where(column, 1.0, -1.0)[:, None]
        for theta in (*Theta.T, *-Theta.T):
            point = A.T @ (column * theta)
            longest = max(longest, nnls(rows.T, -point)[1])
    return longest


@pytest.fixture
def small() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.standard_normal((12, 2)), rng.standard_normal(12)


def test_oracle_counts_cells() -> None:
    A = np.random.default_rng(0).standard_normal((9, 3))
    patterns = np.unique(A @ all_gates(A).T > 0, axis=1)
    assert patterns.shape[1] == 2 * sum(math.comb(8, k) for k in range(3))  # Cover's formula


# -- the search


def test_gradients_are_those_of_the_price() -> None:
    rng = np.random.default_rng(0)
    X, Theta = rng.standard_normal((30, 4)), rng.standard_normal((30, 3))
    pricing = Pricing(X, rng)
    starts = pricing._start(rng.standard_normal((4, 12)), 3)
    G, prices = pricing._gradients(Theta, starts, lambda A, norms: (A > 0).astype(float))
    assert set(starts.classes.tolist()) == {0, 1, 2}
    assert set(starts.signs.tolist()) == {-1, 1}
    for j in range(12):
        theta = starts.signs[j] * Theta[:, starts.classes[j]]

        def F(u: np.ndarray, theta: np.ndarray = theta) -> float:
            return float(theta @ np.maximum(X @ u, 0))

        u, h = starts.U[:, j], 1e-7
        slopes = [(F(u + h * e) - F(u - h * e)) / (2 * h) for e in np.eye(4)]
        np.testing.assert_allclose(G[:, j], slopes, rtol=1e-6, atol=1e-6)
        assert prices[j] == pytest.approx(F(u), rel=1e-12)


def test_ascents_and_polish_never_lower_a_price() -> None:
    rng = np.random.default_rng(1)
    X, Theta = rng.standard_normal((40, 5)), rng.standard_normal((40, 2))
    pricing = Pricing(X, rng)
    starts = pricing._start(rng.standard_normal((5, 64)), 2)
    _, before = pricing._gradients(Theta, starts, lambda A, norms: (A > 0).astype(float))
    one = pricing._ascend(Theta, starts, 3, 1.0)
    more = pricing._ascend(Theta, one, 20, 1.0)
    assert np.all(one.prices >= before)
    assert np.all(more.prices >= one.prices)
    assert np.any(more.prices > before + 0.1)
    np.testing.assert_allclose(np.linalg.norm(more.U, axis=0), 1, rtol=1e-12)
    polished = 0
    for j in range(20):
        weights = more.signs[j] * Theta[:, more.classes[j]]
        u, price = polish(X, weights, more.U[:, j], more.prices[j])
        assert price >= more.prices[j]
        assert price == pytest.approx(weights @ np.maximum(X @ u, 0), rel=1e-12)
        nearby = u + 1e-5 * rng.standard_normal((300, 5))
        nearby /= np.linalg.norm(nearby, axis=1, keepdims=True)
        around = np.maximum(X @ nearby.T, 0).T @ weights
        polished += bool(around.max() <= price * (1 + 1e-9))
    assert polished >= 18  # local maxima, but for a few that rounding ended early


@pytest.mark.parametrize("seed", range(6))
def test_search_finds_the_exact_price_and_never_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, C = 2 + seed % 2, 1 + seed % 3
    A, Theta = rng.standard_normal((11, d)), rng.standard_normal((11, C))
    found = Pricing(A, rng).search(Theta, None, QUICK)
    exact = exact_price(A, Theta)
    assert abs(found.prices[0]) == pytest.approx(exact, rel=1e-9)
    assert np.all(np.abs(found.prices) <= exact * (1 + 1e-12))
    assert np.all(np.diff(np.abs(found.prices)) <= 0)
    values = np.maximum(A @ found.directions.T, 0)
    signed = np.einsum("ij,ij->j", values, Theta[:, found.classes])
    np.testing.assert_allclose(found.prices, signed, rtol=1e-9, atol=1e-12)


def test_search_is_deterministic_and_starts_from_what_is_known() -> None:
    rng = np.random.default_rng(0)
    A, Theta = rng.standard_normal((50, 4)), rng.standard_normal((50, 1))
    one, two = (Pricing(A, np.random.default_rng(7)).search(Theta) for _ in range(2))
    np.testing.assert_array_equal(one.directions, two.directions)
    np.testing.assert_array_equal(one.prices, two.prices)
    best = Pricing(A, np.random.default_rng(7)).search(Theta, None, DEEP)
    first = Neurons(*(part[:1] for part in best))
    none = Effort(gaussian=1, rows=0, steps=2, polished=0)
    again = Pricing(A, np.random.default_rng(8)).search(Theta, first, none)
    assert abs(again.prices[0]) >= abs(best.prices[0]) * (1 - 1e-12)


@pytest.mark.parametrize("exponents", [(500, -500), (-500, 300), (-400, -400)])
def test_search_at_any_scale(exponents: tuple[int, int]) -> None:
    rng = np.random.default_rng(2)
    A, Theta = rng.standard_normal((30, 3)), rng.standard_normal((30, 1))
    a, t = exponents
    plain = Pricing(A, np.random.default_rng(0)).search(Theta)
    scaled = Pricing(np.ldexp(A, a), np.random.default_rng(0)).search(np.ldexp(Theta, t))
    ratio = np.ldexp(scaled.prices[0], -a - t) / plain.prices[0]
    assert abs(ratio) == pytest.approx(1, rel=1e-9)


def test_search_without_anything_to_find() -> None:
    A = np.random.default_rng(0).standard_normal((5, 2))
    assert len(Pricing(A, np.random.default_rng(0)).search(np.zeros((5, 1))).prices) == 0


# -- neurons and patterns


def posed(X: np.ndarray, y: np.ndarray, lam: float = 0.01, **settings: object) -> cvxnn.CReLU:
    bias = bool(settings.get("bias", False))
    first = cvxnn.sample_patterns(X, 3, bias=bias, random_state=0)
    return cvxnn.CReLU(X, y, first, lam, singular="keep", **settings)  # type: ignore[arg-type]


def test_gates_are_inside_cells() -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((40, 4))
    kinks = np.array([np.linalg.svd(A[3 * i : 3 * i + 3])[2][-1] for i in range(8)])
    gates = gates_near(A, 5.0 * kinks, rng)
    unit = A / np.linalg.norm(A, axis=1, keepdims=True)
    assert np.abs(unit @ gates.T).min() > 1e-9
    assert np.linalg.norm(gates - kinks, axis=1).max() < 1e-5
    np.testing.assert_allclose(gates_near(A, A[:3], rng).T, (unit[:3]).T, rtol=1e-12)


@pytest.mark.parametrize("normalize", [False, True])
def test_neurons_as_weights_and_back(small: tuple[np.ndarray, np.ndarray], normalize: bool) -> None:
    X, y = small
    Y = np.column_stack([y, -2 * y**2])
    problem = posed(X, Y, bias=True, output_bias=True, normalize=normalize)
    rng = np.random.default_rng(0)
    units = Units(rng.standard_normal((6, 3)), np.arange(6) % 2, np.array([1, -1, -1, 1.0, 1, -1]))
    network = Sliding(problem)
    other, U = over_units(problem, units, rng)
    assert network.objective(units) == pytest.approx(other.objective(U), rel=1e-9)
    back = units_of(other, U)
    bias = problem.loss.intercept(network.predictions(units))
    assert network.objective(back) == pytest.approx(network.objective(units), rel=1e-9)
    np.testing.assert_allclose(
        network_of(problem, units, bias).predict(X),
        other.network(U).predict(X),
        rtol=1e-9,
        atol=1e-9,
    )


def test_neurons_that_are_alike_become_one(small: tuple[np.ndarray, np.ndarray]) -> None:
    problem = posed(*small)
    wide = problem.with_patterns(all_patterns(small[0], False))
    edge = np.linalg.svd(small[0][:1])[2][-1]
    inside = wide.cones.contains(
        np.tile(edge, (len(wide.patterns), 1)), np.arange(len(wide.patterns)), 1e-9
    )
    both = np.flatnonzero(inside)
    assert len(both) == 2  # the cells on both sides of the first row
    U = np.zeros(wide.weight_shape)
    U[both, :, 0] = edge, 3 * edge
    merged = consolidated(wide, U, 1 - 1e-5)
    assert np.count_nonzero(np.any(merged != 0, axis=(1, 2))) == 1
    np.testing.assert_allclose(merged.sum(axis=0), U.sum(axis=0), rtol=1e-9, atol=1e-12)


def test_sliding_has_the_gradient_of_its_objective(small: tuple[np.ndarray, np.ndarray]) -> None:
    X, _y = small
    Y = np.eye(3)[np.arange(12) % 3]
    network = Sliding(posed(X, Y, 0.02, loss="softmax", bias=True, output_bias=True))
    rng = np.random.default_rng(0)
    units = Units(rng.standard_normal((5, 3)), np.arange(5) % 3, np.array([1, -1, 1, 1, -1.0]))
    descent = _Descent(network, units)
    start, h = descent.best, 1e-6
    value, slope = descent(start)
    assert value == pytest.approx(network.objective(units), rel=1e-12)
    for j in range(len(start)):
        e = h * np.eye(len(start))[j]
        assert slope[j] == pytest.approx(
            (descent(start + e)[0] - descent(start - e)[0]) / (2 * h), abs=1e-6
        )
    slid = network.slide(units, 50)
    assert network.objective(slid) < network.objective(units)


# -- training with a proof


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_what_a_proof_finds_goes_back(
    small: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    """Without a search, all patterns come from the proof, which ends with none that pays."""
    X, y = small
    y = np.where(y > 0, 1.0, -1.0)

    def nothing(self: Pricing, *args: object) -> Neurons:
        return Neurons.none(self.d)

    monkeypatch.setattr(Pricing, "search", nothing)
    result = cvxnn.train(X, y, 0.01, loss=loss, prove=Enumeration(), tol=1e-5)
    assert result.status is Status.CONVERGED
    assert result.bound.scope == "all patterns (exact)"
    assert result.bound.proven
    assert result.bound.relative_gap < 1e-4
    assert result.bound.price is not None
    assert result.bound.price.max() <= (1 + 1e-4) * result.lam
    assert sum(one.kind == "prove" for one in result.history) > 2
    assert "over all patterns (exact)" in str(result)
    assert "not proven" not in str(result)


@pytest.mark.parametrize(
    "settings",
    [{}, {"loss": "logistic", "output_bias": True}, {"bias": False}, {"normalize": True}],
    ids=str,
)
def test_one_input_is_trained_to_a_proven_optimum(settings: dict[str, object]) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (60, 1))
    y = np.where(np.sin(3 * x[:, 0]) > 0, 1.0, -1.0)
    rounds: list[object] = []
    result = cvxnn.train(x, y, 0.003, tol=1e-6, callback=rounds.append, **settings)  # type: ignore[arg-type]
    assert result.converged
    assert result.bound.scope == "all patterns (exact)"
    assert result.bound.relative_gap <= 1e-6
    assert result.certificate.relative_gap <= 2e-6
    assert list(result.history) == rounds
    assert result.objective <= result.bound.objective
    again = cvxnn.train(x, y, 0.003, tol=1e-6, prove="none", **settings)  # type: ignore[arg-type]
    assert again.objective == pytest.approx(result.objective, rel=1e-5)
    stopped = cvxnn.train(x, y, 0.003, tol=1e-9, callback=lambda one: True, **settings)  # type: ignore[arg-type]
    assert stopped.status is Status.STOPPED
    np.testing.assert_allclose(
        result.network.predict(x),
        result.problem.network(result.solution.weights).predict(x),
        atol=1e-5,
    )


def test_large_data_without_a_method_of_proof_say_so(medium: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = medium
    wide = np.column_stack([X, np.random.default_rng(0).standard_normal((80, 80))])
    result = cvxnn.train(wide, y, 0.02, max_rounds=2, on_failure="ignore")
    assert result.bound.scope == "given patterns"
    assert "over the generated patterns" in str(result)
    assert "whether other patterns are better is not proven" in str(result)


# -- training ends at the optimum over all patterns


LABELS = np.where(np.random.default_rng(5).standard_normal(12) > 0, 1.0, -1.0)
CASES = {
    "squared": {},
    "huber": {"loss": "huber", "huber_delta": 0.5},
    "logistic": {"loss": "logistic"},
    "softmax": {"loss": "softmax"},
    "no bias": {"bias": False},
    "output bias": {"output_bias": True},
    "softmax, output bias": {"loss": "softmax", "output_bias": True},
    "logistic, output bias, weights": {"loss": "logistic", "output_bias": True, "weights": True},
    "two outputs": {"outputs": 2},
    "huber, two outputs, weights": {"loss": "huber", "outputs": 2, "weights": True},
    "normalize": {"normalize": True},
    "normalize, logistic, output bias": {
        "loss": "logistic",
        "normalize": True,
        "output_bias": True,
    },
}


def targets(case: dict[str, object]) -> np.ndarray:
    rng = np.random.default_rng(11)
    if case.get("loss") == "softmax":
        return np.eye(3)[rng.integers(3, size=12)]
    if case.get("loss") == "logistic":
        return LABELS
    return rng.standard_normal((12, 2)) if case.get("outputs") else rng.standard_normal(12)


@pytest.mark.parametrize("name", CASES)
def test_training_ends_at_the_optimum_over_all_patterns(name: str) -> None:
    case = dict(CASES[name])
    X, Y = np.random.default_rng(4).standard_normal((12, 2)) * (1.0, 3.0), targets(case)
    weight = np.random.default_rng(9).uniform(0.5, 2, 12) if case.pop("weights", False) else None
    case.pop("outputs", None)
    settings = {"bias": True, "sample_weight": weight, **case}
    lam = 0.01
    every = cvxnn.CReLU(X, Y, all_patterns(X, bool(settings["bias"])), lam, **settings)  # type: ignore[arg-type]
    best = cvxnn.solve(every, tol=1e-6).certificate
    result = cvxnn.train(X, Y, lam, prove="none", tol=1e-5, **settings)  # type: ignore[arg-type]
    assert result.status is Status.CONVERGED
    assert best.lower_bound <= result.objective * (1 + 1e-9)
    assert result.objective <= best.objective + 1e-5 * best.objective
    assert result.certificate.relative_gap <= 1e-5
    assert result.certificate.proven
    assert result.price is not None
    assert result.price <= (1 + 1e-5) * lam
    assert result.bound.scope == "given patterns"
    assert not result.bound.over_all_patterns
    assert result.bound.objective >= result.objective * (1 - 1e-12)
    assert "not proven" in str(result)
    if not settings.get("normalize"):
        terms = {k: v for k, v in settings.items() if k in ("loss", "huber_delta", "sample_weight")}
        value = result.network.objective(X, Y, lam, **terms)  # type: ignore[arg-type]
        assert value == pytest.approx(result.objective, rel=1e-9)


def test_no_network_beats_the_zero_one_above_lambda_max(
    small: tuple[np.ndarray, np.ndarray],
) -> None:
    X, y = small
    result = cvxnn.train(X, y, 10.0, prove="none")
    assert result.converged
    assert result.network.n_neurons == 0
    assert result.objective == pytest.approx(np.mean(y**2) / 2)


@pytest.fixture(scope="module")
def medium() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 4))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(80)


def test_objective_never_rises_and_beats_random_patterns(
    medium: tuple[np.ndarray, np.ndarray],
) -> None:
    X, y = medium
    told: list[object] = []
    result = cvxnn.train(X, y, 0.02, prove="none", callback=told.append)
    objectives = [one.objective for one in result.history]
    assert all(np.diff(objectives) <= 0)
    assert result.objective <= objectives[-1]
    assert [one for one in told if not one.note] == list(result.history)  # type: ignore[attr-defined]
    assert [one.n_round for one in result.history] == list(range(1, len(objectives) + 1))
    assert {one.kind for one in result.history} == {"slide", "solve"}
    assert all(one.price_ratio > 0 for one in result.history)
    random = cvxnn.CReLU(
        X, y, cvxnn.sample_patterns(X, 500, bias=True, random_state=0), 0.02, bias=True
    )
    assert result.objective < cvxnn.solve(random, tol=1e-3).certificate.lower_bound
    assert result.objective == pytest.approx(result.network.objective(X, y, 0.02), rel=1e-9)
    again = cvxnn.train(X, y, 0.02, prove="none")
    assert again.objective == result.objective


def test_generated_gates_serve_gated_networks(medium: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = medium
    result = cvxnn.train(X, y, 0.02, prove="none")
    gated = cvxnn.CGReLU(X, y, result.patterns, 0.02, bias=True)
    solution = cvxnn.solve(gated)
    assert solution.certificate.objective <= result.objective * (1 + 1e-4)  # a relaxation
    predicted = solution.network().predict(X)
    np.testing.assert_allclose(
        predicted, (gated.operator.forward(gated.check_weights(solution.weights)))[:, 0], atol=1e-8
    )


@pytest.mark.usefixtures("quick_search")
def test_warm_start_goes_on(medium: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = medium
    first = cvxnn.train(X, y, 0.03, prove="none")
    same = generate(first.problem, warm_start=first.solution)
    assert same.objective <= first.objective
    assert same.n_programs <= 3
    lower = generate(first.problem.with_lam(0.02), warm_start=first.solution.weights)
    cold = cvxnn.train(X, y, 0.02, prove="none")
    assert lower.objective == pytest.approx(cold.objective, rel=1e-3)
    start = cvxnn.sample_patterns(X, 20, bias=True, random_state=1)
    begun = cvxnn.train(X, y, 0.02, prove="none", patterns=start)
    assert begun.objective == pytest.approx(cold.objective, rel=1e-3)


def test_limits_end_with_the_best_network(medium: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = medium
    with pytest.warns(cvxnn.ConvergenceWarning, match="limit of rounds"):
        one = cvxnn.train(X, y, 0.005, prove="none", max_rounds=1)
    assert one.status is Status.MAX_ITER
    assert one.certificate.relative_gap < 0.01
    none = cvxnn.train(X, y, 0.005, prove="none", max_rounds=0, on_failure="ignore")
    assert none.objective <= none.history[-1].objective
    assert none.bound.objective >= none.objective >= one.objective
    with pytest.raises(cvxnn.NotConvergedError) as raised:
        cvxnn.train(X, y, 0.005, prove="none", max_rounds=1, on_failure="raise")
    assert raised.value.solution.certificate.objective > 0
    short = cvxnn.train(X, y, 0.001, prove="none", max_seconds=1e-3, on_failure="ignore")
    assert short.status is Status.TIME_LIMIT
    assert short.seconds < 5
    assert short.bound.lower_bound <= short.objective <= np.mean(y**2) / 2


@pytest.mark.parametrize("when", [1, 3, 5])
def test_interrupts_and_stops_keep_the_best(
    medium: tuple[np.ndarray, np.ndarray], when: int
) -> None:
    X, y = medium

    def interrupt(record: object) -> None:
        if record.n_round == when:  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    with pytest.warns(cvxnn.ConvergenceWarning, match="interrupted"):
        result = cvxnn.train(X, y, 0.005, prove="none", callback=interrupt)
    assert result.status is Status.INTERRUPTED
    assert len(result.history) == when
    assert result.objective <= result.history[-1].objective
    assert result.network.objective(X, y, 0.005) == pytest.approx(result.objective, rel=1e-9)
    assert result.certificate.lower_bound <= result.objective
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stopped = cvxnn.train(
            X, y, 0.005, prove="none", callback=lambda record: record.n_round == when
        )
    assert stopped.status is Status.STOPPED
    assert stopped.objective == result.objective


def test_sparse_rows_and_float32(medium: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = medium
    X = np.where(np.abs(X) > 1, X, 0)
    dense = cvxnn.train(X, y, 0.05, prove="none")
    sparse = cvxnn.train(csr_array(X), y, 0.05, prove="none")
    single = cvxnn.train(X.astype(np.float32), y, 0.05, prove="none")
    assert sparse.objective == pytest.approx(dense.objective, rel=1e-3)
    assert single.objective == pytest.approx(dense.objective, rel=1e-3)


def test_bad_input_is_named(medium: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = medium
    with pytest.raises(ValueError, match="lam must be > 0"):
        cvxnn.train(X, y, 0.0)
    with pytest.raises(ValueError, match="prove"):
        cvxnn.train(X, y, 0.1, prove="all")
    with pytest.raises(TypeError, match="prove must be a name"):
        cvxnn.train(X, y, 0.1, prove=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="callback must be callable"):
        cvxnn.train(X, y, 0.1, callback=3)  # type: ignore[arg-type]
    bare = cvxnn.Patterns.from_mask(cvxnn.sample_patterns(X, 4, random_state=0).mask)
    bare = cvxnn.Patterns.from_mask(cvxnn.sample_patterns(X, 4, random_state=0).mask)
    with pytest.raises(ValueError, match="patterns must have gates"):
        cvxnn.train(X, y, 0.1, patterns=bare)
    with pytest.raises(TypeError, match="must be a CReLU"):
        generate(cvxnn.CGReLU(X, y, cvxnn.sample_patterns(X, 4), 0.1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="lam > 0"):
        generate(posed(X, y, 0.0))
    with pytest.raises(ValueError, match="max_rounds"):
        cvxnn.train(X, y, 0.1, max_rounds=-1)
    with pytest.raises(ValueError, match="tol"):
        cvxnn.train(X, y, 0.1, tol=0)
    with pytest.raises(ValueError, match="X has 80 rows"):
        cvxnn.train(X, y[:-1], 0.1)


@needs("cvxpy")
def test_a_semidefinite_proof_has_its_own_dual_point():
    """That of the program is not the one for which the relaxation is best."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 9))
    y = np.sign(X[:, 0] + np.maximum(X[:, 1], 0) - 0.5)
    result = cvxnn.train(X, y, lam=0.15, tol=1e-3, prove="semidefinite")
    alone = cvxnn.bound_over_all_patterns(
        result.problem, result.solution.weights, result.solution.dual, "semidefinite"
    )
    assert result.bound.over_all_patterns
    assert result.bound.lower_bound >= alone.lower_bound * (1 - 1e-6)


@pytest.mark.usefixtures("quick_search")
def test_it_says_why_nothing_is_proven_over_all_patterns(
    medium: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = medium
    wide = np.random.default_rng(1).standard_normal((80, 9))
    weak = cvxnn.train(wide, y, 0.02, tol=0.05)
    assert "rows span 10 dimensions, where trees of cones go up to 7" in weak.unproven
    assert "times too weak for a relaxation" in weak.unproven
    assert f"nothing is proven over all patterns: {weak.unproven}" in weak.message
    monkeypatch.setattr(choice, "installed", lambda: False)
    strong = cvxnn.train(wide, y, 0.3 * cvxnn.lambda_max(posed(wide, y, 1.0)), tol=0.05)
    assert "pip install 'cvxnn[cvx]'" in strong.unproven
    assert cvxnn.train(wide, y, 0.02, tol=0.05, prove="none").unproven == ""
    assert cvxnn.train(X, y, 0.1).unproven == ""
    stopped = cvxnn.train(X, y, 0.02, callback=lambda one: True)
    assert stopped.unproven == "the run ended before its proof"


def test_a_proof_tells_that_it_goes_on_and_can_be_stopped(
    medium: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = medium
    monkeypatch.setattr(budget, "SILENCE", 0.0)
    told: list[Round] = []

    def stop(one: Round) -> bool:
        told.append(one)
        return one.note == "proving"

    result = cvxnn.train(X, y, 0.02, callback=stop)
    assert told[-1].kind == "prove"
    assert result.status is Status.STOPPED
    assert not result.bound.over_all_patterns
    assert result.certificate.relative_gap < 1e-3


def test_columns_of_very_different_sizes_are_named(medium: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = medium
    settings: dict[str, object] = {"prove": "none", "max_rounds": 1, "on_failure": "ignore"}
    raw = cvxnn.train(X * [1e4, 1, 1, 1], y, 0.005, **settings)  # type: ignore[arg-type]
    assert "columns differ in size by a factor of 1e+04: scale them" in raw.message
    scaled = cvxnn.train(X, y, 0.005, **settings)  # type: ignore[arg-type]
    assert "columns differ" not in scaled.message


# -- starts from networks that were trained


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_neurons_of_other_networks_find_what_a_weak_search_misses(
    loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((70, 7))
    y = np.sign(np.abs(X[:, 0]) - np.abs(X[:, 1] + X[:, 2]) + 0.3 * rng.standard_normal(70))
    for name in ("DEEP", "THOROUGH"):
        monkeypatch.setattr(method, name, Effort(gaussian=8, rows=16, steps=10, polished=2))
    problem = posed(X, y, 0.02, loss=loss)
    alone = generate(problem, descents=0)
    helped = generate(problem, descents=5)
    assert alone.converged
    assert helped.converged
    assert helped.objective < alone.objective * (1 - 1e-4)
    again = generate(problem, descents=5)
    assert again.objective == helped.objective


def test_a_network_is_trained_on_a_sample_of_many_rows(
    medium: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = medium
    monkeypatch.setattr(descents, "ROWS", 30)
    seen: list[int] = []
    slide = Sliding.slide

    def watch(self: Sliding, units: Units, steps: int) -> Units:
        seen.append(self.X.shape[0])
        return slide(self, units, steps)

    monkeypatch.setattr(Sliding, "slide", watch)
    Y = np.column_stack([y, X[:, 0]])
    for settings in ({}, {"output_bias": True}):
        trained = Descents(posed(X, Y, 0.02, **settings), 2, np.random.default_rng(0))
        new = trained.next()
        assert seen[-1] == 30
        np.testing.assert_allclose(np.linalg.norm(new.directions, axis=1), 1.0)
        assert set(new.classes.tolist()) == {0, 1}
        assert len(trained.found.prices) == len(new.prices)
        second = trained.next()
        assert not np.array_equal(new.directions, second.directions)
        assert not trained.worth_another
        trained.paid()
        assert trained.worth_another
