"""Activation patterns: what is sampled, what is kept, and that gates and masks belong together."""

from __future__ import annotations

import tracemalloc
from contextlib import nullcontext
from types import SimpleNamespace

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

import cvxnn
from cvxnn import GaussianGates, MixedGates, PatchGates, Patterns, SparseGates, sample_patterns
from cvxnn import patterns as patterns_module
from cvxnn.patterns import SMALLEST
from extras import optional

torch = optional("torch")
flop_counter = optional("torch.utils.flop_counter")

quick = settings(max_examples=60, deadline=None, derandomize=True)

# Small integers give zero rows, equal rows and equal columns; no other product is exactly zero.
small_data = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 12), st.integers(1, 4)),
    elements=st.integers(-2, 2).map(float),
)
masks = hnp.arrays(np.bool_, st.tuples(st.integers(1, 12), st.integers(1, 20)))
seeds = st.integers(0, 2**32)
biases = st.fixed_dictionaries({"bias": st.booleans()}) | st.fixed_dictionaries(
    {"active_share": st.floats(0.01, 1.0)}
)
switches = st.fixed_dictionaries({"strict": st.booleans(), "normalize": st.booleans()})
sampling = st.builds(dict.__or__, biases, switches)


def gaussian(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def switched(X, gates, bias=0.0, strict=False):
    product = X @ gates + bias
    return product > 0 if strict else product >= 0


def first_occurrences(mask):
    """Indices of the distinct non-zero columns, found the slow way."""
    seen, keep = set(), []
    for i, column in enumerate(mask.T):
        if column.any() and tuple(column) not in seen:
            seen.add(tuple(column))
            keep.append(i)
    return keep


def sample_or_none(*arguments, **options):
    """None where every gate drawn gives the zero pattern, as can happen with few rows."""
    try:
        return sample_patterns(*arguments, **options)
    except ValueError as error:
        if "no patterns left" not in str(error):
            raise
        return None


def assert_equal_patterns(patterns, expected):
    np.testing.assert_array_equal(patterns.mask, expected.mask)
    np.testing.assert_array_equal(patterns.gates, expected.gates)
    np.testing.assert_array_equal(patterns.gate_bias, expected.gate_bias)
    assert patterns.strict == expected.strict


# ------------------------------------------------------------------- what is kept, and how


@quick
@given(X=small_data, n_patterns=st.integers(1, 40), seed=seeds, options=sampling)
def test_sampled_patterns_are_distinct_non_zero_and_few_enough(X, n_patterns, seed, options):
    patterns = sample_or_none(X, n_patterns, random_state=seed, **options)
    if patterns is None:
        return
    n, p = patterns.mask.shape
    assert (n, patterns.n_samples) == (len(X), len(X))
    assert 1 <= p == len(patterns) <= n_patterns
    assert patterns.mask.dtype == bool
    assert patterns.gates.shape == (X.shape[1], p)
    assert patterns.gate_bias.shape == (p,)
    assert patterns.mask.any(axis=0).all()
    assert len({column.tobytes() for column in patterns.mask.T}) == p


@quick
@given(X=small_data, n_patterns=st.integers(1, 40), seed=seeds, strict=st.booleans())
def test_sampling_keeps_the_first_of_each_pattern_in_the_order_of_the_draws(
    X, n_patterns, seed, strict
):
    gates = GaussianGates().draw(np.random.default_rng(seed), n_patterns, X.shape[1]).T
    mask = switched(X, gates, strict=strict)
    keep = first_occurrences(mask)
    patterns = sample_or_none(X, n_patterns, random_state=seed, strict=strict)
    if patterns is None:
        assert not mask.any()
        return
    np.testing.assert_array_equal(patterns.mask, mask[:, keep])
    np.testing.assert_array_equal(patterns.gates, gates[:, keep])
    assert not patterns.gate_bias.any()


@quick
@given(mask=masks)
def test_masks_lose_duplicates_and_the_zero_pattern_only(mask):
    keep = first_occurrences(mask)
    if not keep:
        with pytest.raises(ValueError, match="no patterns left"):
            Patterns.from_mask(mask)
        return
    gates = np.arange(2 * mask.shape[1], dtype=float).reshape(2, -1)
    patterns = Patterns.from_mask(mask, gates, gates[0])
    np.testing.assert_array_equal(patterns.mask, mask[:, keep])
    np.testing.assert_array_equal(patterns.gates, gates[:, keep])
    np.testing.assert_array_equal(patterns.gate_bias, gates[0, keep])


@quick
@given(seed=seeds, options=sampling)
def test_gates_reproduce_the_mask(seed, options):
    X = gaussian(25, 3, seed % 100) * [1.0, 100.0, 0.01]
    patterns = sample_patterns(X, 30, random_state=seed, **options)
    mask = switched(X, patterns.gates, patterns.gate_bias, patterns.strict)
    np.testing.assert_array_equal(mask, patterns.mask)
    again = Patterns.from_gates(X, patterns.gates, patterns.gate_bias, strict=patterns.strict)
    assert_equal_patterns(again, patterns)


@quick
@given(left=masks, right=masks)
def test_join_appends_what_is_new(left, right):
    rows = min(len(left), len(right))
    left, right = left[:rows] | [[True]], right[:rows]  # the full pattern keeps left non-empty
    if not right.any():
        right = ~right
    first, second = Patterns.from_mask(left), Patterns.from_mask(right)
    joined = first.join(second)
    both = np.concatenate([first.mask, second.mask], axis=1)
    np.testing.assert_array_equal(joined.mask, both[:, first_occurrences(both)])
    np.testing.assert_array_equal(joined.mask[:, : len(first)], first.mask)
    assert len(joined.join(first)) == len(joined.join(second)) == len(joined)


def test_join_carries_gates_and_biases_along():
    X = gaussian(20, 3)
    first = sample_patterns(X, 10, bias=True, random_state=0)
    second = sample_patterns(X, 10, bias=True, random_state=1)
    joined = first.join(second)
    assert len(first) < len(joined) <= len(first) + len(second)
    assert_equal_patterns(Patterns.from_gates(X, joined.gates, joined.gate_bias), joined)
    assert_equal_patterns(joined.select(range(len(first))), first)


def test_select_takes_positions_booleans_and_slices():
    patterns = sample_patterns(gaussian(20, 3), 10, bias=True, random_state=0)
    order = [3, 0, 5]
    chosen = patterns.select(order)
    np.testing.assert_array_equal(chosen.mask, patterns.mask[:, order])
    np.testing.assert_array_equal(chosen.gates, patterns.gates[:, order])
    np.testing.assert_array_equal(chosen.gate_bias, patterns.gate_bias[order])
    assert_equal_patterns(patterns.select(np.arange(len(patterns)) < 4), patterns.select(range(4)))
    assert_equal_patterns(patterns.select(slice(None, 4)), patterns.select(range(4)))
    assert_equal_patterns(patterns.select(-1), patterns.select([len(patterns) - 1]))
    with pytest.raises(IndexError, match="out of bounds"):
        patterns.select([len(patterns)])


def test_select_and_join_work_without_gates_and_keep_strictness():
    strict = sample_patterns(gaussian(20, 3), 10, strict=True, random_state=0)
    assert strict.select([1]).strict
    assert strict.join(strict.select([1])).strict
    bare = Patterns.from_mask(strict.mask, strict=True)
    assert bare.gates is bare.gate_bias is None
    assert bare.select([1]).strict
    assert len(bare.join(bare)) == len(bare)


# ------------------------------------------------------------------------- reproducibility


@pytest.mark.parametrize("gates", [None, SparseGates(2), PatchGates((2, 2), size=1)])
@pytest.mark.parametrize("options", [{}, {"bias": True}, {"active_share": 0.5}])
def test_equal_seeds_give_equal_patterns(gates, options):
    X = gaussian(30, 4)
    draw = {"gates": gates, **options}
    expected = sample_patterns(X, 50, random_state=7, **draw)
    assert_equal_patterns(sample_patterns(X, 50, random_state=7, **draw), expected)
    generator = np.random.default_rng(7)
    assert_equal_patterns(sample_patterns(X, 50, random_state=generator, **draw), expected)
    further = sample_patterns(X, 50, random_state=generator, **draw)
    other = sample_patterns(X, 50, random_state=8, **draw)
    for patterns in (further, other):
        assert not np.array_equal(patterns.gates[:, 0], expected.gates[:, 0])


@pytest.mark.parametrize("form", [array_api_strict.asarray, torch.asarray, np.asfortranarray])
@pytest.mark.parametrize("options", [{}, {"bias": True}, {"active_share": 0.3}])
def test_patterns_do_not_depend_on_the_library(form, options):
    X = gaussian(30, 4)
    expected = sample_patterns(X, 50, random_state=0, normalize=True, **options)
    patterns = sample_patterns(form(X), 50, random_state=0, normalize=True, **options)
    np.testing.assert_array_equal(patterns.mask, expected.mask)
    np.testing.assert_allclose(patterns.gates, expected.gates, rtol=1e-12)
    np.testing.assert_allclose(patterns.gate_bias, expected.gate_bias, rtol=1e-9, atol=1e-12)


def test_patterns_do_not_depend_on_the_precision_of_the_run():
    X = gaussian(200, 6).astype(np.float32)
    single = sample_patterns(X, 500, random_state=0)
    double = sample_patterns(X.astype(np.float64), 500, random_state=0)
    assert_equal_patterns(single, double)


@quick
@given(seed=seeds, few=st.integers(1, 20), many=st.integers(20, 60))
def test_more_gaussian_gates_only_append(seed, few, many):
    X = gaussian(15, 3)
    prefix = sample_patterns(X, few, random_state=seed)
    longer = sample_patterns(X, many, random_state=seed)
    assert_equal_patterns(longer.select(range(len(prefix))), prefix)


# ------------------------------------------------------------------------------------ ties


@pytest.mark.parametrize("bias", [False, True])
def test_rows_that_tie_are_on_unless_strict(bias):
    X = np.array([[0.0, 0.0], [1.0, -1.0], [2.0, 2.0], [-1.0, 0.0]])
    gates = np.array([[1.0, 0.0], [1.0, -1.0]])
    shift = np.array([-4.0, 2.0]) if bias else np.zeros(2)
    weak = Patterns.from_gates(X, gates, shift)
    strict = Patterns.from_gates(X, gates, shift, strict=True)
    tied = X @ gates + shift == 0
    assert tied.any(axis=0).all()
    assert weak.mask[tied].all()
    # strictness changes the tied rows only; a pattern of tied rows alone disappears
    expected = weak.mask & ~tied
    np.testing.assert_array_equal(strict.mask, expected[:, first_occurrences(expected)])


def test_zero_rows_are_on_in_every_pattern_or_in_none():
    X = np.vstack([np.zeros((3, 4)), gaussian(20, 4)])
    assert sample_patterns(X, 30, random_state=0).mask[:3].all()
    assert not sample_patterns(X, 30, random_state=0, strict=True).mask[:3].any()


# ------------------------------------------------------------------- biases, normalisation


@quick
@given(n=st.integers(1, 40), share=st.floats(0.001, 1.0), strict=st.booleans(), seed=seeds)
def test_active_share_is_exact(n, share, strict, seed):
    X = gaussian(n, 3, seed % 1000)
    patterns = sample_patterns(X, 20, active_share=share, strict=strict, random_state=seed)
    count = max(1, round(share * n))
    np.testing.assert_array_equal(patterns.mask.sum(axis=0), count)
    on = switched(X, patterns.gates, patterns.gate_bias, strict)
    np.testing.assert_array_equal(on, patterns.mask)


@pytest.mark.parametrize("options", [{"normalize": True}, {"gates": SparseGates(1)}])
def test_active_share_is_exact_for_every_kind_of_gate(options):
    X = gaussian(40, 3) * [1.0, 1e4, 1e-4] + 5
    patterns = sample_patterns(X, 50, active_share=0.5, random_state=0, **options)
    np.testing.assert_array_equal(patterns.mask.sum(axis=0), 20)


def test_rows_that_tie_at_the_threshold_are_switched_together():
    X = np.repeat(gaussian(6, 3), 5, axis=0)
    groups = sample_patterns(X, 30, active_share=0.4, random_state=0).mask.reshape(6, 5, -1)
    np.testing.assert_array_equal(groups, np.broadcast_to(groups[:, :1], groups.shape))


def test_gates_have_a_bias_only_if_asked_for():
    X = gaussian(40, 3)
    assert not sample_patterns(X, 50, random_state=0).gate_bias.any()
    bias = sample_patterns(X, 50, random_state=0, bias=True).gate_bias
    assert 0.5 < bias.std() < 2


def test_a_gate_bias_is_a_gate_on_a_column_of_ones():
    X = gaussian(40, 3)
    patterns = sample_patterns(X, 50, random_state=0, bias=True)
    extended = np.column_stack([X, np.ones(len(X))])
    stacked = Patterns.from_gates(extended, np.vstack([patterns.gates, patterns.gate_bias]))
    np.testing.assert_array_equal(stacked.mask, patterns.mask)


@pytest.mark.parametrize("bias", [False, True])
def test_normalize_samples_on_unit_columns_and_maps_the_gates_back(bias):
    X = gaussian(40, 3) * [1.0, 1e5, 1e-5]
    X[:, 1] += 1e5
    patterns = sample_patterns(X, 60, random_state=0, bias=bias, normalize=True)
    norms = np.linalg.norm(X, axis=0)
    rng = np.random.default_rng(0)
    gates = GaussianGates().draw(rng, 60, 3).T
    shift = rng.standard_normal(60) / np.sqrt(len(X)) if bias else np.zeros(60)
    unit = Patterns.from_gates(X / norms, gates, shift)
    np.testing.assert_array_equal(patterns.mask, unit.mask)
    np.testing.assert_allclose(patterns.gates * norms[:, None], unit.gates, rtol=1e-12)
    np.testing.assert_allclose(patterns.gate_bias, unit.gate_bias, rtol=1e-12)


def test_without_normalize_the_largest_column_decides_and_with_it_none_does():
    X = gaussian(100, 3) * [1e6, 1.0, 1.0]
    assert len(sample_patterns(X, 200, random_state=0)) < 20
    assert len(sample_patterns(X, 200, random_state=0, normalize=True)) > 150


@pytest.mark.parametrize("unit", [1e-200, 1e-30, 1e30, 1e200])
def test_normalize_takes_columns_in_any_unit(unit):
    X = gaussian(30, 3)
    expected = sample_patterns(X, 40, random_state=0, normalize=True)
    patterns = sample_patterns(unit * X, 40, random_state=0, normalize=True)
    np.testing.assert_array_equal(patterns.mask, expected.mask)
    np.testing.assert_allclose(patterns.gates * unit, expected.gates, rtol=1e-12)
    plain = cvxnn.CGReLU(X, X[:, 0], expected, lam=0.01, normalize=True)
    scaled = cvxnn.CGReLU(unit * X, X[:, 0], patterns, lam=0.01, normalize=True)
    weights = np.ones(plain.weight_shape)
    assert scaled.objective(weights) == pytest.approx(plain.objective(weights), rel=1e-12)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("unit", [1e-200, 1e-310])
def test_networks_of_columns_in_tiny_units_are_finite(unit, form):
    X = gaussian(30, 3)
    small = form(X * [1.0, 1.0, unit])
    y = np.abs(X[:, 2])
    patterns = sample_patterns(small, 20, random_state=0, normalize=True)
    too_small = unit < SMALLEST
    with pytest.warns(UserWarning, match=r"2 \(largest entry") if too_small else nullcontext():
        problem = cvxnn.CReLU(small, y, patterns, lam=1e-3, normalize=True)
    network = cvxnn.solve(problem).network()
    assert np.isfinite(network.W1).all()
    # the target is a function of the small column alone
    error = np.mean((network.predict(small) - y) ** 2) / np.var(y)
    assert error > 0.5 if too_small else error < 0.2


def test_normalize_leaves_zero_columns_alone():
    X = gaussian(30, 3) * [1.0, 0.0, 2.0]
    patterns = sample_patterns(X, 40, random_state=0, normalize=True)
    assert np.isfinite(patterns.gates).all()
    np.testing.assert_array_equal(switched(X, patterns.gates), patterns.mask)


# -------------------------------------------------------------- where gates look, and whose


@pytest.mark.parametrize("n_features", [1, 3, 7])
def test_sparse_gates_look_at_so_many_features_each_and_at_all_of_them_together(n_features):
    gates = SparseGates(n_features).draw(np.random.default_rng(0), 200, 7)
    np.testing.assert_array_equal(np.count_nonzero(gates, axis=1), n_features)
    share = np.count_nonzero(gates, axis=0) / len(gates)
    np.testing.assert_allclose(share, n_features / 7, atol=0.12)


def test_sparse_gates_can_split_the_rows_at_varied_shares():
    X = gaussian(400, 5) ** 2 + 3  # far from the origin: without biases every gate is on or off
    patterns = sample_patterns(X, 100, gates=SparseGates(1, (0.2, 0.7)), random_state=0)
    share = patterns.mask.mean(axis=0)
    assert 0.19 < share.min() < 0.25
    assert 0.65 < share.max() < 0.71
    on = switched(X, patterns.gates, patterns.gate_bias)
    np.testing.assert_array_equal(on, patterns.mask)


def test_thresholds_of_varied_shares_lie_between_the_values_of_rows():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 3, 300), rng.integers(0, 2, 300), np.full(300, 7.0)])
    patterns = sample_patterns(X, 200, gates=SparseGates(2, (0.1, 0.9)), random_state=0)
    products = X @ patterns.gates
    distance = np.abs(products + patterns.gate_bias).min(axis=0)
    assert np.all(distance > 1e-3 * np.abs(products).max(axis=0))  # no row ties
    np.testing.assert_array_equal(products + patterns.gate_bias > 0, patterns.mask)
    wanted = SparseGates(1, (0.3, 0.3))
    single = sample_patterns(X[:, :1], 9, gates=wanted, random_state=0).mask.mean(axis=0)
    counts = np.bincount(X[:, 0].astype(int)) / 300
    assert set(single) == {counts[0], counts[2]}  # either is as near to 0.3 as three values allow
    problem = cvxnn.CReLU(X, X[:, :1], patterns, lam=0.01)
    assert not problem.cones.singular.any()


