"""What does not fit into memory is refused before anything large is made, with the sizes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from itertools import repeat

import numpy as np
import pytest

import cvxnn
from cvxnn import memory
from cvxnn.memory import TooLargeError, check_memory
from extras import needs

N, D, P = 2000, 5, 40


@pytest.fixture
def room(monkeypatch):
    """A function that sets what there is to be had, in bytes, at each look or at all of them."""
    monkeypatch.setattr(memory, "NEVER_TOO_MUCH", 0)

    def there_is(*sizes):
        answers = iter(sizes) if len(sizes) > 1 else repeat(sizes[0])
        monkeypatch.setattr(memory, "available", lambda: next(answers))

    return there_is


def make(kind=cvxnn.CGReLU, C=1, **settings):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((N, D)), rng.standard_normal((N, C))
    return kind(X, Y, cvxnn.sample_patterns(X, P, random_state=0), 0.1, **settings)


def test_the_message_has_the_sizes_and_says_what_to_do(room):
    room(22_000_000_000)
    check_memory(21.9e9, "patterns", n=5)
    says = r"patterns with n = 200,000, p = 77,000: needs about 30\.8 GB, 22\.0 GB are available; "
    with pytest.raises(TooLargeError, match=says + "take fewer patterns or rows"):
        check_memory(30.8e9, "patterns", n=200_000, p=77_000)
    room(None)  # nobody says what there is
    check_memory(1e30, "patterns", n=5)


def test_patterns_are_refused_before_they_are_made(room):
    X, need = np.ones((N, D)), memory.pattern_bytes(N, D, P)
    room(need)
    cvxnn.sample_patterns(X, P)
    room(need - 1)
    with pytest.raises(
        TooLargeError, match=r"^patterns with n = 2,000, d = 5, p = 40: needs about"
    ):
        cvxnn.sample_patterns(X, P)
    with pytest.raises(TooLargeError, match=r"^patterns with n = 2,000, p = 999: needs about"):
        cvxnn.Patterns.from_gates(X, np.ones((D, 999)))


@pytest.mark.parametrize(("kind", "before"), [(cvxnn.CGReLU, 1), (cvxnn.CReLU, 2)])
def test_problems_are_refused_before_they_are_made(room, kind, before):
    p = len(make().patterns)
    need = memory.problem_bytes(N, D, p, dense=True, cones=kind is cvxnn.CReLU)
    enough = [10**9] * before  # for the patterns, and for the gated problem inside
    room(*enough, need)
    make(kind)
    room(*enough, need - 1)
    with pytest.raises(TooLargeError, match=rf"^{kind.kind} with n = 2,000, d = 5, p = {p}: needs"):
        make(kind)


@pytest.mark.parametrize(
    ("kind", "solver", "beside"),
    [
        (cvxnn.CGReLU, "auto", 0),
        pytest.param(cvxnn.CGReLU, "cvxpy", 8 * N * P * D, marks=needs("cvxpy")),
        (cvxnn.CReLU, "al", 2 * 8 * 2 * P * N * 3),
    ],
)
def test_runs_are_refused_before_they_start(room, kind, solver, beside):
    problem = make(kind, C=3)
    p = len(problem.patterns)
    need = memory.weight_bytes(problem.operator.p, D, 3) + beside * p // P
    room(need - 1)
    with pytest.raises(TooLargeError, match=rf"weights of {problem.kind} with n = 2,000, d = 5, p"):
        cvxnn.solve(problem, solver)
    room(need)
    cvxnn.solve(problem, solver, max_iter=0, on_failure="ignore")


def test_a_limit_of_the_address_space_is_seen():
    program = """
        import numpy as np, resource, cvxnn
        X = np.ones((1000, 2000))
        cvxnn.sample_patterns(X[:9, :9], 30)
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, resource.RLIM_INFINITY))
        try:
            cvxnn.sample_patterns(X, 100_000)
        except MemoryError as error:
            print(error)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    says = "patterns with n = 1,000, d = 2,000, p = 100,000: needs about 3.2 GB, "
    assert run.stdout.startswith(says)


@pytest.mark.parametrize("version", [1, 2])
def test_control_groups_of_both_versions_are_seen(monkeypatch, tmp_path, version):
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    line, root, names = {
        1: ("4:memory:/jobs/one", groups / "memory", ("limit_in_bytes", "usage_in_bytes")),
        2: ("0::/jobs/one", groups, ("max", "current")),
    }[version]
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(f"3:cpu:/other\n{line}\n")
    (proc / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   8000 kB\n")
    monkeypatch.setattr(memory, "_FILES", proc)
    monkeypatch.setattr(memory, "_CGROUPS", groups)
    assert memory.available() == 8_192_000
    (root / "jobs" / "one").mkdir(parents=True)
    for folder, (limit, used) in {"jobs": (5000, 3000), "jobs/one": ("max", 100)}.items():
        (root / folder / f"memory.{names[0]}").write_text(f"{limit}\n")
        (root / folder / f"memory.{names[1]}").write_text(f"{used}\n")
    assert memory.available() == 2000
    (root / "jobs" / "memory.stat").write_text("anon 7\ninactive_file 500\n")
    assert memory.available() == 2500


def test_this_machine_says_what_there_is():
    there = memory.available()
    assert there is None or 0 < there < 2**60
