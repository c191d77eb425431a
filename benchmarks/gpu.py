"""R-FISTA and the augmented Lagrangian method on every device that is there, against NumPy.

Whoever has a GPU confirms with it that the answers agree, and sees what the GPU gains.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import array_api_strict
import numpy as np

import cvxnn
from benchmarks.record import Benchmark, Options, Row, Rows, markdown_table
from cvxnn.devices import Device, find_device

LOSSES = ("squared", "huber", "logistic", "softmax")
TOLERANCES = {"float32": 1e-4, "float64": 1e-6}  # the first of which takes single precision
CONES = {"float32": 1e-2, "float64": 9e-5}
WANTED = 1e-2  # of the augmented Lagrangian method, whose last digits take long
MAX_ITER = {"gated": 100_000, "relu": 1000}
SIZES = {"small": (2000, 20, 200), "large": (100_000, 100, 1000)}
QUICK = {"small": (500, 10, 50)}
ITERATIONS = 30


def devices() -> dict[str, Device | None]:
    """Those that are there, by name; None is NumPy."""
    found: dict[str, Device | None] = {"numpy": None}
    for name in ("device1", "no_float64"):
        its = array_api_strict.Device(name)
        ones = array_api_strict.ones(1, dtype=array_api_strict.float32, device=its)
        found[f"strict {name}"] = Device(f"strict {name}", ones)
    for name in ("cpu", "cuda", "mps", "xpu"):
        try:
            found[f"torch {name}"] = find_device(name)
        except (ImportError, ValueError):
            continue
    return found


def measure(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    places = devices()
    for kind in ("gated", "relu"):
        for loss in LOSSES:
            problem = make_problem(kind, loss)
            exact = cvxnn.solve(problem, tol=1e-9, on_failure="ignore").certificate
            for name, device in places.items():
                for precision in ("float32", "float64"):
                    if precision == "float64" and device and not device.has_float64:
                        continue
                    case = f"{kind} {loss} {name} {precision}"
                    yield case, agreement(problem, exact, kind, device, precision)
    for size, (n, d, p) in (QUICK if options.quick else SIZES).items():
        for name, device in places.items():
            if not name.startswith("strict"):
                case = f"speed {size} {name}"
                yield case, {"n": n, "d": d, "p": p, "where": name, **speed(n, d, p, device)}


def make_problem(kind: str, loss: str) -> cvxnn.CGReLU | cvxnn.CReLU:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((60, 4)), rng.standard_normal((60, 2))
    Y = {"logistic": np.sign(Y), "softmax": np.eye(2)[(Y[:, 0] > 0).astype(int)]}.get(loss, Y)
    patterns = cvxnn.sample_patterns(X, 10, random_state=0)
    cls = cvxnn.CGReLU if kind == "gated" else cvxnn.CReLU
    return cls(X, Y, patterns, lam=0.02, loss=loss, output_bias=True)


def agreement(
    problem: cvxnn.CGReLU | cvxnn.CReLU,
    exact: cvxnn.Certificate,
    kind: str,
    device: Device | None,
    precision: str,
) -> Row:
    """How a run ends, and whether its bounds are on the right sides of the optimal value."""
    tol = (TOLERANCES if kind == "gated" else CONES)[precision]
    solver = "rfista" if kind == "gated" else "al"
    most = MAX_ITER[kind]
    solution = cvxnn.solve(
        problem, solver, tol=tol, device=device, max_iter=most, on_failure="ignore"
    )
    certificate = solution.certificate
    return {
        "tol": tol if kind == "gated" else WANTED,
        "relative_gap": certificate.relative_gap,
        "difference": abs(certificate.objective - exact.objective) / exact.objective,
        "holds": certificate.lower_bound <= exact.objective
        and certificate.objective >= exact.lower_bound,
        "iterations": solution.n_iter,
    }


def speed(n: int, d: int, p: int, device: Device | None) -> Row:
    """Seconds of an iteration of R-FISTA in single precision, and of the whole call around it."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d), dtype=np.float32)
    y = np.maximum(X @ rng.standard_normal((d, 5), dtype=np.float32), 0).sum(axis=1)
    patterns = cvxnn.sample_patterns(X, p, random_state=0)
    problem = cvxnn.CGReLU(X, y / y.std(), patterns, lam=1e-3)
    seconds = {}
    for iterations in (0, ITERATIONS):  # the first call also warms the device up
        began = time.perf_counter()
        settings = {"tol": 1e-4, "max_iter": iterations, "on_failure": "ignore", "device": device}
        solution = cvxnn.solve(problem, "rfista", **settings)
        seconds[iterations] = time.perf_counter() - began
    history = solution.history
    each = (history[-1].seconds - history[0].seconds) / max(len(history) - 1, 1)
    return {"iteration": each, "call": seconds[0], "iterations": len(history) - 1}


def present(rows: Rows) -> str:
    matrix = {case: row for case, row in rows.items() if "holds" in row}
    places = list(dict.fromkeys(case.split(" ", 2)[2] for case in matrix))
    problems = list(dict.fromkeys(" ".join(case.split(" ", 2)[:2]) for case in matrix))
    lines = [
        [place, *(_cell(matrix.get(f"{problem} {place}")) for problem in problems)]
        for place in places
    ]
    times = [
        (
            f"n={row['n']:,} d={row['d']} p={row['p']}",
            row["where"],
            f"{1e3 * row['iteration']:.1f} ms",
            f"{row['call']:.2f} s",
        )
        for row in rows.values()
        if "iteration" in row
    ]
    return (
        "R-FISTA on gated networks and the augmented Lagrangian method on ReLU networks, with an "
        "output bias. A cell has the certified gap and, in brackets, by how much the objective "
        "differs from that of NumPy's Newton or working sets at a gap of 1e-9, relative to it. "
        f"Wanted are gaps of {_wanted(TOLERANCES)} for gated networks and of {WANTED:g} for ReLU "
        f"networks after {MAX_ITER['relu']} iterations, and bounds on the right sides of the "
        "optimal value. NumPy works in float64 to either gap. Of the strict devices the "
        "first refuses what would copy silently, and the second has no float64.\n\n"
        + markdown_table(["where", *problems], lines)
        + (_speeds(times) if times else "")
    )


def _speeds(times: list[tuple[str, ...]]) -> str:
    return (
        "\n\nR-FISTA, squared loss, one output, in single precision: an iteration, and a call "
        "without any, which copies the data there and computes a certificate.\n\n"
        + markdown_table(("instance", "where", "iteration", "call"), times)
    )


def _wanted(tolerances: dict[str, float]) -> str:
    return " and ".join(f"{tol:g} ({precision})" for precision, tol in tolerances.items())


def _cell(row: Row | None) -> str:
    if row is None:
        return "–"
    return f"{row['relative_gap']:.1e} ({row['difference']:.0e})"


def misses(rows: Rows) -> list[str]:
    found = []
    for case, row in rows.items():
        if "holds" not in row:
            continue
        if not row["holds"]:
            found.append(f"{case}: a bound is on the wrong side of the optimal value")
        if not row["relative_gap"] <= row["tol"]:
            found.append(f"{case}: gap {row['relative_gap']:.1e}, wanted {row['tol']:g}")
    return found


BENCHMARK = Benchmark("gpu", "Devices agree with NumPy", measure, present, misses)
