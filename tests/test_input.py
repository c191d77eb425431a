"""What users pass in: bad input is refused by name before any work, good input of every kind gives
the same answer, nothing passed in is modified, and extreme problems are certified."""

from __future__ import annotations

import copy
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sparse

import cvxnn
from cvxnn import RFISTA, CGReLU, GatedReLUNetwork, Patterns, lambda_max, sample_patterns, solve
from cvxnn.budget import Budget, spend
from extras import needs, optional

pd = optional("pandas")
pl = optional("polars")
torch = optional("torch")

DEFAULT_TOL = 1e-4
LAM = 0.5
N, D = 12, 3

# Small integers: exact in every dtype from int8 and float16 upwards.
X = np.random.default_rng(0).integers(-8, 9, (N, D)).astype(np.float64)
Y = np.random.default_rng(1).integers(-8, 9, N).astype(np.float64)
PATTERNS = sample_patterns(X, 20, random_state=0)
WEIGHTS = np.random.default_rng(2).standard_normal((len(PATTERNS), D, 1))
NETWORK = GatedReLUNetwork.from_convex(PATTERNS, WEIGHTS)


@pytest.fixture
def problem():
    return CGReLU(X, Y, PATTERNS, lam=LAM)


def with_value(array, place, value):
    changed = array.copy()
    changed[place] = value
    return changed


def as_params(table):
    return [pytest.param(*row, id=label) for label, row in table.items()]


# ---------------------------------------------------------------- arrays that are no data

TAKES_X = {
    "sample_patterns": lambda values: sample_patterns(values, 5, random_state=0),
    "CGReLU": lambda values: CGReLU(values, Y, PATTERNS, lam=LAM),
    "from_gates": lambda values: Patterns.from_gates(values, PATTERNS.gates),
    "from_network": lambda values: Patterns.from_network(values, NETWORK),
    "predict": lambda values: NETWORK.predict(values),
    "objective": lambda values: NETWORK.objective(values, Y, LAM),
    "to_convex": lambda values: NETWORK.to_convex(values),
}
TAKES_Y = {
    "CGReLU": lambda values: CGReLU(X, values, PATTERNS, lam=LAM),
    "objective": lambda values: NETWORK.objective(X, values, LAM),
}
TAKES_GATES = {
    "from_gates": lambda values: Patterns.from_gates(X, values),
    "from_mask": lambda values: Patterns.from_mask(PATTERNS.mask, values),
    "Patterns": lambda values: Patterns(PATTERNS.mask, values),
}
TAKES_WEIGHTS = {"from_convex": lambda values: GatedReLUNetwork.from_convex(PATTERNS, values)}

NO_ARRAY = {
    "None": (None, TypeError, "is None"),
    "text": ("abc", TypeError, "text"),
    "array of text": (X.astype(str), TypeError, "text"),
    "bytes": (b"abc", TypeError, "text"),
    "objects": (X.astype(object), TypeError, "Python objects"),
    "dictionary": ({"a": 1}, TypeError, "Python objects"),
    "generator": ((row for row in X), TypeError, "Python objects"),
    "integers beyond int64": ([[10**30] * D] * N, TypeError, "Python objects"),
    "dates": (X.astype("datetime64[s]"), TypeError, "dates"),
    "durations": (X.astype("timedelta64[s]"), TypeError, "durations"),
    "records": (np.zeros(N, dtype=[("a", float)]), TypeError, "no numbers"),
    "complex": (X + 0j, TypeError, "complex"),
    "complex tensor": (torch.asarray(X).to(torch.complex128), TypeError, "complex"),
    "masked array": (np.ma.masked_less(X, 0), TypeError, "masked"),
    "sparse tensor": (torch.asarray(X).to_sparse(), TypeError, "sparse"),
    "ragged list": ([[1.0, 2.0], [3.0]], ValueError, "not a rectangular array"),
    "rows and numbers": ([[1.0, 2.0], 3.0], ValueError, "not a rectangular array"),
    "pandas with text": (pd.DataFrame({"city": ["x"] * N, "b": 1.0}), TypeError, "'city'"),
    "pandas with dates": (
        pd.DataFrame({"day": pd.date_range("2020-01-01", periods=N)}),
        TypeError,
        "'day'",
    ),
    "polars with text": (pl.DataFrame({"city": ["x"] * N}), TypeError, "'city'"),
    "polars, lazy": (pl.DataFrame(X).lazy(), TypeError, r"lazy frame; pass \w+\.collect\(\)"),
}


@pytest.mark.parametrize(("values", "error", "reason"), as_params(NO_ARRAY))
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("X", TAKES_X["sample_patterns"]),
        ("X", TAKES_X["CGReLU"]),
        ("X", TAKES_X["predict"]),
        ("Y", TAKES_Y["CGReLU"]),
        ("gates", TAKES_GATES["from_gates"]),
        ("U", TAKES_WEIGHTS["from_convex"]),
    ],
    ids=["sample_patterns", "CGReLU X", "predict", "CGReLU Y", "from_gates", "from_convex"],
)
def test_what_is_no_array_of_real_numbers_is_refused(name, call, values, error, reason):
    with pytest.raises(error, match=rf"^{name} .*{reason}"):
        call(values)


@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.coo_array])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("Y", TAKES_Y["CGReLU"]),
        ("gates", TAKES_GATES["from_gates"]),
        ("U", TAKES_WEIGHTS["from_convex"]),
    ],
)
def test_sparse_matrices_are_for_X_only(name, call, form):
    with pytest.raises(TypeError, match=f"^{name} is a sparse matrix; a dense array is expected"):
        call(form(X))


NOT_FINITE = {
    "nan": (with_value(X, (2, 1), np.nan), r"nan at row 2, column 1 \(1 such value in all\)"),
    "inf": (with_value(X, (11, 0), np.inf), r"inf at row 11, column 0 \(1 such"),
    "minus inf": (with_value(X, (0, 2), -np.inf), r"-inf at row 0, column 2 \(1 such"),
    "several": (
        with_value(X, ([5, 3, 3], [0, 2, 1]), np.nan),
        r"nan at row 3, column 1 \(3 such values in all\)",
    ),
    "float32": (with_value(X.astype(np.float32), (2, 1), np.nan), "nan at row 2, column 1"),
    "torch": (torch.asarray(with_value(X, (2, 1), np.nan)), "nan at row 2, column 1"),
    "list": (with_value(X, (2, 1), np.nan).tolist(), "nan at row 2, column 1"),
    "sparse": (sparse.csr_array(with_value(X, (2, 1), np.nan)), "nan at row 2, column 1"),
    "pandas, missing": (
        pd.DataFrame({"a": pd.array([1, 2, None] * 4, dtype="Int64"), "b": 1.0, "c": 2}),
        r"nan at row 2, column 0 \(4 such values in all\)",
    ),
    "polars, null": (
        pl.DataFrame({"a": X[:, 0], "b": [1, None] * 6, "c": X[:, 2]}),
        "nan at row 1, column 1",
    ),
}


