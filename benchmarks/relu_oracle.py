"""Does the augmented Lagrangian find the optimum of C-ReLU that a conic solver finds?

Small random and UCI problems are solved by cvxnn and by Clarabel with tight tolerances. Both
answers are evaluated by `judge`, which shares no code with either. A later call goes on with the
problems that have no row yet.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

import cvxnn
from benchmarks import judge
from benchmarks.datasets import Dataset, available
from benchmarks.oracle import CLARABEL, DESIGNS
from benchmarks.record import Benchmark, Options, Row, Rows, markdown_table

MAX_DIFFERENCE = 1e-5
MAX_VIOLATION = 1e-8
TOL = 1e-6  # what cvxnn is asked for
MAX_SECONDS = 300.0
SHARES = (0.5, 0.2, 0.05)  # lam / lambda_max
SIZES = {"n<d": (12, 18, 8), "n>d": (40, 4, 12)}  # (n, d, patterns)
UCI = ("hepatitis", "planning", "statlog-heart", "seeds", "teaching", "wine")
UCI_PATTERNS, UCI_SHARE = 15, 0.1


@dataclass(frozen=True)
class Case:
    """A problem, ready to be built, and its place in the table."""

    name: str
    group: str
    build: Callable[[], tuple[cvxnn.CReLU, np.ndarray]]  # also the design matrix, for the judge


def cases(quick: bool) -> Iterator[Case]:
    designs, shares = (DESIGNS[:1], SHARES[:1]) if quick else (DESIGNS, SHARES)
    for c, shape, design, share in itertools.product((1, 3), SIZES, designs, shares):
        extras = "".join(f" {name}" for name in design)
        name = f"C={c} {shape}{extras} lam={share:g} lambda_max"
        yield Case(name, f"random, C = {c}, {shape}", _random(name, c, shape, design, share))
    for name in available(UCI[:1] if quick else UCI):
        yield Case(name, "UCI", _uci(name))


def _random(
    name: str, c: int, shape: str, design: dict[str, bool], share: float
) -> Callable[[], tuple[cvxnn.CReLU, np.ndarray]]:
    """Gaussian data in columns of different scale, targets of a teacher plus noise."""

    def build() -> tuple[cvxnn.CReLU, np.ndarray]:
        rng = np.random.default_rng(list(name.encode()))
        n, d, p = SIZES[shape]
        X = rng.standard_normal((n, d)) * rng.uniform(0.5, 2.0, d)
        teacher = np.maximum(X @ rng.standard_normal((d, 5)), 0) @ rng.standard_normal((5, c))
        Y = teacher + 0.5 * rng.standard_normal((n, c))
        bias, normalize = design.get("bias", False), design.get("normalize", False)
        patterns = cvxnn.sample_patterns(X, p, bias=bias, random_state=0)
        problem = cvxnn.CReLU(X, Y, patterns, 0.0, **design)
        X = np.column_stack([X, np.ones(n)]) if bias else X
        X = X / np.linalg.norm(X, axis=0) if normalize else X
        return problem.with_lam(share * cvxnn.lambda_max(problem)), X

    return build


def _uci(name: str) -> Callable[[], tuple[cvxnn.CReLU, np.ndarray]]:
    def build() -> tuple[cvxnn.CReLU, np.ndarray]:
        data = Dataset.load(name).instance(UCI_PATTERNS)
        problem = cvxnn.CReLU(data.X, data.Y, cvxnn.Patterns.from_gates(data.X, data.gates), 0.0)
        return problem.with_lam(UCI_SHARE * cvxnn.lambda_max(problem)), data.X

    return build


def measure(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    for case in cases(options.quick):
        if case.name not in rows:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", cvxnn.PatternWarning)  # kept in the notes
                problem, X = case.build()
            yield case.name, {"group": case.group, **compare(problem, X)}


def compare(problem: cvxnn.CReLU, X: np.ndarray) -> Row:
    mask, Y = problem.patterns.mask, problem.loss.Y
    clarabel = cvxnn.solve(problem, "cvxpy", settings=CLARABEL, on_failure="ignore")
    ours = cvxnn.solve(problem, "al", tol=TOL, max_seconds=MAX_SECONDS, on_failure="ignore")
    row: Row = {
        "n": X.shape[0],
        "d": X.shape[1],
        "c": Y.shape[1],
        "patterns": mask.shape[1],
        "lam": problem.lam,
        "notes": list(problem.notes),
    }
    for name, solution in (("clarabel", clarabel), ("cvxnn", ours)):
        V, W = solution.weights
        row[name] = {
            "objective": judge.relu_objective(X, mask, Y, V, W, problem.lam),
            "violation": judge.cone_violation(X, mask, V, W),
            "reported_violation": solution.certificate.max_violation,
            "gap": solution.certificate.relative_gap,
            "status": str(solution.status),
            "active": solution.n_active,
            "iterations": solution.n_iter,
            "seconds": solution.seconds,
        }
    reference = row["clarabel"]["objective"]
    row["difference"] = abs(row["cvxnn"]["objective"] - reference) / reference
    return row


def present(rows: Rows) -> str:
    random = [row for row in rows.values() if row["group"] != "UCI"]
    uci = {name: row for name, row in rows.items() if row["group"] == "UCI"}
    groups: dict[str, list[Row]] = {}
    for row in random:
        groups.setdefault(row["group"], []).append(row)
    lines = [(group, len(chosen), *_worst(chosen)) for group, chosen in groups.items()]
    lines += [
        (f"UCI: {name} (n={row['n']} d={row['d']} C={row['c']})", 1, *_worst([row]))
        for name, row in uci.items()
    ]
    header = (
        "problems",
        "number",
        "worst relative difference",
        "worst violation",
        "worst relative gap",
        "worst gap of Clarabel's point",
        "median seconds",
        "median seconds of Clarabel",
    )
    shares = ", ".join(f"{share:g}" for share in SHARES)
    return (
        f"{len(random)} small random problems, with and without bias and normalised columns, at "
        f"lam = {shares} of lambda_max, and {len(uci)} UCI problems with up to {UCI_PATTERNS} "
        f"patterns at {UCI_SHARE:g} of lambda_max. The difference is that of the objectives, "
        "relative to Clarabel's; the violation is the largest distance from a half-space of the "
        "cones, at the weights as they are returned; the gap is the certified relative duality "
        f"gap (asked for: {TOL:.0e}).\n\n" + markdown_table(header, lines)
    )


def _worst(chosen: list[Row]) -> tuple[str, ...]:
    solvers = ("cvxnn", "clarabel")
    return (
        f"{max(row['difference'] for row in chosen):.1e}",
        f"{max(row['cvxnn']['violation'] for row in chosen):.1e}",
        *(f"{max(row[solver]['gap'] for row in chosen):.1e}" for solver in solvers),
        *(f"{np.median([row[s]['seconds'] for row in chosen]):.2f}" for s in solvers),
    )


def misses(rows: Rows) -> list[str]:
    found = []
    for case, row in rows.items():
        worst = max(row["cvxnn"]["violation"], row["cvxnn"]["reported_violation"])
        if not row["difference"] <= MAX_DIFFERENCE:
            found.append(f"{case}: relative difference {row['difference']:.1e}")
        if not worst <= MAX_VIOLATION:
            found.append(f"{case}: violation {worst:.1e}")
    return found


BENCHMARK = Benchmark(
    "relu_oracle",
    "C-ReLU: the same optimum as Clarabel",
    measure,
    present,
    misses,
    resumable=True,
)
