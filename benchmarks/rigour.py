"""What does rigour cost? Certificates with error bounds against the same ones without, and the
verifier against the fit, on the instances that solvers are compared on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np

import cvxnn
from benchmarks.instances import GATED, QUICK, RELU, Size
from benchmarks.record import Benchmark, Options, Row, Rows, markdown_table
from cvxnn.certificates import lower_bound_of, prove

TOL = 1e-6
SHARES = (1e-1, 1e-2, 1e-3)  # of lambda_max
REPEATS = 5
MAX_GAP_SHARE = 0.01  # of the tolerance, that rigour may add to a gap
MAX_TIME_RATIO = 2.0  # rigour costs less than one more certificate
MAX_ROWS_VERIFIED = 4000


def measure(options: Options, done: Rows) -> Iterator[tuple[str, Row]]:
    sizes = [("gated", size) for size in (QUICK[:1] if options.quick else GATED)]
    sizes += [("relu", size) for size in (QUICK[:1] if options.quick else RELU)]
    for kind, size in sizes:
        # the smallest lam of the largest ReLU problem takes more than ten minutes to fit
        shares = SHARES[:2] if (kind, size.n) == ("relu", 4000) else SHARES
        cases = {share: f"{kind} {size} lam={share:g} lambda_max" for share in shares}
        if all(case in done for case in cases.values()):
            continue
        made = size.make()
        patterns = cvxnn.Patterns.from_gates(made.X, made.gates)
        program = cvxnn.CGReLU if kind == "gated" else cvxnn.CReLU
        problem = program(made.X, made.Y, patterns, lam=1.0)
        largest = cvxnn.lambda_max(problem)
        for share, case in cases.items():
            if case not in done:
                yield case, _row(kind, size, share, problem.with_lam(share * largest))


def _row(kind: str, size: Size, share: float, problem: Any) -> Row:
    solution, fit_seconds = _timed(lambda: cvxnn.solve(problem, tol=TOL, on_failure="ignore"))
    U, Theta = problem.check_weights(solution.weights), solution.dual
    plain_seconds, rigorous_seconds = [], []
    for _ in range(REPEATS):  # interleaved, so that both meet the same machine
        plain, seconds = _timed(lambda: _plain(problem, U, Theta))
        plain_seconds.append(seconds)
        proof, seconds = _timed(lambda: prove(problem, U, Theta, enough=1.0, precise=1e-3 * TOL))
        rigorous_seconds.append(seconds)
    certificate = proof.certificate
    row = {
        "kind": kind,
        "size": str(size),
        "share": share,
        "relative_gap": solution.certificate.relative_gap,
        "fit": fit_seconds,
        "plain": median(plain_seconds),
        "rigorous": median(rigorous_seconds),
        "bound_lost": (plain[1] - certificate.lower_bound) / certificate.objective,
        "objective_lost": (certificate.objective - plain[0]) / certificate.objective,
    }
    if size.n <= MAX_ROWS_VERIFIED:
        found, row["verify"] = _timed(lambda: cvxnn.verify(solution))
        row["confirmed"] = found.agrees
    return row


def _plain(problem: Any, U: np.ndarray, Theta: np.ndarray) -> tuple[float, float]:
    """A certificate as floating-point numbers come: the objective and the lower bound."""
    Z = problem.operator_double.forward(U)
    objective = problem.loss.value(Z) + problem.penalty.value(U)
    problem.max_violation(U)
    bound, _ = lower_bound_of(problem, Theta)
    return objective, bound


def _timed(run: Callable[[], Any]) -> tuple[Any, float]:
    started = time.process_time()
    result = run()
    return result, time.process_time() - started


def present(rows: Rows) -> str:
    lines = [
        (
            case,
            f"{row['fit']:.2f}",
            f"{1e3 * row['plain']:.1f}",
            f"{row['rigorous'] / max(row['plain'], 1e-9):.2f}",
            f"{row['bound_lost']:.1e}",
            f"{row['objective_lost']:.1e}",
            "-" if "verify" not in row else f"{row['verify'] / row['fit']:.2f}",
            "-" if "verify" not in row else ("yes" if row["confirmed"] else "NO"),
        )
        for case, row in rows.items()
    ]
    header = (
        "instance", "fit, s", "plain certificate, ms", "rigorous / plain", "bound lost",
        "objective lost", "verify / fit", "confirmed",
    )  # fmt: skip
    ratios = [row["rigorous"] / max(row["plain"], 1e-9) for row in rows.values()]
    lost = [row["bound_lost"] + row["objective_lost"] for row in rows.values()]
    return (
        f"Solved to a relative gap of {TOL:g}; processor seconds, medians of {REPEATS} interleaved "
        "runs. A plain certificate has the same products and projections and no error bounds. What "
        "is lost is relative to the objective; differences below 1e-15 are rounding of the plain "
        f"one. Median ratio {median(ratios):.2f}, median loss {median(lost):.1e}, largest loss "
        f"{max(lost):.1e}.\n\n" + markdown_table(header, lines)
    )


def misses(rows: Rows) -> list[str]:
    found = []
    for case, row in rows.items():
        lost = row["bound_lost"] + row["objective_lost"]
        if lost > MAX_GAP_SHARE * TOL:
            found.append(f"{case}: rigour costs {lost:.1e} of the gap")
        if row["rigorous"] > MAX_TIME_RATIO * row["plain"]:
            found.append(f"{case}: {row['rigorous'] / row['plain']:.1f} plain certificates")
        if not row.get("confirmed", True):
            found.append(f"{case}: not confirmed")
    return found


BENCHMARK = Benchmark(
    "rigour", "Rigour: what error bounds and exact checks cost", measure, present, misses,
    resumable=True,
)  # fmt: skip
