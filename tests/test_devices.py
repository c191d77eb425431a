"""R-FISTA and the augmented Lagrangian method on devices, against NumPy and the independent oracle.

Devices are those of PyTorch's CPU and of array-api-strict. The second device of the latter refuses
every conversion to NumPy that is not asked for, and its arrays do not mix with others; another one
has no float64, like Apple's GPUs.
"""

from __future__ import annotations

import pickle

import array_api_strict
import numpy as np
import pytest
from click.testing import CliRunner
from scipy.sparse import csr_array

import cvxnn
from conftest import make_data, make_problem
from cvxnn.arrays import array_namespace, double, like, to_numpy, widest, with_rows_set
from cvxnn.cli import main
from cvxnn.devices import Device, find_device
from cvxnn.operators import DeviceMatrix
from cvxnn.penalties import L1
from cvxnn.solvers.devices import OnDevice
from extras import needs, optional, required

torch = optional("torch")


def strict(name):
    """A device of array-api-strict."""
    try:
        its = array_api_strict.Device(name)
    except ValueError:
        pytest.skip(f"this array-api-strict has no device {name!r}")
    ones = array_api_strict.ones(1, dtype=array_api_strict.float32, device=its)
    return Device(f"strict {name}", ones)


@pytest.fixture(params=["device1", pytest.param("torch", marks=needs("torch"))])
def device(request):
    return find_device("cpu") if request.param == "torch" else strict(request.param)


@pytest.fixture(params=["device1", "no_float64", pytest.param("torch", marks=needs("torch"))])
def any_device(request):
    return find_device("cpu") if request.param == "torch" else strict(request.param)


def losses_problem(cls, loss, *, output_bias=False, lam=0.02):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((40, 3)), rng.standard_normal((40, 2))
    if loss == "logistic":
        Y = np.sign(Y)
    if loss == "softmax":
        Y = np.eye(2)[(Y[:, 0] > 0).astype(int)]
    patterns = cvxnn.sample_patterns(X, 6, random_state=0)
    return cls(X, Y, patterns, lam=lam, loss=loss, output_bias=output_bias)


def check_certificate(problem, solution, tol):
    """What a run on a device hands back is as if there had been none."""
    assert solution.converged
    assert solution.problem is problem
    parts = solution.weights if isinstance(solution.weights, tuple) else (solution.weights,)
    assert all(type(part) is np.ndarray for part in (*parts, solution.dual))
    assert solution.certificate.relative_gap <= tol
    assert solution.certificate.proven
    again = cvxnn.certify(problem, solution.weights, solution.dual)
    assert again.objective == solution.certificate.objective
    # at lam = 0 the dual point is projected once more, which rounds
    assert again.lower_bound >= solution.certificate.lower_bound * (1 - 1e-12)


@pytest.mark.parametrize("penalty", ["neuron", "feature", "l1", "l2", "none"])
def test_rfista_ends_where_it_does_in_numpy(penalty, device):
    problem = make_problem(40, 2, p=6, C=2, penalty="neuron")
    problem = cvxnn.CGReLU(
        problem.operator.rows(),
        problem.loss.Y,
        problem.patterns,
        lam=0.0 if penalty == "none" else 0.02,
        penalty=penalty,
    )
    expected = cvxnn.solve(problem, "rfista", tol=1e-8).certificate
    for tol in (1e-7, 1e-4):  # in double and in single precision
        solution = cvxnn.solve(problem, device=device, tol=tol)
        assert solution.solver.name == "rfista"
        check_certificate(problem, solution, tol)
        assert solution.certificate.objective == pytest.approx(expected.objective, rel=2 * tol)
        assert solution.certificate.lower_bound <= expected.objective


@pytest.mark.parametrize("output_bias", [False, True])
@pytest.mark.parametrize("loss", ["squared", "huber", "logistic", "softmax"])
def test_rfista_with_every_loss(loss, output_bias, any_device):
    problem = losses_problem(cvxnn.CGReLU, loss, output_bias=output_bias)
    optimum = cvxnn.solve(problem, tol=1e-9).certificate
    for tol in (1e-6, 1e-4) if any_device.has_float64 else (1e-4,):
        solution = cvxnn.solve(problem, device=any_device, tol=tol)
        check_certificate(problem, solution, tol)
        assert solution.certificate.objective >= optimum.lower_bound
        assert solution.certificate.lower_bound <= optimum.objective