def test_shares_of_many_rows_are_those_of_some():
    X = gaussian(20_000, 3)
    patterns = sample_patterns(X, 20, gates=SparseGates(2, (0.1, 0.9)), random_state=0)
    few = sample_patterns(X[::4], 20, gates=SparseGates(2, (0.1, 0.9)), random_state=0)
    np.testing.assert_allclose(patterns.mask.mean(axis=0), few.mask.mean(axis=0), atol=0.03)


@pytest.mark.parametrize("p", [1, 2, 7])
def test_mixed_gates_take_turns(p):
    parts = [GaussianGates(), SparseGates(1, (0.5, 0.5)), SparseGates(2)]
    X = 100 * gaussian(40, 4)
    patterns = sample_patterns(X, p, gates=MixedGates(parts), bias=True, random_state=0)
    looked = np.count_nonzero(patterns.gates, axis=0)
    np.testing.assert_array_equal(looked, [4, 1, 2, 4, 1, 2, 4][:p])
    np.testing.assert_array_equal(patterns.mask[:, 1::3].sum(axis=0), 20)
    assert np.all(patterns.gate_bias != 0)


@pytest.mark.parametrize("share", [0.5, (0.5,), (0.0, 0.5), (0.6, 0.5), (0.5, 1.1), "ab"])
def test_a_range_of_shares_is_a_pair_in_order(share):
    with pytest.raises((ValueError, TypeError), match="active_share"):
        SparseGates(2, share)


