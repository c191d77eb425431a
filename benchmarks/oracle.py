"""Do we find the same optimum as an independent conic solver, and prove it?

Small random problems of every kind are solved by cvxnn and by Clarabel with tight tolerances.
Both answers are evaluated by `judge`, which shares no code with either.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

import cvxnn
from benchmarks import judge
from benchmarks.record import Benchmark, Options, Row, Rows, markdown_table

MAX_DIFFERENCE = 1e-6
MAX_GAP = 1e-6
TOL = 1e-7  # what cvxnn is asked for
CLARABEL = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}

PENALTIES = ("neuron", "feature", "l1", "l2", "none")
LEAST_SQUARES = ("l2", "none")
DESIGNS = ({}, {"bias": True}, {"normalize": True}, {"bias": True, "normalize": True})


@dataclass(frozen=True)
class Case:
    penalty: str
    c: int
    wide: bool  # n < d
    bias: bool = False
    normalize: bool = False
    seed: int = 0

    def __str__(self) -> str:
        shape = "n<d" if self.wide else "n>d"
        extras = "".join(f" {name}" for name in ("bias", "normalize") if getattr(self, name))
        return f"{self.penalty} C={self.c} {shape}{extras} seed {self.seed}"

    @property
    def sizes(self) -> tuple[int, int, int]:
        """(n, d, p). Without a penalty there are few patterns, so that the data cannot be
        interpolated: a relative difference of two optimal values that are 0 means nothing."""
        few = self.penalty == "none"
        if self.wide:
            return 12, 18, 2 if few else 8
        return 60, 5, 4 if few else 20

    @property
    def solvers(self) -> tuple[str, ...]:
        return ("direct", "lsmr", "rfista") if self.penalty in LEAST_SQUARES else ("rfista",)


def cases(quick: bool) -> Iterator[Case]:
    seeds, designs = (1, DESIGNS[:1]) if quick else (2, DESIGNS)
    for seed, design in itertools.product(range(seeds), designs):
        for penalty, c, wide in itertools.product(PENALTIES, (1, 3), (True, False)):
            yield Case(penalty, c, wide, seed=seed, **design)


def build(case: Case) -> tuple[cvxnn.CGReLU, np.ndarray]:
    """Gaussian data in columns of different scale, targets of a teacher plus noise; lam is a
    random share of the smallest one that gives the zero model. Also the design matrix, for the
    judge."""
    rng = np.random.default_rng(list(str(case).encode()))
    n, d, p = case.sizes
    X = rng.standard_normal((n, d)) * rng.uniform(0.5, 2.0, d)
    teacher = np.maximum(X @ rng.standard_normal((d, 5)), 0) @ rng.standard_normal((5, case.c))
    Y = teacher + 0.5 * rng.standard_normal((n, case.c))
    patterns = cvxnn.sample_patterns(X, p, bias=case.bias, random_state=case.seed)
    problem = cvxnn.CGReLU(
        X, Y, patterns, 0.0, penalty=case.penalty, bias=case.bias, normalize=case.normalize
    )
    share = 10 ** rng.uniform(-2.5, -0.3)
    if case.penalty != "none":
        scale = 1.0 if case.penalty == "l2" else cvxnn.lambda_max(problem)
        problem = problem.with_lam(share * scale)
    return problem, design_matrix(X, case)


def design_matrix(X: np.ndarray, case: Case) -> np.ndarray:
    if case.bias:
        X = np.column_stack([X, np.ones(len(X))])
    return X / np.linalg.norm(X, axis=0) if case.normalize else X


def measure(options: Options, _: Rows) -> Iterator[tuple[str, Row]]:
    for case in cases(options.quick):
        yield str(case), compare(case)


def compare(case: Case) -> Row:
    problem, X = build(case)

    def judged(U: np.ndarray) -> float:
        mask, Y = problem.patterns.mask, problem.loss.Y
        return judge.objective(X, mask, Y, U, problem.lam, case.penalty)

    oracle = cvxnn.solve(problem, "cvxpy", settings=CLARABEL, on_failure="ignore")
    reference = judged(oracle.weights)
    row: Row = {
        **asdict(case),
        "shape": case.sizes,
        "lam": problem.lam,
        "clarabel": {"objective": reference, "gap": oracle.certificate.relative_gap},
        "cvxnn": {},
    }
    for solver in case.solvers:
        solution = cvxnn.solve(problem, solver, tol=TOL, on_failure="ignore")
        objective = judged(solution.weights)
        row["cvxnn"][solver] = {
            "objective": objective,
            "difference": abs(objective - reference) / reference,
            "gap": solution.certificate.relative_gap,
            "status": str(solution.status),
            "iterations": solution.n_iter,
        }
    return row


def present(rows: Rows) -> str:
    lines = []
    for penalty in PENALTIES:
        chosen = [row for row in rows.values() if row["penalty"] == penalty]
        for solver in sorted({solver for row in chosen for solver in row["cvxnn"]}):
            results = [row["cvxnn"][solver] for row in chosen]
            lines.append(
                (
                    penalty if penalty != "none" else "none (lam = 0)",
                    solver,
                    len(results),
                    f"{max(r['difference'] for r in results):.1e}",
                    f"{max(r['gap'] for r in results):.1e}",
                    f"{max(row['clarabel']['gap'] for row in chosen):.1e}",
                )
            )
    header = (
        "penalty",
        "solver",
        "problems",
        "worst relative difference",
        "worst relative gap",
        "worst gap of Clarabel's point",
    )
    return (
        f"{len(rows)} small random problems: C = 1 and 3, n < d and n > d, with and without bias "
        "and normalised columns. The difference is that of the objectives, relative to Clarabel's; "
        f"the gap is the certified relative duality gap (asked for: {TOL:.0e}).\n\n"
        + markdown_table(header, lines)
    )


def misses(rows: Rows) -> list[str]:
    found = []
    for case, row in rows.items():
        for solver, result in row["cvxnn"].items():
            if not result["difference"] <= MAX_DIFFERENCE:
                found.append(f"{case}, {solver}: relative difference {result['difference']:.1e}")
            if not result["gap"] <= MAX_GAP:
                found.append(f"{case}, {solver}: relative gap {result['gap']:.1e}")
    return found


BENCHMARK = Benchmark(
    "oracle", "The same optimum as Clarabel, with a proof", measure, present, misses
)