@pytest.mark.parametrize("loss", ["squared", "logistic", "softmax"])
def test_the_augmented_lagrangian_method_with_cones(loss, any_device):
    problem = losses_problem(cvxnn.CReLU, loss, output_bias=True)
    optimum = cvxnn.solve(problem, tol=1e-9).certificate
    tol = 1e-3 if loss == "squared" else 5e-2
    solution = cvxnn.solve(problem, device=any_device, tol=tol)
    assert solution.solver.name == "al"
    check_certificate(problem, solution, tol)
    assert solution.certificate.max_violation < 1e-12
    assert solution.certificate.objective >= optimum.lower_bound
    assert solution.certificate.lower_bound <= optimum.objective


def test_the_augmented_lagrangian_method_in_double_precision(device):
    problem = losses_problem(cvxnn.CReLU, "squared", output_bias=True)
    check_certificate(problem, cvxnn.solve(problem, "al", device=device, tol=5e-5), 5e-5)


def test_the_oracle_lies_between_the_bounds(any_device):
    required("cvxpy")
    for cls in (cvxnn.CGReLU, cvxnn.CReLU):
        problem = losses_problem(cls, "squared", output_bias=True)
        exact = cvxnn.solve(problem, "cvxpy", tol=1e-6).certificate.objective
        found = cvxnn.solve(problem, device=any_device, tol=1e-3).certificate
        assert found.lower_bound <= exact * (1 + 1e-6)
        assert found.objective >= exact * (1 - 1e-6)


def test_float32_data_stay_in_float32_and_are_certified_as_they_are(any_device):
    problem = make_problem(60, 5, p=30, share=0.05, dtype=np.float32)
    solution = cvxnn.solve(problem, device=any_device)
    check_certificate(problem, solution, 1e-4)
    assert solution.weights.dtype == np.float32


def test_a_problem_of_arrays_on_a_device_is_certified_in_numpy():
    its = strict("device1").sample.device
    plain = make_problem(30, 3, p=8)
    X, Y = (
        array_api_strict.asarray(np.asarray(part), device=its)
        for part in (plain.operator.rows(), plain.loss.Y)
    )
    problem = cvxnn.CGReLU(X, Y, plain.patterns, lam=plain.lam, output_bias=True)
    solution = cvxnn.solve(problem, tol=1e-8)
    assert solution.converged
    assert solution.weights.device == solution.dual.device == its
    same = cvxnn.CGReLU(to_numpy(X), to_numpy(Y), plain.patterns, lam=plain.lam, output_bias=True)
    weights, dual = to_numpy(solution.weights), to_numpy(solution.dual)
    assert cvxnn.certify(same, weights, dual) == cvxnn.certify(problem, solution.weights, dual)
    assert cvxnn.lambda_max(problem) == pytest.approx(cvxnn.lambda_max(same))
    moved = cvxnn.solve(problem, device=strict("device2"), tol=1e-6)
    assert moved.converged
    assert moved.weights.device == its


def test_arrays_on_a_device_without_float64_are_refused_as_data():
    its = strict("no_float64").sample.device
    X = array_api_strict.asarray(np.ones((3, 2), np.float32), device=its)
    patterns = cvxnn.Patterns.from_mask(np.ones((3, 1), bool))
    with pytest.raises(TypeError, match=r"has no float64.*pass X as a NumPy array"):
        cvxnn.CGReLU(X, [1, 2, 3], patterns, lam=0.1)


class OwnLoss(cvxnn.losses.Squared):
    """The squared loss in words of the user's own."""

    class bound(cvxnn.losses.SquaredLoss):
        def value(self, Z):
            return super().value(Z)


class DeclaredLoss(cvxnn.losses.Squared):
    class bound(cvxnn.losses.SquaredLoss):
        any_device = True

        def value(self, Z):
            return super().value(Z)


class OwnPenalty(L1):
    def value(self, U):
        return super().value(U)


def test_a_loss_of_ones_own_says_whether_it_works_there(device):
    problem = make_problem(loss=DeclaredLoss(), penalty="l1")
    assert cvxnn.solve(problem, device=device).converged
    assert make_problem(loss=OwnLoss(), output_bias=True).loss.any_device is False


