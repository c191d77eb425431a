"""A generator of forgeries: whatever is altered in a solution or in a model file, what is confirmed
afterwards is true of the numbers that stand there.

A forger alters something and claims what was claimed before. Either the certificate is refused, or
the altered numbers prove the claim as well; a second opinion, in floats, says when that can be.
"""

import copy
import dataclasses
import os
import pickle
import subprocess
import sys
import textwrap
import warnings
from functools import cache

import numpy as np
import pytest

import cvxnn
from conftest import make_data
from cvxnn import modelfile
from cvxnn.bits import Bits
from cvxnn.certificates import Multipliers
from cvxnn.estimators.rows import Scaling
from cvxnn.networks import NETWORKS
from cvxnn.tables.model import Model
from cvxnn.tables.table import Table
from cvxnn.verification import dual_points, programs

MARGIN = 2.0**-46


def honest(solution):
    """The solution with claims that are true and tight, its multipliers, and no caveats: weights
    outside their cones by rounding are shrunk towards the interior until they are inside."""
    problem = solution.problem
    if problem.kind == "C-ReLU":
        weights = inside(problem, solution.weights)
        if solution.multipliers is None:
            point = dual_points._Dual.of(programs.Program.of(problem), np.asarray(solution.dual))
            multipliers, _ = dual_points._own_multipliers(point)
            solution = dataclasses.replace(solution, multipliers=multipliers)
        solution = dataclasses.replace(solution, weights=weights)
    claim = dataclasses.replace(solution.certificate, caveats=())
    found = cvxnn.verify(dataclasses.replace(solution, certificate=claim))
    claim = dataclasses.replace(
        claim,
        objective=found.objective * (1 + MARGIN),
        lower_bound=found.lower_bound * (1 - MARGIN),
        zero_objective=found.zero_objective,
        max_violation=0.0,
        network_objective=None
        if found.network_objective is None
        else found.network_objective * (1 + MARGIN),
    )
    return dataclasses.replace(solution, certificate=claim)


def inside(problem, weights):
    """Weights plus a little of the gate of their pattern, which is an inner point."""
    gates = problem.patterns.gates.T
    if problem.bias:
        gates = np.column_stack([gates, problem.patterns.gate_bias])
    gates = gates / np.linalg.norm(gates, axis=1, keepdims=True)
    parts = []
    for part in weights:
        size = np.linalg.norm(part, axis=1, keepdims=True)
        parts.append(part + 1e-9 * size * gates[:, :, None])
    return tuple(parts)


LOSSES = ("squared", "huber", "logistic", "softmax")


@cache
def solved(loss, kind, output_bias=True):
    X, Y = make_data(50, 3, C=3)
    if loss == "logistic":
        Y = np.where(np.median(Y) < Y, 1.0, -1.0)
    elif loss == "softmax":
        Y = np.eye(3)[Y.argmax(axis=1)]
    cls = {"gated": cvxnn.CGReLU, "relu": cvxnn.CReLU}[kind]
    problem = cls(
        X,
        Y,
        cvxnn.sample_patterns(X, 8, random_state=0),
        lam=1.0,
        loss=loss,
        output_bias=output_bias,
        sample_weight=np.random.default_rng(0).uniform(0.2, 3, 50),
    )
    problem = problem.with_lam(0.05 * cvxnn.lambda_max(problem))
    return honest(cvxnn.solve(problem, tol=1e-6))


def other_problem(solution, change):
    """The solution of a problem in which something has been altered."""
    problem = copy.deepcopy(solution.problem)
    change(problem)
    return dataclasses.replace(solution, problem=problem)


def with_row_weights(factors):
    def change(problem):
        weight = np.array(problem.loss.row_weight) * factors[:, None]
        weight /= weight.sum() * (1 if problem.loss_name == "softmax" else 3)
        for part in (problem.loss, getattr(problem.loss, "base", problem.loss)):
            part.row_weight = weight

    return lambda s: other_problem(s, change)


def with_mask(make):
    def change(problem):
        object.__setattr__(problem.patterns, "bits", Bits.of(make(problem.patterns.mask.copy())))

    return lambda s: other_problem(s, change)


def with_lam(factor):
    return lambda s: dataclasses.replace(s, problem=s.problem.with_lam(factor * s.problem.lam))


def with_dual(make):
    return lambda s: dataclasses.replace(s, dual=make(np.array(s.dual)))