@pytest.mark.parametrize("parts", [[], GaussianGates(), [GaussianGates(), 3]])
def test_mixed_gates_need_distributions(parts):
    with pytest.raises(TypeError, match="parts must be distributions"):
        MixedGates(parts)


def test_shares_of_gates_of_ones_own_are_checked():
    class Bad(GaussianGates):
        def draw_shares(self, rng, p):
            return np.zeros(p)

    with pytest.raises(ValueError, match=r"draw_shares.*in \(0, 1\]"):
        sample_patterns(gaussian(40, 3), 5, gates=Bad(), random_state=0)


IMAGES = {
    "grey": ((6, 5), -1, 2),
    "grey, whole image": ((3, 3), -1, 3),
    "grey, pixels": ((6, 5), -1, 1),
    "channels last": ((6, 5, 3), -1, 2),
    "channels first": ((3, 6, 5), 0, 2),
    "channels first, counted from the end": ((3, 6, 5), -3, 2),
    "channels in the middle": ((6, 3, 5), 1, 2),
    "one channel": ((6, 5, 1), 2, 3),
}


@pytest.mark.parametrize(("shape", "channel_axis", "size"), IMAGES.values(), ids=IMAGES)
def test_patch_gates_cover_exactly_one_patch_over_all_channels(shape, channel_axis, size):
    distribution = PatchGates(shape, size=size, channel_axis=channel_axis)
    gates = distribution.draw(np.random.default_rng(0), 300, int(np.prod(shape)))
    images = gates.reshape(-1, *shape)
    images = images[..., None] if len(shape) == 2 else np.moveaxis(images, channel_axis % 3 + 1, -1)
    _, height, width, channels = images.shape
    corners = set()
    for image in images:
        rows, columns = np.nonzero(image.any(axis=2))
        top, left = rows.min(), columns.min()
        assert np.count_nonzero(image) == size * size * channels
        assert np.count_nonzero(image[top : top + size, left : left + size]) == size**2 * channels
        corners.add((int(top), int(left)))
    every_corner = {(i, j) for i in range(height - size + 1) for j in range(width - size + 1)}
    assert corners == every_corner