SPARSE = csr_array(make_problem().operator.rows())
REFUSED = {
    "newton": (lambda: make_problem(), {"solver": "newton"}, "'newton'.*C-GReLU.*use 'rfista'"),
    "rfista": (
        lambda: cvxnn.CReLU.from_gated(make_problem()),
        {"solver": "rfista"},
        "'rfista'.*C-ReLU.*use 'al'",
    ),
    "direct": (lambda: make_problem(penalty="l2"), {"solver": "direct"}, "use 'rfista'"),
    "loss": (
        lambda: make_problem(loss=OwnLoss()),
        {},
        "loss 'OwnLoss' is not offered.*any_device.*use one of: squared, huber, logistic, softmax",
    ),
    "penalty": (
        lambda: make_problem(penalty=OwnPenalty()),
        {},
        "penalty 'OwnPenalty' is not offered.*use one of: neuron",
    ),
    "sparse": (
        lambda: cvxnn.CGReLU(SPARSE, np.ones(30), make_problem().patterns, lam=0.1),
        {},
        "sparse data are not offered.*X.toarray",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_offered_is_named_with_the_alternatives(case):
    make, options, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        cvxnn.solve(make(), device=strict("device1"), **options)


def test_rows_in_files_are_not_offered():
    problem = make_problem()
    X = cvxnn.StoredRows.from_array(problem.operator.rows())
    stored = cvxnn.CGReLU(X, problem.loss.Y, problem.patterns, lam=problem.lam)
    with pytest.raises(ValueError, match=r"rows in a file are not offered.*X\[:\]"):
        cvxnn.solve(stored, device=strict("device1"))


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("gpu", ValueError, "unknown device 'gpu'; PyTorch's names are 'cpu', 'cuda'"),
        ("meta", ValueError, "there is no device 'meta' that works.*there is 'cpu'"),
        (3, TypeError, "device must be the name of a device of PyTorch.*int"),
    ],
)
@needs("torch")
def test_devices_that_are_not_there(name, error, message):
    with pytest.raises(error, match=message):
        cvxnn.solve(make_problem(), device=name)


@needs("torch")
def test_no_cuda():
    if torch.cuda.is_available():
        pytest.skip("there is one")
    for name in ("cuda", "cuda:1", torch.device("cuda")):
        with pytest.raises(ValueError, match=r"no device 'cuda.*finds none.*`device` out"):
            cvxnn.solve(make_problem(), device=name)
    assert find_device(torch.device("cpu")) == find_device("cpu")


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(
        ImportError, match=r"device='cuda' needs PyTorch: pip install 'cvxnn\[torch\]'"
    ):
        cvxnn.solve(make_problem(), device="cuda")


def test_the_data_are_put_there_once_for_a_whole_path(monkeypatch):
    device, sizes = strict("device1"), []
    put = Device.put
    monkeypatch.setattr(Device, "put", lambda self, x: sizes.append(x.shape) or put(self, x))
    problem = make_problem()
    found = cvxnn.path(problem, 4, tol=1e-4, device=device)
    assert [solution.solver.name for solution in found] == ["rfista"] * 4
    assert sizes == [(30, 4), (30, 1)]
    expected = cvxnn.path(problem, 4, tol=1e-6)
    np.testing.assert_allclose(found.objectives, expected.objectives, rtol=2e-4)


def test_a_problem_goes_to_other_processes_without_its_copies():
    problem = losses_problem(cvxnn.CReLU, "squared")
    before = len(pickle.dumps(problem))
    solution = cvxnn.solve(problem, device=strict("device1"), tol=1e-2)
    assert b"array_api_strict" not in pickle.dumps(problem)
    assert len(pickle.dumps(problem)) < 3 * before  # less than another copy of everything
    assert type(solution.state.multipliers) is np.ndarray
    assert b"array_api_strict" not in pickle.dumps(solution.start())


def test_runs_start_from_each_other_wherever_they_were(device):
    for cls in (cvxnn.CGReLU, cvxnn.CReLU):
        problem = losses_problem(cls, "squared", output_bias=True)
        solver = "rfista" if cls is cvxnn.CGReLU else "al"
        there = cvxnn.solve(problem, solver, device=device, tol=1e-3)
        here = cvxnn.solve(problem, solver, tol=1e-3, warm_start=there)
        again = cvxnn.solve(problem, solver, tol=1e-3, device=device, warm_start=here)
        assert here.n_iter <= 1
        assert again.n_iter <= 1