def with_weights(make):
    def change(s):
        pair = s.weights if isinstance(s.weights, tuple) else (s.weights,)
        made = tuple(make(np.array(part)) for part in pair)
        return dataclasses.replace(s, weights=made if isinstance(s.weights, tuple) else made[0])

    return change


def with_claims(**make):
    def change(s):
        claims = {name: f(getattr(s.certificate, name)) for name, f in make.items()}
        return dataclasses.replace(s, certificate=dataclasses.replace(s.certificate, **claims))

    return change


def with_multipliers(make):
    def change(s):
        return dataclasses.replace(s, multipliers=Multipliers(*make(*s.multipliers)))

    return change


def with_bias(make):
    return lambda s: dataclasses.replace(s, output_bias=make(np.zeros(3)))


rng = np.random.default_rng(1)
FACTORS = np.ones(50)
FACTORS[7] = 1.01
FORGERIES = {
    "objective lowered": with_claims(objective=lambda v: v * (1 - 1e-13)),
    "lower bound raised": with_claims(lower_bound=lambda v: v * (1 + 1e-13)),
    "bounds exchanged": with_claims(objective=lambda v: v * 0.99, lower_bound=lambda v: v * 0.99),
    "objective is infinite below": with_claims(objective=lambda v: -np.inf),
    "bound is infinite": with_claims(lower_bound=lambda v: np.inf),
    "objective is NaN": with_claims(objective=lambda v: np.nan),
    "bound is NaN": with_claims(lower_bound=lambda v: np.nan),
    "zero objective": with_claims(zero_objective=lambda v: v * 1.001),
    "scope": with_claims(scope=lambda v: v.replace("8", "800")),
    "radius": with_claims(radius=lambda v: 0.0),
    "dual is noise": with_dual(lambda d: rng.standard_normal(d.shape) * np.abs(d).mean()),
    "dual is longer": with_dual(lambda d: 1.001 * d),
    "dual is turned": with_dual(lambda d: -d),
    "dual is zero": with_dual(np.zeros_like),
    "dual of other rows": with_dual(lambda d: np.roll(d, 1, axis=0)),
    "dual of other classes": with_dual(lambda d: np.roll(d, 1, axis=1)),
    "dual is shifted": with_dual(lambda d: d + 1e-3 * np.abs(d).mean()),
    "dual is huge": with_dual(lambda d: d * 1e300),
    "dual is tiny": with_dual(lambda d: d * 1e-300),
    "an entry is huge": with_dual(lambda d: np.where(np.arange(len(d))[:, None] == 3, 1e6 * d, d)),
    "weights are shorter": with_weights(lambda U: 0.99 * U),
    "weights are longer": with_weights(lambda U: 1.01 * U),
    "weights are turned": with_weights(lambda U: -U),
    "weights are zero": with_weights(np.zeros_like),
    "weights of other patterns": with_weights(lambda U: np.roll(U, 1, axis=0)),
    "a weight is huge": with_weights(lambda U: np.where(np.abs(U).max() == np.abs(U), 1e5 * U, U)),
    "row weights": with_row_weights(FACTORS),
    "masks inverted": with_mask(lambda m: ~m),
    "a bit of the mask": with_mask(lambda m: m ^ (np.arange(m.size).reshape(m.shape) == 5)),
    "lam raised": with_lam(1.01),
    "lam lowered": with_lam(0.99),
    "output bias": with_bias(lambda b: b + 1e5),
    "an output bias a little off": with_bias(lambda b: b + 0.3),
    "multipliers are negative": with_multipliers(lambda b, r, v: (b, r, -v)),
    "multipliers are huge": with_multipliers(lambda b, r, v: (b, r, 1e6 * v)),
    "multipliers are gone": with_multipliers(lambda b, r, v: (b[:0], r[:0], v[:0])),
    "multipliers of other rows": with_multipliers(lambda b, r, v: (b, (r + 1) % 50, v)),
    "multipliers of other blocks": with_multipliers(lambda b, r, v: ((b + 1) % 48, r, v)),
    "one multiplier is a little larger": with_multipliers(
        lambda b, r, v: (b, r, np.where(np.arange(len(v)) == 0, 1.01 * v, v))
    ),
}