@pytest.mark.parametrize(("values", "place"), as_params(NOT_FINITE))
@pytest.mark.parametrize("call", TAKES_X.values(), ids=TAKES_X)
def test_nan_and_infinity_in_X_are_refused_with_their_place(call, values, place):
    with pytest.raises(ValueError, match=f"^X holds NaN or infinity: {place}"):
        call(values)


@pytest.mark.parametrize("call", TAKES_Y.values(), ids=TAKES_Y)
@pytest.mark.parametrize(
    ("values", "place"),
    [
        pytest.param(with_value(Y, 3, np.nan), "nan at row 3 ", id="1-d"),
        pytest.param(with_value(Y[:, None], (4, 0), np.inf), "inf at row 4, column 0 ", id="2-d"),
    ],
)
def test_nan_and_infinity_in_Y_are_refused_with_their_place(call, values, place):
    with pytest.raises(ValueError, match=f"^Y holds NaN or infinity: {place}"):
        call(values)


WRONG_X_SHAPE = {
    "0-d": (3.0, r"^X must be 2-dimensional .* got shape \(\)"),
    "1-d": (X[:, 0], r"^X must be 2-dimensional .* got shape \(12,\); reshape"),
    "series": (pd.Series(X[:, 0]), r"^X must be 2-dimensional"),
    "3-d": (X[None], r"^X must be 2-dimensional .* got shape \(1, 12, 3\)"),
    "no rows": (X[:0], r"^X is empty: shape \(0, 3\)"),
    "no columns": (X[:, :0], r"^X is empty: shape \(12, 0\)"),
    "empty list": ([], r"^X must be 2-dimensional"),
    "sparse without rows": (sparse.csr_array((0, 3)), r"^X is empty: shape \(0, 3\)"),
    "pandas without columns": (pd.DataFrame(index=range(N)), r"^X is empty: shape \(12, 0\)"),
    "pandas without rows": (pd.DataFrame({"a": []}), r"^X is empty: shape \(0, 1\)"),
    "polars without rows": (pl.DataFrame({"a": []}), r"^X "),
}


@pytest.mark.parametrize(("values", "message"), as_params(WRONG_X_SHAPE))
@pytest.mark.parametrize("call", TAKES_X.values(), ids=TAKES_X)
def test_X_of_the_wrong_shape_is_refused(call, values, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(values)


@pytest.mark.parametrize("entry", ["predict", "objective", "to_convex"])
def test_networks_refuse_X_with_another_number_of_features(entry):
    with pytest.raises(ValueError, match=r"^X has 2 features, but 3 are expected"):
        TAKES_X[entry](X[:, :2])


WRONG_Y_SHAPE = {
    "0-d": (1.0, r"^Y must be 1-dimensional"),
    "3-d": (Y[None, None], r"^Y must be 1-dimensional .* got shape \(1, 1, 12\)"),
    "too short": (Y[:-1], "^X has 12 rows, but Y has 11"),
    "too long": (np.append(Y, 0), "^X has 12 rows, but Y has 13"),
    "a row": (Y[None], "^X has 12 rows, but Y has 1"),
    "empty": (Y[:0], "^X has 12 rows, but Y has 0"),
    "no outputs": (Y[:, None][:, :0], r"^Y is empty: shape \(12, 0\)"),
    "labels": (["yes", "no"] * 6, "^Y holds text"),
}


@pytest.mark.parametrize(("values", "message"), as_params(WRONG_Y_SHAPE))
@pytest.mark.parametrize("call", TAKES_Y.values(), ids=TAKES_Y)
def test_Y_of_the_wrong_shape_is_refused(call, values, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(values)


def test_network_objective_refuses_another_number_of_outputs():
    with pytest.raises(ValueError, match=r"^Y has 2 outputs, but the network has 1"):
        NETWORK.objective(X, np.stack([Y, Y], axis=1), LAM)


# ------------------------------------------------------------- numbers, flags and names

BAD_LAM = {
    "negative": (-1.0, ValueError, "must be >= 0, got -1"),
    "slightly negative": (-1e-300, ValueError, "must be >= 0"),
    "nan": (np.nan, ValueError, "must be finite"),
    "inf": (np.inf, ValueError, "must be finite"),
    "minus inf": (-np.inf, ValueError, "must be finite"),
    "integer beyond floats": (10**400, ValueError, "must be finite"),
    "None": (None, TypeError, "must be a real number, got None"),
    "text": ("1e-3", TypeError, "must be a real number, got '1e-3'"),
    "bool": (True, TypeError, "must be a real number, got True"),
    "numpy bool": (np.True_, TypeError, "must be a real number"),
    "0-d bool": (np.array(True), TypeError, "must be a real number"),
    "complex": (1j, TypeError, "must be a real number"),
    "list": ([1e-3], TypeError, "must be a real number, got list"),
    "1-d array": (np.array([1e-3]), TypeError, "must be a real number, got ndarray"),
    "0-d text": (np.array("a"), TypeError, "must be a real number"),
    "missing": (pd.NA, TypeError, "must be a real number"),
}


@pytest.mark.parametrize(("lam", "error", "reason"), as_params(BAD_LAM))
def test_bad_lam_is_refused(problem, lam, error, reason):
    for call in (
        lambda: CGReLU(X, Y, PATTERNS, lam=lam),
        lambda: problem.with_lam(lam),
        lambda: NETWORK.objective(X, Y, lam),
    ):
        with pytest.raises(error, match=f"^lam {reason}"):
            call()
    assert problem.lam == LAM


def test_the_penalty_none_takes_no_strength():
    with pytest.raises(ValueError, match=r"lam must be 0, got 0\.5"):
        CGReLU(X, Y, PATTERNS, lam=0.5, penalty="none")


@pytest.mark.parametrize("n_patterns", [0, -3, 2.5, 5.0, "10", True, None, [5], np.array(5)])
def test_n_patterns_must_be_a_positive_integer(n_patterns):
    with pytest.raises((ValueError, TypeError), match=r"^n_patterns must be an? .*integer"):
        sample_patterns(X, n_patterns)


@pytest.mark.parametrize("random_state", [-1, "seed", 2.5, np.nan, object()])
def test_random_state_must_be_a_seed(random_state):
    with pytest.raises((ValueError, TypeError), match=r"^random_state must be a seed"):
        sample_patterns(X, 5, random_state=random_state)


@pytest.mark.parametrize("active_share", [0, -0.1, 1.01, np.nan, "half", True, [0.5]])
def test_active_share_must_lie_between_0_and_1(active_share):
    with pytest.raises((ValueError, TypeError), match=r"^active_share must be"):
        sample_patterns(X, 5, active_share=active_share)


@pytest.mark.parametrize("value", [1, 0, None, "yes"])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("bias", lambda flag: sample_patterns(X, 5, bias=flag)),
        ("normalize", lambda flag: sample_patterns(X, 5, normalize=flag)),
        ("strict", lambda flag: sample_patterns(X, 5, strict=flag)),
        ("strict", lambda flag: Patterns.from_gates(X, PATTERNS.gates, strict=flag)),
        ("strict", lambda flag: Patterns.from_mask(PATTERNS.mask, strict=flag)),
        ("bias", lambda flag: CGReLU(X, Y, PATTERNS, lam=LAM, bias=flag)),
        ("normalize", lambda flag: CGReLU(X, Y, PATTERNS, lam=LAM, normalize=flag)),
        ("bias", lambda flag: GatedReLUNetwork.from_convex(PATTERNS, WEIGHTS, bias=flag)),
        ("restart", lambda flag: RFISTA(restart=flag)),
        ("acceleration", lambda flag: RFISTA(acceleration=flag)),
    ],
)
def test_flags_must_be_true_or_false(name, call, value):
    with pytest.raises(TypeError, match=f"^{name} must be True or False"):
        call(value)