def test_patch_gates_make_patterns_of_images():
    X = gaussian(30, 48)
    patterns = sample_patterns(X, 40, gates=PatchGates((4, 4, 3), size=2), random_state=0)
    assert len(patterns) == 40
    np.testing.assert_array_equal(np.count_nonzero(patterns.gates, axis=0), 12)
    np.testing.assert_array_equal(switched(X, patterns.gates), patterns.mask)


def test_gate_distributions_of_the_users_own_are_taken():
    class Axes:
        def draw(self, rng, p, d):
            return np.eye(d, dtype=int)[np.arange(p) % d]

    X = gaussian(20, 3)
    patterns = sample_patterns(X, 10, gates=Axes(), normalize=True)
    np.testing.assert_array_equal(patterns.mask, X >= 0)


def test_patterns_of_a_gated_network_are_those_of_its_gates():
    X = gaussian(30, 3)
    patterns = sample_patterns(X, 12, bias=True, strict=True, random_state=0)
    weights = gaussian(len(patterns), 3).reshape(len(patterns), 3, 1)
    network = cvxnn.GatedReLUNetwork.from_convex(patterns, weights)
    assert_equal_patterns(Patterns.from_network(X, network), patterns)


@pytest.mark.parametrize("library", [np.asarray, torch.asarray, torch.nn.Parameter])
@pytest.mark.parametrize("with_bias", [True, False])
def test_patterns_of_any_network_are_those_of_its_first_layer(library, with_bias):
    rng = np.random.default_rng(0)
    X, W1, b1 = gaussian(30, 3), rng.standard_normal((8, 3)), rng.standard_normal(8)
    form = library if library is not torch.nn.Parameter else lambda a: library(torch.asarray(a))
    network = SimpleNamespace(W1=form(W1), b1=form(b1) if with_bias else None)
    if not with_bias:
        b1 = np.zeros(8)
    expected = Patterns.from_gates(X, W1.T, b1)
    assert_equal_patterns(Patterns.from_network(X, network), expected)
    active = np.maximum(X @ W1.T + b1, 0) > 0
    np.testing.assert_array_equal(active[:, first_occurrences(active)], expected.mask)