@pytest.mark.parametrize("back", [False, True])
def test_a_run_that_was_stopped_goes_on_anywhere(tmp_path, device, back):
    problem = make_problem()
    first, second = ({"device": device}, {}) if back else ({}, {"device": device})
    file = {"checkpoint": tmp_path / "run", "tol": 1e-7}
    cvxnn.solve(problem, "rfista", max_iter=20, on_failure="ignore", **file, **first)
    solution = cvxnn.solve(problem, "rfista", **file, **second)
    assert solution.converged
    assert [record.n_iter for record in solution.history[:22]] == list(range(22))
    whole = cvxnn.solve(problem, "rfista", tol=1e-7, **first)
    assert solution.n_iter == pytest.approx(whole.n_iter, abs=20)


def test_the_published_rule_ends_a_run(device):
    problem = make_problem()
    solution = cvxnn.solve(problem, stop="paper", device=device, tol=1e-5)
    expected = cvxnn.solve(problem, "rfista", stop="paper", tol=1e-5)
    assert solution.converged
    assert solution.n_iter == pytest.approx(expected.n_iter, abs=2)
    assert solution.certificate.objective == pytest.approx(expected.certificate.objective)


class StuckInSingle(cvxnn.RFISTA):
    """R-FISTA that finds no step in single precision after a while."""

    def iterates(self, problem, *args, **kwargs):
        for k, iterate in enumerate(super().iterates(problem, *args, **kwargs)):
            if k > 5 and "float32" in str(problem.operator.dtype):
                raise cvxnn.solvers.base.StalledError("single precision")
            yield iterate


def test_a_run_that_is_stuck_in_single_precision_goes_on_in_double(device):
    problem = make_problem()
    solution = cvxnn.solve(problem, StuckInSingle(), device=device)
    assert solution.converged
    gaps = [record.relative_gap for record in solution.history]
    assert len(gaps) > 8
    assert gaps[6] == pytest.approx(gaps[5], rel=0.5)  # from there, not from the beginning
    single = make_problem(dtype=np.float32)
    with pytest.warns(cvxnn.ConvergenceWarning, match="no further progress"):
        cvxnn.solve(single, StuckInSingle(), device=device)


def test_a_time_limit_keeps_back_what_a_certificate_takes(monkeypatch):
    problem = make_problem()
    seen = []
    monkeypatch.setattr(
        "cvxnn.solvers.driver.time_a_pass",
        lambda posed: seen.append(posed) or cvxnn.certificates.time_a_pass(posed),
    )
    for limit in (None, 60.0):
        cvxnn.solve(problem, device=strict("device1"), max_seconds=limit)
    assert seen == [problem]


def test_nothing_is_lost_when_a_callback_stops_a_run(device):
    problem = losses_problem(cvxnn.CReLU, "squared")
    solution = cvxnn.solve(
        problem, device=device, tol=1e-9, callback=lambda progress: progress.relative_gap < 0.5
    )
    assert solution.status == "stopped"
    assert type(solution.weights[0]) is np.ndarray
    assert solution.certificate.relative_gap < 0.5


# ---- the pieces


@pytest.mark.parametrize("cache_bytes", [0, 2**20])
def test_products_with_patterns_as_octets_and_as_numbers(any_device, cache_bytes, monkeypatch):
    monkeypatch.setattr("cvxnn.operators.devices._BLOCK", 100)
    rng = np.random.default_rng(0)
    X, mask = rng.standard_normal((37, 3)), rng.random((37, 11)) > 0.5
    M = mask[:, :, None] * X[:, None, :]
    operator = DeviceMatrix(any_device.put(X), mask, cache_bytes=cache_bytes)
    some = np.array([7, 2])
    assert len(list(operator._row_blocks(2))) > 2
    precise = 1e-12 if any_device.has_float64 else 1e-5
    for its, part in (
        (operator, M),
        (operator.select(some), M[:, some]),
        (operator.in_double(), M),
    ):
        U, R = rng.standard_normal((part.shape[1], 3, 2)), rng.standard_normal((37, 2))
        forward, adjoint = its.forward(its.like(U)), its.adjoint(its.like(R))
        expected = np.einsum("npd,pdc->nc", part, U), np.einsum("npd,nc->pdc", part, R)
        np.testing.assert_allclose(to_numpy(forward), expected[0], atol=precise)
        np.testing.assert_allclose(to_numpy(adjoint), expected[1], atol=precise)


def test_arrays_go_there_and_back(any_device):
    values = np.linspace(0, 1, 6).reshape(3, 2)
    there = any_device.put(values)
    wide = np.float64 if any_device.has_float64 else np.float32
    assert to_numpy(there).dtype == to_numpy(double(there)).dtype == wide
    np.testing.assert_array_equal(to_numpy(there), values.astype(wide))
    assert to_numpy(any_device.put(values.astype(np.float32))).dtype == np.float32
    assert widest(any_device.sample) == there.dtype
    assert widest(values) == np.float64