def reference_problem():
    return CGReLU(X, Y, PATTERNS, lam=LAM)


UNKNOWN_NAMES = {
    "penalty": ("nueron", "neuron", lambda name: CGReLU(X, Y, PATTERNS, lam=LAM, penalty=name)),
    "penalty, upper case": ("L1", "l1", lambda name: CGReLU(X, Y, PATTERNS, LAM, penalty=name)),
    "loss": ("square", "squared", lambda name: CGReLU(X, Y, PATTERNS, lam=LAM, loss=name)),
    "network loss": ("sqared", "squared", lambda name: NETWORK.objective(X, Y, LAM, loss=name)),
    "solver": ("rfist", "rfista", lambda name: solve(reference_problem(), name)),
    "solver, upper case": ("RFISTA", "rfista", lambda name: solve(reference_problem(), name)),
    "stop": ("gapp", "gap", lambda name: solve(reference_problem(), stop=name)),
    "on_failure": ("rais", "raise", lambda name: solve(reference_problem(), on_failure=name)),
    "step": ("tightnes", "tightness", lambda name: solve(reference_problem(), "rfista", step=name)),
    "option": ("max_itr", "max_iter", lambda name: solve(reference_problem(), **{name: 5})),
    "option of rfista": (
        "max_backtrack",
        "max_backtracks",
        lambda name: solve(reference_problem(), "rfista", **{name: 5}),
    ),
}


@pytest.mark.parametrize(("name", "near", "call"), as_params(UNKNOWN_NAMES))
def test_unknown_names_are_refused_with_the_near_one(name, near, call):
    with pytest.raises((ValueError, TypeError), match=rf"{name!r}; did you mean {near!r}\?"):
        call(name)


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("penalty", lambda name: CGReLU(X, Y, PATTERNS, lam=LAM, penalty=name)),
        ("loss", lambda name: CGReLU(X, Y, PATTERNS, lam=LAM, loss=name)),
        ("stop", lambda name: solve(reference_problem(), stop=name)),
        ("on_failure", lambda name: solve(reference_problem(), on_failure=name)),
        ("solver", lambda name: solve(reference_problem(), name)),
        ("step", lambda name: RFISTA(step=name)),
    ],
)
def test_names_like_none_of_the_choices_list_all_of_them(argument, call):
    with pytest.raises(ValueError, match=f"^unknown {argument} 'xyzzy'; Choose from: "):
        call("xyzzy")
    with pytest.raises(TypeError, match=f"^{argument} must be"):
        call(None)


# ------------------------------------------------------------------------------- patterns


def test_no_patterns_left_is_an_error():
    for call in (
        lambda: Patterns.from_gates(np.zeros((4, 2)), np.ones((2, 3)), strict=True),
        lambda: sample_patterns(np.zeros((4, 2)), 10, strict=True),
        lambda: Patterns.from_mask(np.zeros((4, 2), dtype=bool)),
        lambda: PATTERNS.select([]),
        lambda: PATTERNS.select(np.zeros(len(PATTERNS), dtype=bool)),
    ):
        with pytest.raises(ValueError, match=r"^no patterns left"):
            call()


OTHER_DATA = {
    "fewer rows": (X[:-1], "they cover 11 rows, X has 12"),
    "fewer features": (X[:, :2], "their gates have 2 features, X has 3"),
    "other values": (X + np.random.default_rng(3).normal(0, 4, X.shape), "their gates disagree"),
    "other sign": (-X, "their gates disagree with X, first at row 0"),
    "other order": (X[::-1], "their gates disagree"),
    "one other row": (with_value(X, 7, -X[7]), "their gates disagree with X, first at row 7"),
}


@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e9])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("values", "reason"), as_params(OTHER_DATA))
def test_patterns_of_other_data_are_refused(values, reason, bias, scale):
    # a bias of unit size would decide every pattern of tiny data, hence the unit columns
    settings = {"bias": bias, "normalize": bias, "random_state": 0}
    patterns = sample_patterns(scale * values, 50, **settings)
    with pytest.raises(ValueError, match=f"^patterns belong to other data: {reason}"):
        CGReLU(scale * X, Y, patterns, lam=LAM)
    CGReLU(scale * X, Y, sample_patterns(scale * X, 50, **settings), lam=LAM)


def test_patterns_of_another_precision_belong_to_the_data():
    noisy = X + np.random.default_rng(0).standard_normal(X.shape)
    CGReLU(noisy.astype(np.float32), Y, sample_patterns(noisy, 50, random_state=0), lam=LAM)


@pytest.mark.parametrize("patterns", [None, "patterns", PATTERNS.mask, [PATTERNS], 5])
def test_patterns_must_be_patterns(patterns):
    with pytest.raises(TypeError, match=r"^patterns must be Patterns, got"):
        CGReLU(X, Y, patterns, lam=LAM)
    with pytest.raises(TypeError, match=r"^patterns must be Patterns, got"):
        GatedReLUNetwork.from_convex(patterns, WEIGHTS)


BAD_MASK = {
    "None": (None, TypeError, "is None"),
    "1-d": (PATTERNS.mask[:, 0], ValueError, "non-empty"),
    "no rows": (np.zeros((0, 3), bool), ValueError, "non-empty"),
    "no columns": (np.zeros((3, 0), bool), ValueError, "non-empty"),
    "counts": (PATTERNS.mask + 1, ValueError, "booleans"),
    "nan": (np.full((3, 3), np.nan), ValueError, "booleans"),
    "text": ("abc", ValueError, "booleans"),
    "complex": (PATTERNS.mask + 0j, ValueError, "booleans"),
    "ragged": ([[1, 0], [1]], ValueError, "not a rectangular array"),
    "sparse": (sparse.csr_array(PATTERNS.mask), TypeError, "sparse"),
    "masked": (np.ma.array(PATTERNS.mask, mask=PATTERNS.mask), TypeError, "masked"),
}


@pytest.mark.parametrize(("mask", "error", "reason"), as_params(BAD_MASK))
def test_bad_masks_are_refused(mask, error, reason):
    with pytest.raises(error, match=f"^mask .*{reason}"):
        Patterns.from_mask(mask)