def test_patterns_without_gates_are_solved_but_make_no_network():
    X = gaussian(20, 3)
    sampled = sample_patterns(X, 10, random_state=0)
    with_gates = cvxnn.CGReLU(X, X[:, 0], sampled, lam=0.01)
    without = cvxnn.CGReLU(X, X[:, 0], Patterns.from_mask(sampled.mask), lam=0.01)
    solution = cvxnn.solve(without)
    assert solution.certificate == cvxnn.solve(with_gates).certificate
    with pytest.raises(ValueError, match="patterns have no gates"):
        solution.network()


# ------------------------------------------------------------------------------------ cost


@pytest.mark.parametrize("options", [{}, {"bias": True, "normalize": True}, {"active_share": 0.5}])
def test_sampling_costs_one_product(options):
    n, d, p = 50, 6, 40
    X = torch.asarray(gaussian(n, d))
    with flop_counter.FlopCounterMode(display=False) as counter:
        sample_patterns(X, p, random_state=0, **options)
    assert counter.get_total_flops() == 2 * n * d * p


@pytest.mark.parametrize("options", [{}, {"bias": True, "strict": True}, {"active_share": 0.4}])
@pytest.mark.parametrize("block", [1, 100, 777])
def test_blocks_do_not_change_the_patterns(monkeypatch, block, options):
    X = gaussian(23, 3)
    expected = sample_patterns(X, 31, random_state=0, **options)
    monkeypatch.setattr(patterns_module, "_BLOCK", block)
    patterns = sample_patterns(X, 31, random_state=0, **options)
    np.testing.assert_array_equal(patterns.mask, expected.mask)
    cvxnn.CGReLU(X, X[:, 0], patterns, lam=0.1)  # the check of belonging goes in blocks too