def test_rows_are_set_like_numpy_does(any_device):
    x, new = np.arange(8.0).reshape(4, 2), -np.ones((2, 2))
    for chosen in ([True, False, False, True], [False] * 4, [True] * 4):
        rows = np.flatnonzero(chosen)
        values = np.resize(new, (len(rows), 2))
        expected = with_rows_set(x, rows, np.array(chosen), values)
        there = any_device.put(x)
        found = with_rows_set(
            there,
            like(there, rows, array_namespace(there).int64),
            any_device.put(np.array(chosen, dtype=float)) > 0,
            any_device.put(values),
        )
        np.testing.assert_array_equal(to_numpy(found), expected)
        np.testing.assert_array_equal(x, np.arange(8.0).reshape(4, 2))


def test_a_method_on_a_device_has_no_more_than_the_method():
    device = strict("device1")
    assert hasattr(OnDevice(cvxnn.RFISTA(), device), "resumed")
    assert not hasattr(OnDevice(cvxnn.AL(), device), "resumed")


# ---- users


@needs("torch")
@pytest.mark.parametrize("name", ["GatedReLUClassifier", "GatedReLURegressor", "ReLURegressor"])
def test_estimators_are_those_without_a_device(name):
    X, y = make_data(60, 3)
    y = y > 0 if "Classifier" in name else y
    settings = {"n_patterns": 8, "alpha": 0.05, "tol": 1e-3}
    model = getattr(cvxnn, name)(device="cpu", **settings).fit(X, y)
    expected = getattr(cvxnn, name)(**settings | {"tol": 1e-6}).fit(X, y)
    assert model.converged_
    assert model.certificate_.objective >= expected.certificate_.lower_bound
    assert model.certificate_.lower_bound <= expected.certificate_.objective
    assert type(model.network_) is type(expected.network_)
    content = pickle.dumps(model)
    assert b"torch" not in content
    np.testing.assert_array_equal(pickle.loads(content).predict(X), model.predict(X))


@needs("torch")
def test_folds_and_warm_starts_on_a_device():
    X, y = make_data(60, 3)
    settings = {"n_patterns": 4, "tol": 1e-2, "device": "cpu"}
    chosen = cvxnn.GatedReLURegressorCV(n_alphas=2, eps=0.1, cv=2, **settings).fit(X, y)
    assert chosen.converged_
    assert b"torch" not in pickle.dumps(chosen)
    model = cvxnn.ReLURegressor(alpha=0.1, warm_start=True, **settings).fit(X, y)
    assert b"torch" not in pickle.dumps(model)
    assert pickle.loads(pickle.dumps(model)).fit(X, y).n_iter_ <= 1


def test_estimators_refuse_before_any_work():
    X, y = make_data(20, 2)
    with pytest.raises(ValueError, match="device='cpu' is for patterns='sample'"):
        required("torch") and cvxnn.ReLURegressor(device="cpu", patterns="generate").fit(X, y)
    with pytest.raises((ValueError, ImportError), match="device"):
        cvxnn.GatedReLURegressorCV(device="gpu").fit(X, y)


@needs("torch")
def test_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = make_data(40, 2)
    rows = "\n".join(f"{a},{b},{c}" for (a, b), c in zip(X, y, strict=True))
    (tmp_path / "data.csv").write_text(f"a,b,y\n{rows}\n")
    few = ["--target", "y", "--model", "gated", "--patterns", "4", "--tol", "1e-2"]
    alone = ["fit", "data.csv", *few, "--alpha", "0.05"]
    refused = CliRunner().invoke(main, [*alone, "--device", "gpu"])
    assert refused.exit_code == 2
    assert "unknown device 'gpu'; PyTorch's names are" in " ".join(refused.output.split())
    done = CliRunner().invoke(main, [*alone, "--device", "cpu"])
    assert done.exit_code == 0, done.output
    model = cvxnn.load("model.cvxnn")
    assert model.estimator.device is None  # others may not have it
    assert CliRunner().invoke(main, ["certify", "model.cvxnn", "data.csv"]).exit_code == 0
    points = ["path", "data.csv", *few, "--points", "2", "--device", "cpu"]
    assert CliRunner().invoke(main, points).exit_code == 0