TWO_GATES = np.eye(D)[:, :2]
BAD_GATES = {
    "1-d": (lambda: Patterns.from_gates(X, np.ones(D)), "^gates must be 2-dimensional"),
    "transposed": (lambda: Patterns.from_gates(X, np.ones((2, D))), "^gates must have one row"),
    "nan": (lambda: Patterns.from_gates(X, np.nan * TWO_GATES), "^gates holds NaN.*row 0, col"),
    "too few for the mask": (lambda: Patterns.from_mask(PATTERNS.mask, TWO_GATES), "gates has 2"),
    "bias too short": (lambda: Patterns.from_gates(X, TWO_GATES, [1.0]), "^gate_bias must be 2"),
    "bias 2-d": (lambda: Patterns.from_gates(X, TWO_GATES, [[1.0, 1.0]]), "^gate_bias must be 2"),
    "bias nan": (lambda: Patterns.from_gates(X, TWO_GATES, [0, np.nan]), "^gate_bias holds NaN"),
    "bias text": (lambda: Patterns.from_gates(X, TWO_GATES, ["a", "b"]), "^gate_bias holds text"),
    "bias complex": (lambda: Patterns.from_gates(X, TWO_GATES, [1j, 1]), "^gate_bias holds comp"),
    "bias without gates": (
        lambda: Patterns.from_mask(PATTERNS.mask, gate_bias=[1.0]),
        "^gate_bias is given without gates",
    ),
    "no network": (lambda: Patterns.from_network(X, 5), "^network has neither gates nor W1: int"),
    "network of other data": (lambda: Patterns.from_network(X[:, :2], NETWORK), "^gates must have"),
    "join with a mask": (lambda: PATTERNS.join(PATTERNS.mask), "^other must be Patterns"),
    "join other rows": (lambda: PATTERNS.join(sample_patterns(X[1:], 5)), "12 and of 11 rows"),
    "join other features": (
        lambda: PATTERNS.join(sample_patterns(X[:, :2], 5)),
        "3 and of 2 features cannot be joined",
    ),
    "join without gates": (
        lambda: PATTERNS.join(Patterns.from_mask(PATTERNS.mask)),
        "with and without gates",
    ),
    "join strict": (
        lambda: PATTERNS.join(Patterns.from_gates(X, TWO_GATES, strict=True)),
        "strict and not, cannot be joined",
    ),
}


@pytest.mark.parametrize(("call", "message"), as_params(BAD_GATES))
def test_bad_gates_are_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


class Drawn:
    """A gate distribution that returns what it was given."""

    def __init__(self, draws):
        self.draws = draws

    def draw(self, rng, p, d):
        return self.draws


BAD_DISTRIBUTION = {
    "a class": (cvxnn.GaussianGates, "^gates must be a distribution such as GaussianGates()"),
    "a name": ("gaussian", "^gates must be a distribution"),
    "gates": (PATTERNS.gates, "^gates must be a distribution .* use Patterns.from_gates"),
    "draws nothing": (Drawn(None), r"^gates.draw\(...\) is None"),
    "draws too few": (Drawn(np.ones((4, D))), r"^gates.draw\(...\) must have shape \(5, 3\)"),
    "draws transposed": (Drawn(np.ones((D, 5))), r"^gates.draw\(...\) must have shape \(5, 3\)"),
    "draws nan": (Drawn(np.full((5, D), np.nan)), r"^gates.draw\(...\) holds NaN"),
    "draws text": (Drawn([["a"] * D] * 5), r"^gates.draw\(...\) holds text"),
    "too many features": (cvxnn.SparseGates(D + 1), "^n_features is 4, but X has only 3"),
    "another image": (cvxnn.PatchGates((3, 3)), r"^image_shape \(3, 3\) has 9 values, but X has 3"),
}


@pytest.mark.parametrize(("gates", "message"), as_params(BAD_DISTRIBUTION))
def test_bad_gate_distributions_are_refused(gates, message):
    with pytest.raises((ValueError, TypeError), match=message):
        sample_patterns(X, 5, gates=gates, normalize=True)


@pytest.mark.parametrize("n_features", [0, -1, 1.5, "1", True, None])
def test_sparse_gates_need_a_positive_number_of_features(n_features):
    with pytest.raises((ValueError, TypeError), match=r"^n_features must be an? .*integer"):
        cvxnn.SparseGates(n_features)


BAD_PATCHES = {
    "one axis": ({"image_shape": (9,)}, "^image_shape must have 2 or 3 entries"),
    "four axes": ({"image_shape": (3, 3, 1, 1)}, "^image_shape must have 2 or 3 entries"),
    "a number": ({"image_shape": 9}, "^image_shape must be 2 or 3 integers, got 9"),
    "None": ({"image_shape": None}, "^image_shape must be 2 or 3 integers, got None"),
    "text": ({"image_shape": "3x3"}, "^image_shape must be an integer"),
    "fraction": ({"image_shape": (3, 2.5)}, "^image_shape must be an integer"),
    "zero": ({"image_shape": (3, 0)}, "^image_shape must be a positive integer"),
    "size zero": ({"image_shape": (3, 3), "size": 0}, "^size must be a positive integer"),
    "size text": ({"image_shape": (3, 3), "size": "2"}, "^size must be an integer"),
    "too large": ({"image_shape": (3, 9), "size": 4}, "^patches of size 4 do not fit"),
    "too large for channels first": (
        {"image_shape": (9, 3, 9), "size": 4, "channel_axis": 0},
        "^patches of size 4 do not fit",
    ),
    "no such axis": ({"image_shape": (3, 3, 1), "channel_axis": 3}, "^channel_axis must be one"),
    "axis text": ({"image_shape": (3, 3, 1), "channel_axis": "last"}, "^channel_axis must be"),
}