def believable(forged):
    """Whether floats find the claims of a forged solution true, up to rounding."""
    program, claim = programs.Program.of(forged.problem), forged.certificate
    parts = forged.weights if isinstance(forged.weights, tuple) else (forged.weights,)
    U = parts[0] - (parts[1] if len(parts) > 1 else 0.0)
    Z = np.einsum("ni,nd,idk->nk", program.mask, program.X, U)
    if program.output_bias:
        bias = forged.output_bias
        Z = Z + (programs._best_bias(program, Z) if bias is None else bias)
    R, w = Z - program.Y, program.weight[:, None]
    with np.errstate(over="ignore"):
        terms = {
            "squared": lambda: R**2 / 2,
            "huber": lambda: np.where(
                np.abs(R) <= program.delta,
                R**2 / 2,
                program.delta * (np.abs(R) - program.delta / 2),
            ),
            "logistic": lambda: np.logaddexp(0, -program.Y * Z),
            "softmax": lambda: program.Y * (np.logaddexp.reduce(Z, axis=1, keepdims=True) - Z),
        }[program.loss]()
    value = np.sum(w * terms) + program.lam * sum(np.linalg.norm(p, axis=1).sum() for p in parts)
    feasible = all(
        np.all(np.where(program.mask[:, [i]], 1, -1) * (program.X @ part[i]) >= -1e-12)
        for part in parts
        for i in range(len(part))
        if program.cones
    )
    best = cvxnn.solve(forged.problem, tol=1e-8, on_failure="ignore").certificate
    return (
        feasible
        and value <= claim.objective * (1 + 1e-9)
        and claim.lower_bound <= best.objective * (1 + 1e-9)
    )


@pytest.mark.parametrize("kind", ["gated", "relu"])
@pytest.mark.parametrize("loss", LOSSES)
def test_honest_ones_are_confirmed(loss, kind):
    for output_bias in (False, True):
        found = cvxnn.verify(solved(loss, kind, output_bias))
        assert found.agrees, found


