"""The judge of `python -m fuzz` can fail, kept failures stay mended, and fresh problems pass."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.optimize import nnls

from extras import required

required("cvxpy")

import cvxnn
from conftest import make_problem
from cvxnn.certificates import Multipliers
from fuzz import exact, report, shrink, trial
from fuzz.__main__ import main
from fuzz.cases import KINDS, LOSSES, PENALTIES, SOLVERS, Case, Instance
from fuzz.conic import attained
from fuzz.judge import FAILURES, judge

FRESH_SEED, FRESH = 1, 24  # problems for each of four tests, of a seed that the campaign leaves out
KEPT = sorted((Path(__file__).parent / "fuzz_cases").glob("*.json"))


# -- the promise


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_what_failed_once_is_true_now(path):
    with_conic = "conic" in json.loads(path.read_text())["note"]
    line = trial.attempt(lambda: Instance.load(path), with_conic=with_conic)
    assert line["verdict"] not in FAILURES, line


@pytest.mark.parametrize("part", range(4))
def test_fresh_problems(part):
    """Half a minute of them in all, of every solver in turn."""
    lines = [trial.run(FRESH_SEED, number) for number in range(part * FRESH, (part + 1) * FRESH)]
    failures = [line for line in lines if line["verdict"] in FAILURES]
    assert not failures, "\n".join(map(json.dumps, failures))
    assert sum(line["verdict"] == "ok" for line in lines) > 0.9 * FRESH


def test_draws_cover_everything_and_depend_on_the_number_alone():
    cases = [Case.draw(0, number) for number in range(4000)]
    assert cases[17] == Case.draw(0, 17) != Case.draw(1, 17)
    for name, choices in (
        ("kind", KINDS), ("solver", SOLVERS), ("loss", LOSSES), ("penalty", PENALTIES)
    ):  # fmt: skip
        drawn = [getattr(case, name) for case in cases]
        assert all(drawn.count(choice) >= 140 for choice in choices), name
    assert {case.singular for case in cases if case.kind == "singular"} == {"keep", "replace"}
    assert min(case.share for case in cases if case.share > 0) < 1e-7
    assert max(case.share for case in cases) > 1.5


# -- the judge


def solved(**settings):
    return cvxnn.solve(make_problem(20, 3, 6, 2, **settings), tol=1e-6)


def solved_cones(**settings):
    gated = make_problem(20, 3, 4, 2, **settings)
    return cvxnn.solve(cvxnn.CReLU.from_gated(gated), tol=1e-4)


def tampered(solution, **claims):
    certificate = dataclasses.replace(solution.certificate, **claims)
    return dataclasses.replace(solution, certificate=certificate)


def sound(solution, **claims):
    """The solution with claims that are true by a margin, whoever issued them."""
    judgement = judge(solution)
    objective, bound = judgement.value * (1 + 1e-13), (judgement.bound or 0.0) * (1 - 1e-13)
    network = solution.certificate.network_objective
    true = {
        "objective": objective,
        "lower_bound": bound,
        "network_objective": None if network is None else network * (1 + 1e-9),
    }
    return judgement, tampered(solution, **true | claims)


@pytest.mark.parametrize("penalty", ["neuron", "feature", "l1", "l2"])
@pytest.mark.parametrize("output_bias", [False, True])
def test_false_claims_are_caught(penalty, output_bias):
    solution = solved(penalty=penalty, output_bias=output_bias)
    judgement, true = sound(solution)
    assert judge(true).verdict == "ok"
    low = sound(solution, objective=judgement.value * (1 - 1e-12))[1]
    high = sound(solution, lower_bound=judgement.bound * (1 + 1e-12))[1]
    above = sound(solution, lower_bound=judgement.value * (1 + 1e-12), objective=1e9)[1]
    assert judge(low).verdict == "false bound"
    assert any(reason.startswith("unproven") for reason in judge(high).reasons)
    assert judge(above).verdict == "false bound"
    assert judge(tampered(true, lower_bound=np.nan)).verdict == "error"
    assert judge(tampered(true, caveats=("of some sort",))).verdict == "caveats"


@pytest.mark.parametrize("loss", LOSSES)
def test_a_dual_point_of_other_rows_proves_less(loss):
    judgement, solution = sound(_for_loss(loss))
    assert judge(solution).verdict == "ok"
    assert (1 - 1e-5) * judgement.value < judgement.bound <= judgement.value
    swapped = dataclasses.replace(solution, dual=np.asarray(solution.dual)[::-1].copy())
    assert judge(swapped).verdict == "unproven"


def _for_loss(loss):
    X = np.random.default_rng(0).standard_normal((20, 3))
    labels = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)
    Y = {"logistic": np.where(labels > 0, 1.0, -1.0), "softmax": np.eye(3)[labels]}
    patterns = cvxnn.sample_patterns(X, 6, random_state=0)
    problem = cvxnn.CGReLU(X, Y.get(loss, X[:, 0] * X[:, 1]), patterns, 1.0, loss=loss)
    return cvxnn.solve(problem.with_lam(0.05 * cvxnn.lambda_max(problem)), tol=1e-6)


def test_a_conic_solver_finds_what_the_weights_do_not():
    """Weights that are far from optimal attain little; the bound between is found false."""
    solution = solved(share=0.1)
    zero = dataclasses.replace(solution, weights=np.zeros_like(solution.weights))
    value = judge(zero).value
    false = tampered(zero, objective=value * (1 + 1e-13), lower_bound=0.99 * value)
    assert [r for r in judge(false).reasons if "conic" in r] == []
    assert any("conic" in reason for reason in judge(false, with_conic=True).reasons)


def test_weights_outside_their_cones_and_networks_above_their_claim_are_caught():
    solution = solved_cones()
    V, W = (np.array(part, dtype=float) for part in solution.weights)
    _, true = sound(solution)
    outside = dataclasses.replace(true, weights=(-V, W))
    assert any(reason.startswith("outside") for reason in judge(outside).reasons)
    network = tampered(true, network_objective=0.5 * true.certificate.network_objective)
    assert any("network" in reason for reason in judge(network).reasons)


def projecting(solution):
    """The multipliers of the projections -s X'D_i Theta^k -> K_i, by non-negative least squares."""
    program, Theta = exact.Program.of(solution.problem), np.asarray(solution.dual)
    _, _, p, C = program.shape
    found = []
    for block in range(2 * p * C):
        sign, on = 1 if block < p * C else -1, program.mask[:, block // C % p]
        rows = np.where(on[:, None], program.X, -program.X)
        gamma, _ = nnls(rows.T, sign * program.X.T @ (on * Theta[:, block % C]))
        found += [(block, row, gamma[row]) for row in np.flatnonzero(gamma)]
    return Multipliers(*(np.array(column) for column in zip(*found, strict=True)))


@pytest.mark.parametrize("output_bias", [False, True])
def test_multipliers_close_the_gap_and_negative_ones_prove_nothing(output_bias):
    solution = solved_cones(output_bias=output_bias)
    program, multipliers = exact.Program.of(solution.problem), projecting(solution)
    T = exact.dual_point(program, solution.dual)
    without, bound = (float(exact.dual_bound(program, T, m, None)) for m in (None, multipliers))
    value = solution.certificate.objective
    assert without < 0.99 * value
    assert 0.999 * value < bound <= value
    negative = dataclasses.replace(multipliers, value=-multipliers.value)
    _, true = sound(dataclasses.replace(solution, multipliers=multipliers))
    assert not any(r.startswith("unproven") for r in judge(true).reasons)
    false = dataclasses.replace(true, multipliers=negative)
    assert any(r.startswith("unproven") for r in judge(false).reasons)


@pytest.mark.parametrize("output_bias", [False, True])
def test_without_a_penalty_a_bound_holds_within_its_radius(output_bias):
    problem = make_problem(30, 2, 3, 2, penalty="none", share=0.0, output_bias=output_bias)
    solution = cvxnn.solve(problem, tol=1e-8)
    program, U = exact.Program.of(problem), np.asarray(solution.weights)
    Z = np.einsum("np,nd,pdc->nc", program.mask, program.X, U)
    T = exact.dual_point(program, problem.loss.gradient(Z))
    radius, value = float(exact.size(program, U)), solution.certificate.objective
    bounds = [float(exact.dual_bound(program, T, None, r)) for r in (radius, 1e3 * radius, 1e12)]
    assert bounds == sorted(bounds, reverse=True)
    assert (1 - 1e-3) * value < bounds[0] <= value * (1 + 1e-15)
    assert exact.dual_bound(program, T, None, None) == 0


@pytest.mark.parametrize("number", range(0, 200, 5))
def test_weak_duality(number):
    """No point proves more than a conic solver's weights attain: not the judge, whatever the loss,
    the penalty and the cones, for dual points that nobody has made feasible."""
    rng = np.random.default_rng(number)
    try:
        solution = Case.draw(2, number).instance().solve(0.2)
    except (ValueError, RuntimeError):
        pytest.skip("refused")
    program = exact.Program.of(solution.problem)
    answer = attained(program)
    if answer is None:
        pytest.skip("no answer of the conic solver")
    U, b = answer
    value = exact.loss(program, exact.predictions(program, U), b) + exact.penalty(program, U)
    radius = float(exact.size(program, U)) * (1 + 1e-9) if program.penalty == "none" else None
    for noise in (0.0, 1e-3, 1.0):
        Theta = np.asarray(solution.dual) * (1 + noise * rng.standard_normal(program.Y.shape))
        T = exact.dual_point(program, Theta)
        multipliers = _random_multipliers(program, rng) if program.cones and noise < 1 else None
        assert not exact.dual_bound(program, T, multipliers, radius) > value


def _random_multipliers(program, rng):
    n, _, p, C = program.shape
    block, row = rng.integers(0, 2 * p * C, 9), rng.integers(0, n, 9)
    return Multipliers(block, row, program.lam * rng.random(9) * 1e-3)


# -- the campaign


def test_the_campaign_goes_on_where_it_stopped(tmp_path):
    results = tmp_path / "lines.jsonl"
    arguments = ["--results", str(results), "--problems"]
    CliRunner().invoke(main, [*arguments, "3"])
    first = results.read_text()
    results.write_text(first + '{"seed": 0, "num')  # cut off
    CliRunner().invoke(main, [*arguments, "5"])
    assert results.read_text().startswith(first)
    page = tmp_path / "fuzz.md"
    answer = CliRunner().invoke(main, ["--results", str(results), "--report", str(page)])
    assert answer.exit_code == 0
    content = json.loads(results.with_suffix(".json").read_text())
    assert content["problems"] == 5
    assert "Target missed: 5 problems of 10000" in page.read_text()
    assert report.misses(content)


def test_failures_are_shrunk_and_can_be_loaded(tmp_path, monkeypatch):
    """With a judge that dislikes large targets, all that is left is one of them."""

    def attempt(make, *, with_conic=False):
        bad = np.abs(make().Y).max() > 1
        return {"verdict": "false bound" if bad else "ok", "reasons": ["false bound: by 1"]}

    monkeypatch.setattr(shrink, "attempt", attempt)
    numbers = range(0, 400, 7)
    number = next(
        i for i in numbers if (case := Case.draw(0, i)).loss == "squared" and case.kind == "plain"
    )
    line = {"number": number, "verdict": "false bound", "reasons": ["false bound: by 1"]}
    path = shrink.keep(0, line, tmp_path)
    small = Instance.load(path)
    assert small.X.shape == small.Y.shape == (1, 1)
    assert not any((small.bias, small.output_bias, small.normalize))
    assert np.abs(small.Y).max() > 1


def test_exceptions_are_errors_and_refusals_are_not():
    instance = Case.draw(0, 0).instance()
    unable = instance.changed(program="C-ReLU", solver="rfista")
    assert trial.attempt(lambda: unable)["verdict"] == "refused"
    assert trial.attempt(lambda: 1 / 0)["verdict"] == "error"