@pytest.mark.parametrize(("settings", "message"), as_params(BAD_PATCHES))
def test_bad_image_patches_are_refused(settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        cvxnn.PatchGates(**settings)


# ------------------------------------------------------------------------------- networks

BAD_WEIGHTS = {
    "other patterns": (np.ones((2, D, 1)), ValueError, r"must have shape \(\d+, 3, C\), got \(2,"),
    "other features": (np.ones((len(PATTERNS), D + 1, 1)), ValueError, "must have shape"),
    "no classes": (WEIGHTS[:, :, :0], ValueError, "must have shape"),
    "4-d": (WEIGHTS[None], ValueError, "must have shape"),
    "nan": (np.full_like(WEIGHTS, np.nan), ValueError, "holds NaN"),
}


@pytest.mark.parametrize(("U", "error", "reason"), as_params(BAD_WEIGHTS))
def test_bad_convex_weights_are_refused(U, error, reason):
    with pytest.raises(error, match=f"^U {reason}"):
        GatedReLUNetwork.from_convex(PATTERNS, U)


def test_a_network_needs_gates_and_the_intercepts_it_is_told_of():
    with pytest.raises(ValueError, match="patterns have no gates"):
        GatedReLUNetwork.from_convex(Patterns.from_mask(PATTERNS.mask), WEIGHTS)
    with pytest.raises(ValueError, match=r"^U must have shape \(\d+, 4, C\)"):
        GatedReLUNetwork.from_convex(PATTERNS, WEIGHTS, bias=True)
    with pytest.raises(ValueError, match=r"^flat_output needs one output, got 2"):
        GatedReLUNetwork.from_convex(PATTERNS, np.ones((len(PATTERNS), D, 2)), flat_output=True)


def parts(**changes):
    return {
        "gates": np.ones((2, 3)),
        "gate_bias": np.zeros(3),
        "W1": np.ones((3, 2)),
        "b1": np.ones(3),
        "W2": np.ones((3, 1)),
    } | changes


BAD_PARTS = {
    "gates transposed": ({"gates": np.ones((3, 2))}, r"^gates must have shape \(2, 3\)"),
    "gate_bias short": ({"gate_bias": np.zeros(2)}, r"^gate_bias must have shape \(3,\)"),
    "b1 2-d": ({"b1": np.zeros((3, 1))}, r"^b1 must have shape \(3,\)"),
    "W1 1-d": ({"W1": np.ones(3)}, "^W1 must have a row for each neuron"),
    "W1 no features": ({"W1": np.ones((3, 0)), "gates": np.ones((0, 3))}, "^W1 must have a row"),
    "W2 1-d": ({"W2": np.ones(3)}, "^W2 must have a row for each neuron"),
    "W2 no outputs": ({"W2": np.ones((3, 0))}, "^W2 must have a row for each neuron"),
    "W2 short": ({"W2": np.ones((2, 1))}, r"^W2 must have shape \(3, 1\)"),
    "W1 nan": ({"W1": np.full((3, 2), np.nan)}, "^W1 holds NaN or infinity"),
    "W2 None": ({"W2": None}, "^W2 is None"),
    "gates text": ({"gates": "abc"}, "^gates holds text"),
    "strict": ({"strict": 1}, "^strict must be True or False"),
    "flat_output": ({"flat_output": None}, "^flat_output must be True or False"),
}


@pytest.mark.parametrize(("changes", "message"), as_params(BAD_PARTS))
def test_bad_parts_of_a_network_are_refused(changes, message):
    GatedReLUNetwork(**parts())
    with pytest.raises((ValueError, TypeError), match=message):
        GatedReLUNetwork(**parts(**changes))


# --------------------------------------------------------------------------------- solving

BAD_SOLVE = {
    "tol negative": ({"tol": -1e-9}, ValueError, "^tol must be >= 0"),
    "tol nan": ({"tol": np.nan}, ValueError, "^tol must be finite"),
    "tol inf": ({"tol": np.inf}, ValueError, "^tol must be finite"),
    "tol text": ({"tol": "1e-3"}, TypeError, "^tol must be a real number"),
    "tol bool": ({"tol": True}, TypeError, "^tol must be a real number"),
    "max_iter negative": ({"max_iter": -1}, ValueError, "^max_iter must be an integer >= 0"),
    "max_iter fraction": ({"max_iter": 2.5}, TypeError, "^max_iter must be an integer"),
    "max_iter bool": ({"max_iter": True}, TypeError, "^max_iter must be an integer"),
    "max_iter text": ({"max_iter": "5"}, TypeError, "^max_iter must be an integer"),
    "max_seconds zero": ({"max_seconds": 0}, ValueError, "^max_seconds must be > 0"),
    "max_seconds negative": ({"max_seconds": -1}, ValueError, "^max_seconds must be > 0"),
    "max_seconds nan": ({"max_seconds": np.nan}, ValueError, "^max_seconds must be finite"),
    "max_seconds text": ({"max_seconds": "1"}, TypeError, "^max_seconds must be a real number"),
    "callback number": ({"callback": 5}, TypeError, "^callback must be callable, got int"),
    "callback text": ({"callback": "print"}, TypeError, "^callback must be callable, got str"),
    "solver None": ({"solver": None}, TypeError, "^solver must be a name or a solver object"),
    "solver number": ({"solver": 5}, TypeError, "^solver must be a name or a solver object"),
    "solver direct": ({"solver": "direct"}, ValueError, "'direct' does not .* penalty 'neuron'"),
    "solver lsmr": (
        {"solver": "lsmr"},
        ValueError,
        "use one of: newton, working-sets, stochastic, rfista, cvxpy",
    ),
    "options for an object": (
        {"solver": RFISTA(), "restart": False},
        TypeError,
        "options .'restart'. are for a solver given by name",
    ),
    "option of another solver": ({"restart": False}, TypeError, "solver 'newton' has 'restart'"),
}
BAD_RFISTA = {
    "first_step zero": ({"first_step": 0}, ValueError, "^first_step must be > 0"),
    "first_step text": ({"first_step": "1"}, TypeError, "^first_step must be a real number"),
    "shrink one": ({"shrink": 1}, ValueError, "^shrink must be < 1"),
    "shrink zero": ({"shrink": 0}, ValueError, "^shrink must be > 0"),
    "grow": ({"grow": 0.5}, ValueError, "^grow must be >= 1"),
    "tightness": ({"tightness": 0.5}, ValueError, "^tightness must be >= 1"),
    "max_backtracks": ({"max_backtracks": 0}, ValueError, "^max_backtracks must be a positive"),
}
BAD_WARM_START = {
    "other patterns": (WEIGHTS[:-1], ValueError, "must have shape"),
    "other features": (WEIGHTS[:, :-1], ValueError, "must have shape"),
    "other classes": (np.repeat(WEIGHTS, 2, axis=2), ValueError, "must have shape"),
    "a number": (5.0, ValueError, "must have shape"),
    "nan": (with_value(WEIGHTS, (0, 0, 0), np.nan), ValueError, "NaN or infinity"),
    "inf": (with_value(WEIGHTS, (0, 0, 0), np.inf), ValueError, "NaN or infinity"),
    "text": ("abc", (TypeError, ValueError), ""),
    "ragged": ([[1.0, 2.0], [3.0]], ValueError, ""),
    "a network": (NETWORK, TypeError, ""),
}


UNKNOWN_CONIC_SOLVER = pytest.param(
    {"solver": "cvxpy", "backend": "CLARABLE"},
    ValueError,
    "no solver 'CLARABLE' here; installed: .*CLARABEL",
    id="unknown conic solver",
    marks=needs("cvxpy"),
)


@pytest.mark.parametrize(
    ("settings", "error", "message"), [*as_params(BAD_SOLVE), UNKNOWN_CONIC_SOLVER]
)
def test_bad_settings_are_refused_before_any_work(problem, settings, error, message):
    with spend(Budget()) as spent, pytest.raises(error, match=message):
        solve(problem, **settings)
    assert spent.passes.total == 0


@pytest.mark.parametrize(("settings", "error", "message"), as_params(BAD_RFISTA))
def test_bad_settings_of_a_solver_are_refused_before_any_work(problem, settings, error, message):
    with spend(Budget()) as spent, pytest.raises(error, match=message):
        solve(problem, "rfista", **settings)
    assert spent.passes.total == 0


@pytest.mark.parametrize(("start", "error", "reason"), as_params(BAD_WARM_START))
def test_bad_warm_starts_are_refused_before_any_work(problem, start, error, reason):
    with spend(Budget()) as spent, pytest.raises(error):
        solve(problem, warm_start=start)
    assert spent.passes.total == 0


@pytest.mark.parametrize(("start", "error", "reason"), as_params(BAD_WARM_START))
def test_bad_warm_starts_are_refused_by_name(problem, start, error, reason):
    with pytest.raises(error, match=f"^warm_start.*{reason}"):
        solve(problem, warm_start=start)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(lambda p: solve(p, RFISTA), "^solver must be", id="a solver class"),
        pytest.param(lambda p: solve(p, "cvxpy", backend=None), "^backend must", id="no backend"),
        pytest.param(lambda p: solve(p, max_iters=5), "did you mean 'max_iter'", id="max_iters"),
        pytest.param(lambda p: lambda_max(X), "^problem must be a CGReLU", id="lambda_max"),
        pytest.param(lambda p: cvxnn.certify(X, WEIGHTS), "^problem must be", id="certify"),
    ],
)
def test_further_bad_arguments_are_refused_by_name(problem, call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(problem)


def test_solve_refuses_what_is_no_problem():
    with pytest.raises(TypeError, match=r"^problem must be a CGReLU.*, got ndarray"):
        solve(X)


@pytest.mark.parametrize("penalty", ["l2", "none"])
def test_lambda_max_exists_for_norms_only(penalty):
    with pytest.raises(ValueError, match=f"^penalty '{penalty}' has no lambda_max"):
        lambda_max(CGReLU(X, Y, PATTERNS, lam=0, penalty=penalty))


def test_a_refused_call_leaves_no_state_behind():
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    for bad in ({"n_patterns": 0}, {"strict": 1}, {"gates": 1}, {"X": X[:, 0]}):
        with pytest.raises((ValueError, TypeError), match=f"^{next(iter(bad))} must be"):
            sample_patterns(**{"X": X, "n_patterns": 5, "random_state": rng} | bad)
    assert rng.bit_generator.state == before


# ------------------------------------------------------------------------------ good input

SAME_X = {
    "list": X.tolist(),
    "tuple": tuple(map(tuple, X)),
    "list of arrays": list(X),
    "int8": X.astype(np.int8),
    "int64": X.astype(np.int64),
    "longdouble": X.astype(np.longdouble),
    "big-endian": X.astype(">f8"),
    "Fortran order": np.asfortranarray(X),
    "every second column": np.repeat(X, 2, axis=1)[:, ::2],
    "rows backwards": X[::-1].copy()[::-1],
    "read-only": with_value(X, (0, 0), X[0, 0]),
    "matrix": np.asmatrix(X),
    "memory view": memoryview(X),
    "pandas": pd.DataFrame(X),
    "pandas, mixed dtypes": pd.DataFrame(
        {
            "a": X[:, 0].astype(int),
            "b": X[:, 1].astype(np.float32),
            "c": pd.array(X[:, 2].astype(int), dtype="Int64"),
        }
    ),
    "pandas, Float64": pd.DataFrame(X).astype("Float64"),
    "pandas, pyarrow": pd.DataFrame(X).astype("double[pyarrow]"),
    "pandas, equal column names": pd.DataFrame(X, columns=["a", "a", "b"]),
    "pandas, other index": pd.DataFrame(X, index=range(100, 100 - N, -1)),
    "polars": pl.DataFrame(X),
    "polars, mixed dtypes": pl.DataFrame({"a": X[:, 0].astype(int), "b": X[:, 1], "c": X[:, 2]}),
    "torch": torch.asarray(X),
    "torch, int": torch.asarray(X.astype(int)),
    "torch, transposed": torch.asarray(X.T.copy()).T,
    "torch, with gradient": torch.tensor(X, requires_grad=True),
    "sparse": sparse.csr_array(X),
    "sparse matrix, int": sparse.coo_matrix(X.astype(int)),
}
SAME_X["read-only"].setflags(write=False)
SINGLE_X = {
    "float32": X.astype(np.float32),
    "float16": X.astype(np.float16),
    "pandas, float32": pd.DataFrame(X.astype(np.float32)),
    "torch, float32": torch.asarray(X, dtype=torch.float32),
    "torch, float16": torch.asarray(X, dtype=torch.float16),
    "torch, bfloat16": torch.asarray(X, dtype=torch.bfloat16),
    "sparse, float32": sparse.csr_array(X.astype(np.float32)),
}
SAME_Y = {
    "list": Y.tolist(),
    "int": Y.astype(int),
    "float32": Y.astype(np.float32),
    "float16": Y.astype(np.float16),
    "every second": np.repeat(Y, 2)[::2],
    "one column": Y[:, None],
    "one column of Fortran order": np.asfortranarray(np.stack([Y, Y], axis=1))[:, :1],
    "series": pd.Series(Y, index=range(N, 0, -1)),
    "series, Int64": pd.Series(Y.astype(int), dtype="Int64"),
    "pandas": pd.DataFrame({"y": Y}),
    "polars series": pl.Series(Y),
    "polars": pl.DataFrame({"y": Y}),
    "torch": torch.asarray(Y),
    "torch, with gradient": torch.tensor(Y, requires_grad=True),
}


def fit(X, Y, tol=1e-6):
    """Patterns, solution, and predictions for X, all from the same form of the data."""
    patterns = sample_patterns(X, 20, random_state=0)
    solution = solve(CGReLU(X, Y, patterns, lam=LAM), tol=tol)
    return patterns, solution, solution.network().predict(X)


@pytest.fixture(scope="module")
def expected():
    return fit(X, Y)


def assert_same_answer(answer, expected, *, rtol, atol):
    patterns, solution, predictions = answer
    np.testing.assert_array_equal(patterns.mask, expected[0].mask)
    np.testing.assert_array_equal(patterns.gates, expected[0].gates)
    objective = expected[1].certificate.objective
    assert solution.certificate.objective == pytest.approx(objective, rel=rtol)
    np.testing.assert_allclose(predictions.reshape(N), expected[2], atol=atol)


@pytest.mark.parametrize("values", SAME_X.values(), ids=SAME_X)
def test_every_form_of_X_gives_the_same_answer(values, expected):
    assert_same_answer(fit(values, Y), expected, rtol=1e-6, atol=0.02)


@pytest.mark.parametrize("values", SINGLE_X.values(), ids=SINGLE_X)
def test_single_and_half_precision_are_certified_to_the_default_tolerance(values, expected):
    answer = fit(values, Y, tol=DEFAULT_TOL)
    assert answer[1].problem.operator.rows().dtype in (np.float32, torch.float32)
    assert answer[1].certificate.relative_gap <= DEFAULT_TOL
    assert_same_answer(answer, expected, rtol=DEFAULT_TOL, atol=0.3)


@pytest.mark.parametrize("values", SAME_Y.values(), ids=SAME_Y)
def test_every_form_of_Y_gives_the_same_answer(values, expected):
    answer = fit(X, values)
    assert_same_answer(answer, expected, rtol=1e-6, atol=0.02)
    assert answer[2].ndim == len(np.shape(values))
    network_objective = answer[1].network().objective(X, values, LAM)
    assert network_objective == pytest.approx(expected[1].certificate.objective, rel=1e-6)


@pytest.mark.parametrize("form", [np.asarray, np.ndarray.tolist, pd.DataFrame, torch.asarray])
def test_booleans_are_zeros_and_ones(form):
    booleans = X > 0
    answer = fit(form(booleans), Y > 0)
    numbers = fit(booleans.astype(float), (Y > 0).astype(float))
    assert_same_answer(answer, numbers, rtol=1e-6, atol=0.02)


def test_X_and_Y_may_come_from_different_libraries(expected):
    assert_same_answer(fit(X, torch.asarray(Y)), expected, rtol=1e-6, atol=0.02)
    assert_same_answer(fit(pl.DataFrame(X), pd.Series(Y)), expected, rtol=1e-6, atol=0.02)


@pytest.mark.parametrize(
    "lam",
    [
        1,
        np.int64(1),
        np.float32(0.5),
        np.array(0.5),
        np.array(1),
        Fraction(1, 4),
        torch.tensor(0.5),
    ],
    ids=lambda lam: f"{type(lam).__name__} {lam}",
)
def test_every_real_number_is_a_strength(lam):
    problem = CGReLU(X, Y, PATTERNS, lam=lam)
    assert type(problem.lam) is float
    assert problem.objective(WEIGHTS) == CGReLU(X, Y, PATTERNS, float(lam)).objective(WEIGHTS)


@pytest.mark.parametrize("form", [np.asarray, np.ndarray.tolist, torch.asarray, np.asfortranarray])
def test_warm_starts_of_every_form_are_taken(problem, form):
    optimum = solve(problem, tol=1e-9)
    again = solve(problem, warm_start=form(optimum.weights[:, :, 0]))
    assert again.n_iter == 0
    assert again.certificate.objective == pytest.approx(optimum.certificate.objective, rel=1e-9)


MASK_FORMS = {
    "list": PATTERNS.mask.tolist(),
    "integers": PATTERNS.mask.astype(int),
    "floats": PATTERNS.mask.astype(np.float32),
    "torch": torch.asarray(PATTERNS.mask.copy()),
    "pandas": pd.DataFrame(PATTERNS.mask),
    "polars": pl.DataFrame(PATTERNS.mask),
}


@pytest.mark.parametrize("mask", MASK_FORMS.values(), ids=MASK_FORMS)
def test_masks_of_every_form_are_taken(mask):
    np.testing.assert_array_equal(Patterns.from_mask(mask).mask, PATTERNS.mask)


MODIFIABLE = {
    "numpy": np.array,
    "Fortran order": lambda values: np.array(values, order="F"),
    "float32": lambda values: values.astype(np.float32),
    "torch": lambda values: torch.asarray(values.copy()),
    "pandas": lambda values: pd.DataFrame(values),
    "list": lambda values: values.tolist(),
}


@pytest.mark.parametrize("form", MODIFIABLE.values(), ids=MODIFIABLE)
@pytest.mark.parametrize("settings", [{}, {"normalize": True, "bias": True}], ids=["plain", "unit"])
def test_data_are_never_modified(form, settings):
    data, targets = form(X), form(Y[:, None])
    before = copy.deepcopy((data, targets))
    patterns = sample_patterns(data, 20, random_state=0, **settings)
    network = solve(CGReLU(data, targets, patterns, lam=LAM, **settings)).network()
    network.predict(data)
    network.objective(data, targets, LAM)
    network.to_convex(data)
    for now, then in zip((data, targets), before, strict=True):
        np.testing.assert_array_equal(np.asarray(now), np.asarray(then))
    if isinstance(data, np.ndarray):
        assert data.flags.writeable
        assert targets.flags.writeable


def test_gates_masks_and_weights_are_neither_modified_nor_locked(problem):
    gates, bias = PATTERNS.gates.copy(), np.zeros(len(PATTERNS))
    mask, weights, draws = PATTERNS.mask.copy(), WEIGHTS.copy(), np.ones((5, D), order="F")
    given = (gates, bias, mask, weights, draws)
    before = copy.deepcopy(given)
    Patterns.from_gates(X, gates, bias)
    Patterns.from_mask(mask, gates, bias)
    Patterns(mask, gates, bias).select([0, 1])
    sample_patterns(X, 5, gates=Drawn(draws), normalize=True)
    solve(problem, warm_start=weights)
    problem.objective(weights)
    problem.network(weights)
    GatedReLUNetwork.from_convex(PATTERNS, weights).balanced().to_convex(X)
    for now, then in zip(given, before, strict=True):
        np.testing.assert_array_equal(now, then)
        assert now.flags.writeable


def test_patterns_do_not_follow_later_changes_of_what_they_were_made_from():
    gates, mask = PATTERNS.gates.copy(), PATTERNS.mask.copy()
    made = (Patterns.from_gates(X, gates), Patterns.from_mask(mask, gates))
    gates[:], mask[:] = 7.0, False
    for patterns in made:
        np.testing.assert_array_equal(patterns.gates, PATTERNS.gates)
        np.testing.assert_array_equal(patterns.mask, PATTERNS.mask)
        with pytest.raises(ValueError, match="read-only"):
            patterns.gates[:] = 0


# ------------------------------------------------------------------------ extreme problems


def extreme_data():
    rng = np.random.default_rng(0)
    n, d = 15, 4
    X = rng.standard_normal((n, d))
    y = np.maximum(X @ rng.standard_normal(d), 0) + 0.3 * rng.standard_normal(n)
    return {
        "n=1": (X[:1], y[:1]),
        "d=1": (X[:, :1], y),
        "n=1, d=1": (X[:1, :1], y[:1]),
        "n<d": (rng.standard_normal((5, 12)), y[:5]),
        "constant column": (with_value(X, (slice(None), 1), 3.0), y),
        "zero column": (with_value(X, (slice(None), 1), 0.0), y),
        "all zero": (np.zeros((n, d)), y),
        "collinear columns": (with_value(X, (slice(None), 1), -2 * X[:, 0]), y),
        "duplicate rows": (np.vstack([X, X]), np.concatenate([y, y])),
        "duplicate rows, other targets": (np.vstack([X, X]), np.concatenate([y, 1 - y])),
        "zero target": (X, np.zeros(n)),
        "one zero target of three": (X, np.stack([y, np.zeros(n), y**2], axis=1)),
        "y * 1e6": (X, 1e6 * y),
        "X * 1e-6": (1e-6 * X, y),
        "columns of unlike units": (X * [1e3, 1.0, 1e-3, 1.0], y),
        "far from the origin": (X + 100, y),
    }


EXTREME = extreme_data()


def strength(problem, share):
    """A lam of the problem's own scale: a share of lambda_max, or of the curvature for l2."""
    if problem.penalty_name == "l2":
        size = np.sum(problem.operator.block_norms() ** 2) / problem.loss.Y.size
    else:
        size = lambda_max(problem)
    return share * (size or 1.0)


def extreme_problem(X, Y, penalty, bias, normalize, share):
    patterns = sample_patterns(X, 20, bias=bias, normalize=normalize, random_state=0)
    settings = {"penalty": penalty, "bias": bias, "normalize": normalize}
    problem = CGReLU(X, Y, patterns, lam=1.0, **settings)
    return problem.with_lam(strength(problem, share))


def objective_by_definition(problem, X, Y):
    """The formula of the documentation, for given weights, in plain NumPy."""

    def value(U):
        design = np.column_stack([X, np.ones(len(X))]) if problem.bias else X
        if problem.normalize:
            norms = np.linalg.norm(design, axis=0)
            design = design / np.where(norms > 0, norms, 1)
        fit = np.einsum("ji,jd,idk->jk", problem.patterns.mask, design, U)
        penalty = {
            "neuron": np.sqrt((U**2).sum(axis=1)).sum(),
            "feature": np.sqrt((U**2).sum(axis=(0, 2))).sum(),
            "l1": np.abs(U).sum(),
            "l2": 0.5 * (U**2).sum(),
        }[problem.penalty_name]
        targets = Y.reshape(len(Y), -1)
        return ((fit - targets) ** 2).sum() / (2 * targets.size) + problem.lam * penalty

    return value


def assert_certified(solution, X, Y):
    certificate = solution.certificate
    assert solution.converged
    assert certificate.relative_gap <= DEFAULT_TOL
    assert 0 <= certificate.lower_bound <= certificate.objective * (1 + 1e-12)
    assert certificate.objective <= certificate.zero_objective * (1 + 1e-12)
    by_definition = objective_by_definition(solution.problem, X, Y)(np.asarray(solution.weights))
    scale = certificate.zero_objective
    assert certificate.objective == pytest.approx(by_definition, rel=1e-9, abs=1e-12 * scale)
    assert np.isfinite(solution.network().predict(X)).all()


everywhere = [
    pytest.mark.parametrize(("X", "Y"), EXTREME.values(), ids=EXTREME),
    pytest.mark.parametrize("bias", [False, True], ids=["", "bias"]),
    pytest.mark.parametrize("normalize", [False, True], ids=["", "unit"]),
]


def on_extreme_problems(test):
    for mark in everywhere:
        test = mark(test)
    return test


@on_extreme_problems
@pytest.mark.parametrize("penalty", ["neuron", "feature", "l1", "l2"])
def test_extreme_problems_are_certified(X, Y, penalty, bias, normalize):
    problem = extreme_problem(X, Y, penalty, bias, normalize, share=0.1)
    solution = solve(problem)
    assert_certified(solution, X, Y)
    nothing_to_fit = not (Y.any() and problem.operator.rows().any())
    assert (solution.n_active == 0) == nothing_to_fit


@on_extreme_problems
@pytest.mark.parametrize("penalty", ["neuron", "none"])
def test_extreme_problems_without_a_penalty_are_certified(X, Y, penalty, bias, normalize):
    patterns = sample_patterns(X, 20, bias=bias, normalize=normalize, random_state=0)
    problem = CGReLU(X, Y, patterns, lam=0, penalty=penalty, bias=bias, normalize=normalize)
    # bounds allow for rounding, which columns of unlike units make large
    solution = solve(problem, tol=1e-3)
    certificate = solution.certificate
    assert solution.converged
    assert certificate.relative_gap <= 1e-3
    design = np.asarray(problem.operator.rows())
    M = (patterns.mask[:, :, None] * design[:, None, :]).reshape(len(X), -1)
    targets = Y.reshape(len(Y), -1)
    best = targets - M @ np.linalg.lstsq(M, targets, rcond=None)[0]
    least = (best**2).sum() / (2 * targets.size)
    assert certificate.objective == pytest.approx(
        least, rel=1e-4, abs=1e-8 * certificate.zero_objective
    )


@on_extreme_problems
@pytest.mark.parametrize("penalty", ["neuron", "feature", "l1"])
def test_from_lambda_max_on_the_zero_model_is_certified(X, Y, penalty, bias, normalize):
    solution = solve(extreme_problem(X, Y, penalty, bias, normalize, share=1 + 1e-9))
    assert_certified(solution, X, Y)
    assert solution.n_active == 0
    assert solution.certificate.objective == solution.certificate.zero_objective
    assert solution.certificate.relative_gap <= 1e-8
    network = solution.network()
    assert network.n_neurons == 0
    np.testing.assert_array_equal(network.predict(X), np.zeros_like(Y))


@pytest.mark.parametrize("penalty", ["neuron", "feature", "l1"])
def test_just_below_lambda_max_the_zero_model_is_not_optimal(penalty):
    X, Y = EXTREME["constant column"]
    solution = solve(extreme_problem(X, Y, penalty, False, False, share=0.999), tol=1e-9)
    assert solution.n_active > 0
    assert solution.certificate.objective < solution.certificate.zero_objective


@pytest.mark.parametrize("penalty", ["neuron", "feature", "l1"])
@pytest.mark.parametrize(
    ("of_X", "of_Y"), [(1e-6, 1.0), (1e6, 1.0), (1.0, 1e6), (1.0, 1e-6), (1e-6, 1e6)]
)
def test_the_units_of_the_data_do_not_matter(penalty, of_X, of_Y):
    """f is quadratic in Y, and U takes the inverse units of X: lam scales with X and with Y."""
    X, Y = EXTREME["constant column"]
    plain = extreme_problem(X, Y, penalty, bias=False, normalize=False, share=0.1)
    scaled = CGReLU(
        of_X * X,
        of_Y * Y,
        sample_patterns(of_X * X, 20, random_state=0),
        lam=plain.lam * of_X * of_Y,
        penalty=penalty,
    )
    answer, reference = solve(scaled, tol=1e-6), solve(plain, tol=1e-6)
    assert answer.certificate.objective == pytest.approx(
        of_Y**2 * reference.certificate.objective, rel=2e-6
    )


@pytest.mark.parametrize(("X", "Y"), EXTREME.values(), ids=EXTREME)
def test_extreme_problems_in_single_precision_are_certified(X, Y):
    problem = extreme_problem(X.astype(np.float32), Y, "neuron", False, False, share=0.1)
    solution = solve(problem)
    assert solution.converged
    assert solution.certificate.relative_gap <= DEFAULT_TOL