@pytest.mark.parametrize("options", [{}, {"active_share": 0.5}])
def test_large_samples_never_hold_the_whole_product(monkeypatch, options):
    n, p, block = 10_000, 800, 2**16
    X = gaussian(n, 2)
    monkeypatch.setattr(patterns_module, "_BLOCK", block)
    tracemalloc.start()
    patterns = sample_patterns(X, p, random_state=0, **options)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(patterns) > 0.9 * p
    # bits as computed, as kept and as compared, and a few blocks: never a boolean mask
    assert peak < 3 * n * p / 8 + 5 * 8 * block
    assert peak < n * p * 0.7


@pytest.mark.parametrize("form", ["gates", "pairs", "networks", "torch"])
def test_harvested_patterns_are_those_of_every_epoch(form):
    rng = np.random.default_rng(0)
    X = gaussian(30, 3)
    layers = [(rng.standard_normal((3, 5)), rng.standard_normal(5)) for _ in range(4)]
    layers.append(layers[1])  # an epoch in which nothing new happens
    if form == "gates":
        layers = [(gates, np.zeros(5)) for gates, _ in layers]

    def epochs():
        shared = np.empty((3, 5))  # trained in place: the same object again and again
        for gates, bias in layers:
            shared[:] = gates
            if form == "gates":
                yield shared
            elif form == "pairs":
                yield shared, bias
            elif form == "networks":
                yield SimpleNamespace(W1=shared.T, b1=bias)
            else:
                yield torch.nn.Parameter(torch.asarray(shared)), torch.asarray(bias)

    found = Patterns.harvest(X, epochs())
    expected = Patterns.from_gates(X, *layers[0])
    for layer in layers[1:]:
        expected = expected.join(Patterns.from_gates(X, *layer))
    assert_equal_patterns(found, expected)
    assert len(found) > 10


def test_harvests_that_are_refused():
    X = gaussian(30, 3)
    strict = SimpleNamespace(gates=np.ones((3, 2)), gate_bias=np.zeros(2), strict=True)
    for snapshots, error, reason in [
        ([], ValueError, "snapshots is empty"),
        ([object()], TypeError, "neither gates nor W1"),
        ([np.ones((4, 2))], ValueError, "one row for each of the 3 features"),
        ([np.ones((3, 2)), np.ones((4, 2))], ValueError, "different numbers of features"),
        ([(np.ones((3, 2)), np.ones(3))], ValueError, "gate_bias must be 2 numbers"),
        ([strict], ValueError, "gates that say otherwise"),
    ]:
        with pytest.raises(error, match=reason):
            Patterns.harvest(X, snapshots)
    assert len(Patterns.harvest(X, [strict], strict=True)) == 1
