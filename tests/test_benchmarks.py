"""The benchmarks run, judge themselves, and write only where they are told to."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def benchmarks(monkeypatch):
    """The package, which is not installed, with the environment put back afterwards."""
    monkeypatch.syspath_prepend(str(ROOT))
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(variable, "1")
    import benchmarks

    return benchmarks


def test_quick_oracle_meets_its_targets_and_writes_where_it_is_told(tmp_path):
    recorded = ROOT / "benchmarks" / "results" / "oracle.json"
    before = recorded.read_bytes() if recorded.exists() else None

    command = [sys.executable, "-m", "benchmarks", "oracle", "--quick", "--results", str(tmp_path)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert process.returncode == 0, process.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"oracle.json", "oracle.md"}
    assert (recorded.read_bytes() if recorded.exists() else None) == before
    rows = json.loads((tmp_path / "oracle.json").read_text())["rows"]
    assert len(rows) == 20
    assert {row["penalty"] for row in rows.values()} == {"neuron", "feature", "l1", "l2", "none"}
    page = (tmp_path / "oracle.md").read_text()
    assert page.startswith("<!-- Made by `python -m benchmarks oracle --quick`")
    assert "All targets are met." in page


def test_a_missed_target_is_reported(benchmarks):
    from benchmarks import oracle

    result = {"difference": 1e-5, "gap": float("nan")}
    difference, gap = oracle.misses({"a case": {"cvxnn": {"rfista": result}}})
    assert "relative difference 1.0e-05" in difference
    assert "relative gap nan" in gap


@pytest.mark.parametrize("c", [1, 3])
def test_the_judge_agrees_with_the_definition(benchmarks, c):
    from benchmarks import judge

    rng = np.random.default_rng(0)
    n, d, p, lam = 7, 3, 4, 0.1
    X, Y = rng.standard_normal((n, d)), rng.standard_normal((n, c))
    mask, U = rng.random((n, p)) > 0.5, rng.standard_normal((p, d, c))
    U[0] = 0
    Z = sum(np.diag(mask[:, i].astype(float)) @ X @ U[i] for i in range(p))
    loss = np.sum((Z - Y) ** 2) / (2 * n * c)
    group_norms = sum(np.linalg.norm(U[i, :, k]) for i in range(p) for k in range(c))
    expected = loss + lam * group_norms
    np.testing.assert_allclose(judge.objective(X, mask, Y, U, lam), expected, rtol=1e-12)


def test_the_judge_finds_no_subgradient_at_an_optimum(benchmarks):
    from benchmarks import judge
    from benchmarks.instances import Size

    import cvxnn

    instance = Size(n=60, d=4, p=15, c=2).make()
    patterns = cvxnn.Patterns.from_gates(instance.X, instance.gates, strict=True)
    problem = cvxnn.CGReLU(instance.X, instance.Y, patterns, lam=0.01)
    solution = cvxnn.solve(problem, "rfista", tol=1e-13, on_failure="ignore")
    arguments = (instance.X, patterns.mask, instance.Y)
    assert judge.subgradient_norm(*arguments, solution.weights, 0.01) < 1e-6
    assert judge.subgradient_norm(*arguments, np.zeros(problem.weight_shape), 0.01) > 1e-3


def test_precision_runs_again_only_where_more_time_may_help(benchmarks):
    from benchmarks.precision import is_settled

    assert not is_settled(None, 10)
    assert is_settled({"status": "converged", "max_seconds": 1}, 10)
    assert is_settled({"status": "time_limit", "max_seconds": 10}, 10)
    assert not is_settled({"status": "time_limit", "max_seconds": 1}, 10)
