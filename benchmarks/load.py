"""What happens under load: many rows, columns, patterns, classes, fits and threads.

Each piece runs in a process of its own (`python -m benchmarks.load REQUEST`), so that its peak of
memory is its own, and with a time limit where it would not finish: then the gap that was reached
says what the time has bought. A run goes on with the pieces that
are not measured yet, or have failed.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.memory import peak_bytes
from benchmarks.record import ROOT, Benchmark, Options, Row, Rows, markdown_table

MAX_SECONDS = 60.0  # of a run; posing the problem and its last certificate come on top
OVERRUN = 3  # times the limit that a run may take before it is ended from outside
LEAK = 1.02  # memory after all fits, relative to that after a tenth of them
SHARE = 0.1  # lam, of lambda_max

# name -> (n, d, p, C), and a small version of it
SIZES: dict[str, tuple[tuple[int, int, int, int], tuple[int, int, int, int]]] = {
    "200,000 rows": ((200_000, 20, 100, 1), (2_000, 5, 10, 1)),
    "5,000 columns": ((1_000, 5_000, 100, 1), (50, 200, 10, 1)),
    "20,000 patterns": ((1_000, 20, 20_000, 1), (100, 5, 200, 1)),
    "100 classes": ((2_000, 20, 200, 100), (200, 5, 10, 10)),
}
KINDS = ("gated", "relu")
OTHERS = ("predict 1,000,000 rows", "1,000 fits in a row", "eight threads")


def measure(options: Options, done: Rows) -> Iterator[tuple[str, Row]]:
    limit = options.max_seconds or (2.0 if options.quick else MAX_SECONDS)
    pieces = [*OTHERS, *(f"{name}, {kind}" for name, kind in itertools.product(SIZES, KINDS))]
    for piece in pieces:
        if piece in done and not done[piece].get("failed"):
            continue
        request = json.dumps({"piece": piece, "quick": options.quick, "limit": limit})
        yield piece, _in_a_process(request, OVERRUN * limit + 60)


def _in_a_process(request: str, patience: float) -> Row:
    """What a piece prints; one that does not end is a failure like any other."""
    command = [sys.executable, "-m", "benchmarks.load", request]
    try:
        process = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=patience
        )
    except subprocess.TimeoutExpired:
        return {"outcome": f"was ended after {patience:g} s", "failed": True}
    if process.returncode:
        return {"outcome": f"ended with code {process.returncode}", "failed": True}
    return json.loads(process.stdout)


# -- the process that is measured


def piece(name: str, quick: bool, limit: float) -> Row:
    import numpy as np

    import cvxnn

    np.zeros(1), cvxnn.solve, cvxnn.ReLURegressor  # imported before the clock starts
    before = peak_bytes()
    wall, processor = time.perf_counter(), time.process_time()
    functions: dict[str, Callable[[bool], Row]] = dict(
        zip(OTHERS, (many_predictions, many_fits, many_threads), strict=True)
    )
    if name in functions:
        row = functions[name](quick)
    else:
        size, kind = name.rsplit(", ", 1)
        row = fit_of(SIZES[size][quick], kind, limit)
    return {
        **row,
        "wall": time.perf_counter() - wall,
        "processor": time.process_time() - processor,
        "imports": before,
        "peak": peak_bytes(),
    }


def fit_of(size: tuple[int, int, int, int], kind: str, limit: float) -> Row:
    """Sample, pose and solve; labels are those of the largest of C random ReLU networks."""
    import numpy as np

    import cvxnn

    n, d, p, C = size
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    Z = np.maximum(X @ rng.standard_normal((d, 3 * C)), 0).reshape(n, C, 3).sum(axis=2)
    Y = Z - Z.mean() if C == 1 else np.eye(C)[Z.argmax(axis=1)]
    patterns = cvxnn.sample_patterns(X, p, random_state=0)
    cls = cvxnn.CReLU if kind == "relu" else cvxnn.CGReLU
    loss = "squared" if C == 1 else "softmax"
    problem = cls(X, Y, patterns, 1.0, loss=loss)
    problem = problem.with_lam(SHARE * cvxnn.lambda_max(problem))
    solution = cvxnn.solve(problem, max_seconds=limit, on_failure="ignore")
    return {
        "size": {"n": n, "d": d, "p": len(patterns), "C": C},
        "outcome": str(solution.status),
        "relative_gap": solution.certificate.relative_gap,
        "neurons": solution.n_active,
    }


def many_predictions(quick: bool) -> Row:
    import numpy as np

    import cvxnn

    rng = np.random.default_rng(0)
    n, d, m = (10_000 if quick else 1_000_000), 20, 500
    network = cvxnn.ReLUNetwork(
        W1=rng.standard_normal((m, d)), b1=rng.standard_normal(m), W2=rng.standard_normal((m, 1))
    )
    X = rng.standard_normal((n, d))
    predictions = network.predict(X)
    some = rng.choice(n, 100, replace=False)
    error = np.max(np.abs(predictions[some] - network.predict(X[some])))
    same = bool(error <= 1e-12 * np.abs(predictions).max())
    outcome = "the same as in small pieces" if same else "not the same in pieces"
    return {"size": {"n": n, "d": d, "neurons": m}, "outcome": outcome, "failed": not same}


def _small_fit(seed: int) -> Any:
    import numpy as np

    import cvxnn

    rng = np.random.default_rng(seed)
    X = rng.standard_normal((100, 5))
    y = np.abs(X[:, 0]) - X[:, 1] + 0.1 * rng.standard_normal(100)
    return cvxnn.ReLURegressor(0.03, n_patterns=30, random_state=seed).fit(X, y)


def many_fits(quick: bool) -> Row:
    """Memory in use now and then; what is kept for the next fit is there after the first few."""
    total = 40 if quick else 1000
    resident = {}
    for k in range(total):
        _small_fit(k)
        if k + 1 in (total // 10, total):
            resident[k + 1] = _resident_bytes()
    first, last = resident.values()
    leaks = last > LEAK * first
    text = " -> ".join(f"{size / 1e6:.1f} MB after {k:,}" for k, size in resident.items())
    size = {"n": 100, "d": 5, "p": 30}
    return {"size": size, "outcome": text, "resident": resident, "failed": leaks and not quick}


def _resident_bytes() -> int:
    import gc
    import resource
    from pathlib import Path

    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def many_threads(quick: bool) -> Row:
    """Eight threads at once, against the same fits one after the other."""
    seeds = range(8)
    alone = [_numbers(_small_fit(seed)) for seed in seeds]
    found: dict[int, bytes] = {}

    def work(seed: int) -> None:
        for _ in range(1 if quick else 5):
            found[seed] = _numbers(_small_fit(seed))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in seeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal = [found.get(seed) for seed in seeds] == alone
    outcome = "bit-equal to one thread's" if equal else "not equal to one thread's"
    return {"size": {"n": 100, "d": 5, "p": 30}, "outcome": outcome, "failed": not equal}


def _numbers(model: Any) -> bytes:
    network = model.network_
    return b"".join(a.tobytes() for a in (network.W1, network.b1, network.W2, network.b2))


# -- the table


def present(rows: Rows) -> str:
    lines = [
        (
            case,
            ", ".join(f"{name} = {size:,}" for name, size in row.get("size", {}).items()),
            _outcome(row),
            *(f"{row[key]:.1f}" if key in row else "-" for key in ("wall", "processor")),
            f"{row['peak'] / 1e6:,.0f}" if "peak" in row else "-",
        )
        for case, row in rows.items()
    ]
    header = ("piece", "size", "outcome", "wall (s)", "processor (s)", "peak (MB)")
    imports = max((row.get("imports", 0) for row in rows.values()), default=0)
    return (
        f"Each piece in a fresh process; lam is {SHARE:g} of lambda_max, the tolerance 1e-4, and "
        f"the time limit of a run {MAX_SECONDS:g} s: `solve(max_seconds=...)` returns the best "
        "point with what is proven of it. Patterns, problem and lambda_max come before, the last "
        "certificate after that. The peak is that of the process, "
        f"{imports / 1e6:.0f} MB of which are there before the piece begins.\n\n"
        + markdown_table(header, lines, texts=3)
    )


def _outcome(row: Row) -> str:
    if "relative_gap" not in row:
        return row["outcome"]
    return f"{row['outcome']}, gap {row['relative_gap']:.1e}, {row['neurons']:,} neurons"


def misses(rows: Rows) -> list[str]:
    return [f"{case}: {row['outcome']}" for case, row in rows.items() if row.get("failed")]


BENCHMARK = Benchmark("load", "Under load", measure, present, misses, resumable=True)

if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps(piece(asked["piece"], asked["quick"], asked["limit"])))