# What alters a dual point, or multipliers, may leave a bound that is as good, but never refutes it.
MAY_STAND = ("multiplier", "dual", "an entry", "mask", "lam", "bias")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["gated", "relu"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", FORGERIES)
def test_forgeries_are_refused(name, loss, kind):
    if "multiplier" in name and kind == "gated":
        pytest.skip("gated networks have no cones")
    run = solved(loss, kind)
    forged = FORGERIES[name](run)
    found = cvxnn.verify(forged)
    if found.agrees:
        assert name.startswith(MAY_STAND) or "bit" in name or "multiplier" in name
        assert believable(forged)
    else:
        assert "NOT confirmed" in str(found)
    if forged.problem is not run.problem:
        run = cvxnn.solve(forged.problem, tol=1e-4, on_failure="ignore")
    assert found.lower_bound <= run.certificate.objective


# ------------------------------------------------------------------------------- model files


@cache
def table(kind="numbers"):
    generator = np.random.default_rng(0)
    X = generator.standard_normal((60, 3))
    value = np.abs(X[:, 0]) - X[:, 1] + 0.3 * generator.standard_normal(60)
    target = {
        "numbers": 10 + 3 * value,
        "large numbers": 1.7e9 + value,
        "classes": np.where(value > np.median(value), "yes", "no").astype(object),
    }[kind]
    return Table({**{name: X[:, k] for k, name in enumerate("abc")}, "y": target}, "data.csv")


@cache
def model(kind, network="relu"):
    fitted = Model.fit(table(kind), "y", kind=network, alpha=0.02, n_patterns=12, holdout=0.0)
    posed = fitted._posed(table(kind))
    multipliers = fitted.multipliers
    if network == "relu" and multipliers is None:
        multipliers, _ = dual_points._own_multipliers(
            dual_points._Dual.of(posed.program, fitted.dual)
        )
    fitted = dataclasses.replace(fitted, multipliers=multipliers)
    bound = fitted.verify(table(kind)).lower_bound * (1 - MARGIN)
    fitted.estimator.certificate_ = dataclasses.replace(fitted.certificate, lower_bound=bound)
    return fitted


CASES = [(k, n) for k in ("numbers", "classes", "large numbers") for n in ("relu", "gated")]


def altered(fitted, path, change):
    fitted.save(path)
    content = modelfile.read(path, NETWORKS)
    description, arrays = copy.deepcopy(content.description), dict(content.arrays)
    network = change(content.network, description, arrays) or content.network
    modelfile.write(modelfile.Content(network, description, arrays), path)
    return Model.load(path)


def array(name, make):
    def change(network, description, arrays):
        arrays[name] = make(arrays[name].copy())

    return change


def layer(name, make):
    return lambda network, d, a: dataclasses.replace(
        network, **{name: make(getattr(network, name))}
    )


def claim(**factors):
    def change(network, description, arrays):
        for name, factor in factors.items():
            description["certificate"][name] *= factor

    return change


def first_changed(v):
    v[0] *= 1.001
    return v


FILE_FORGERIES = {
    "objective": claim(objective=1 - 1e-12),
    "lower bound": claim(lower_bound=1 + 1e-12),
    "zero objective": claim(zero_objective=1.01),
    "row weights": array("row_weight", first_changed),
    "row weights by half": array("row_weight", lambda v: v / 2),
    "column means": array("column_mean", lambda v: v + 1e-3),
    "column spreads": array("column_spread", lambda v: v * 1.001),
    "target spread": array("target_spread", lambda v: v * 1.001),
    "target mean": array("target_mean", lambda v: v + 1e-3 * np.abs(v) + 1e-3),
    "dual": array("dual", lambda v: np.roll(v, 1, axis=0)),
    "mask": array("mask", lambda v: v ^ 255),
    "output bias": layer("b2", lambda b: b + 1e5),
    "output bias, a little": layer("b2", lambda b: b * (1 + 1e-3) + 1e-3),
    "first layer": layer("W1", lambda W: W * 1.01),
    "hidden bias": layer("b1", lambda b: b + 0.05),
    "second layer": layer("W2", lambda W: W * 0.99),
    "alpha": lambda n, d, a: d["fitted"].update(alpha=d["fitted"]["alpha"] * 1.01),
}


@pytest.mark.parametrize(("kind", "network"), CASES)
def test_honest_files_are_confirmed(kind, network, tmp_path):
    fitted = altered(model(kind, network), tmp_path / "m", lambda *parts: None)
    assert fitted.numbers is not None
    assert (fitted.multipliers is None) == (network == "gated")
    found = fitted.verify(table(kind))
    assert found.agrees, found


@pytest.mark.parametrize(("kind", "network"), CASES)
@pytest.mark.parametrize("name", FILE_FORGERIES)
def test_forged_files_are_refused(name, kind, network, tmp_path):
    fitted = altered(model(kind, network), tmp_path / "m", FILE_FORGERIES[name])
    assert not fitted.verify(table(kind)).agrees


@pytest.mark.parametrize("values", [-1.0, 1e6, 0.0])
def test_other_multipliers_prove_no_more(values, tmp_path):
    change = array("multiplier_value", lambda v: values * v)
    found = altered(model("numbers"), tmp_path / "m", change).verify(table())
    assert found.lower_bound < model("numbers").certificate.lower_bound
    assert not found.agrees


@pytest.mark.parametrize("network", ["relu", "gated"])
def test_an_imbalance_that_floats_overlook_is_refused(network, tmp_path):
    """A dual point imbalanced just below 1e-9, at raw targets of 1.7e9: the bound that floats
    would find is above the objective of the network."""
    kind = "large numbers"
    settings = {"alpha": 0.02, "n_patterns": 12, "holdout": 0.0, "scale": False, "max_iter": 20}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it need not converge
        unscaled = Model.fit(table(kind), "y", kind=network, **settings)
    dual = unscaled.dual - 0.9e-9 * np.abs(unscaled.dual).mean()
    Y = unscaled._posed(table(kind)).program.Y
    assert abs(dual.sum()) < 1e-9 * np.abs(dual).sum()
    assert -np.sum(dual * Y) - 30 * np.sum(dual**2) > unscaled.certificate.objective

    def change(description_network, description, arrays):
        arrays["dual"] = dual
        description["certificate"]["lower_bound"] = description["certificate"]["objective"]

    found = altered(unscaled, tmp_path / "m", change).verify(table(kind))
    assert found.lower_bound < unscaled.certificate.objective
    assert any(text.startswith("lower_bound") for text in found.differences)


def test_a_spoilt_network_makes_no_room_for_a_false_bound(tmp_path):
    """An output bias of 1e5 makes an objective of which 1e-7 is more than the optimal value."""
    fitted = model("numbers")
    spoilt = dataclasses.replace(fitted.network, b2=fitted.network.b2 + 1e5)
    value = programs.network_value(spoilt, *posed_parts(fitted)).objective
    bound = fitted.certificate.lower_bound
    assert 1e-7 * value > bound

    def change(network, description, arrays):
        description["certificate"] |= {
            "objective": value,
            "network_objective": value,
            "lower_bound": bound + 0.9e-7 * value,
        }
        return spoilt

    found = altered(fitted, tmp_path / "m", change).verify(table())
    assert [text.split(":")[0] for text in found.differences] == ["lower_bound"]


def posed_parts(fitted):
    posed = fitted._posed(table())
    return posed.program, posed.scales


@pytest.mark.parametrize("network", ["relu", "gated"])
def test_the_objective_of_a_file_is_that_of_its_network(network):
    """In the units of the program, as floats find it."""
    for kind in ("numbers", "classes"):
        fitted = model(kind, network)
        posed = fitted._posed(table(kind))
        program = posed.program
        scaled = posed.numbers.scale_network(fitted.network).balanced()
        value = scaled.objective(
            program.X[:, :-1],
            program.Y[:, 0],
            program.lam,
            loss=program.loss,
            sample_weight=program.weight,
        )
        assert fitted.certificate.objective == pytest.approx(value, rel=1e-12)


def test_files_of_version_3_say_what_can_be_proven(tmp_path):
    """Without the numbers of the program they are computed again, multipliers as well."""
    fitted = model("numbers")
    old = dataclasses.replace(fitted, numbers=None, multipliers=None)
    old.save(tmp_path / "m")
    read = Model.load(tmp_path / "m")
    assert read.numbers is None
    assert read.multipliers is None
    found = read.verify(table())
    assert found.objective <= fitted.certificate.objective
    assert found.lower_bound == pytest.approx(fitted.certificate.lower_bound, rel=1e-12)
    boast = dataclasses.replace(fitted.certificate, lower_bound=found.lower_bound * (1 + 1e-10))
    read.estimator.certificate_ = boast
    (text,) = read.verify(table()).differences
    assert text.startswith("lower_bound: claimed")
    assert "too high" in text
    assert any("format version 3" in text for text in found.checked)
    assert not any("format version 3" in text for text in fitted.verify(table()).checked)


def test_the_same_program_whatever_computes_means(tmp_path, monkeypatch):
    """Means and spreads that another BLAS gives, a few units in the last place away, change
    nothing: those of the file count."""
    fitted = altered(model("numbers"), tmp_path / "m", lambda *parts: None)
    before = fitted.verify(table())
    honest_of = Scaling.of.__func__

    def rounded_differently(cls, X, weight, centre, across):
        found = honest_of(cls, X, weight, centre, across)
        return cls(found.mean * (1 + 3e-16), found.spread * (1 - 3e-16))

    monkeypatch.setattr(Scaling, "of", classmethod(rounded_differently))
    after = fitted.verify(table())
    assert after.agrees
    assert (after.objective, after.lower_bound) == (before.objective, before.lower_bound)


@pytest.mark.parametrize("threads", ["1", "3"])
def test_the_same_numbers_with_other_threads(threads, tmp_path):
    """The verifier finds the same to the last bit, whatever BLAS does. One program for all models,
    because importing takes the longest."""
    program = """
        import pickle, sys
        from cvxnn.tables.model import Model

        for path in sys.argv[1:]:
            with open(path + ".table", "rb") as file:
                found = Model.load(path).verify(pickle.load(file))
            print(found.agrees, found.objective.hex(), found.lower_bound.hex())
    """
    paths, expected = [], []
    for kind, network in CASES[:3]:
        path, found = tmp_path / f"{kind}-{network}", model(kind, network).verify(table(kind))
        model(kind, network).save(path)
        path.with_name(path.name + ".table").write_bytes(pickle.dumps(table(kind)))
        paths.append(path)
        expected.append(f"True {found.objective.hex()} {found.lower_bound.hex()}")
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *paths],
        env={**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert result.stdout.splitlines() == expected


def test_improving_keeps_the_huber_delta():
    fitted = Model.fit(
        table(), "y", alpha=0.02, n_patterns=12, holdout=0.0, loss="huber", huber_delta=0.3
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        better = fitted.improve(table(), n_patterns=3)
    assert better.verify(table()).agrees  # for the program with the delta of the estimator
    assert better.estimator.huber_delta == 0.3
    assert better.certificate.objective <= fitted.certificate.objective * (1 + 1e-9)
