"""Generated patterns against random ones, and against Adam and gradient descent.

Twelve UCI sets, two losses, three strengths in units of the largest price that a search finds at
the zero network. Every piece is written as soon as it is measured, and the command goes on where
it stopped. `--quick` takes two small sets and few steps.
"""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import cvxnn
from benchmarks.datasets import Dataset, available
from benchmarks.gradient_runs import LONG, METHODS, SEEDS, STEPS, TRIAL, WIDTHS, Task, tuned
from benchmarks.record import Benchmark, Options, Row, Rows, markdown_table
from cvxnn import budget
from cvxnn.generation.pricing import DEEP, Pricing
from cvxnn.generation.rounds import Round
from cvxnn.solvers.results import Status

SETS = (
    "monks-3",
    "hepatitis",
    "planning",
    "parkinsons",
    "conn-bench-sonar-mines-rocks",
    "statlog-heart",
    "breast-cancer",
    "heart-hungarian",
    "vertebral-column-2clases",
    "ionosphere",
    "breast-cancer-wisc-diag",
    "pima",
)
QUICK_SETS = SETS[:1]
LOSSES = ("logistic", "squared")
SHARES = (0.1, 0.03, 0.01)
NUMBERS = (500, 2_000, 10_000)  # of random patterns
LIMIT = 300.0  # processor seconds of one run of ours
TOL = 1e-4  # of programs with random patterns
# Of generation, which may end this far above what its patterns allow, and has to be compared with
# gradient runs that come closer than TOL to it.
FINE = 1e-5
SPLITS = 3
KINDS = ("generated", "random")  # of patterns, on rows that were held out
BELOW = 33  # of 36 problems of each loss, where generation has to end below all gradient runs
SAME = 1e-6  # relative; objectives this close count as equal


class Problem(NamedTuple):
    """Standardised columns X, targets y of -1 and 1, the loss, and the strength."""

    X: np.ndarray
    y: np.ndarray
    loss: str
    lam: float

    def convex(self, p: int) -> cvxnn.CReLU:
        patterns = cvxnn.sample_patterns(self.X, p, bias=True, random_state=0)
        return cvxnn.CReLU(self.X, self.y, patterns, self.lam, loss=self.loss, bias=True)

    def task(self) -> Task:
        return Task(np.column_stack([self.X, np.ones(len(self.X))]), self.y, self.lam, self.loss)


def measure(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    warnings.simplefilter("ignore")
    budget.clock = time.process_time  # limits mean the same on a busy machine
    limit = options.max_seconds or LIMIT
    sets = available(QUICK_SETS if options.quick else SETS)
    for piece in ("ours", "gradients", "test"):  # what is cheap first
        for name in sets:
            X, y = _standardised(name)
            for loss in LOSSES:
                case = f"{name}, {loss}"
                if case not in rows:
                    rows[case] = {"largest": largest_price(X, y, loss)}
                    yield case, rows[case]
                if piece == "test":
                    if f"{case}: test" not in rows and not options.quick:
                        yield f"{case}: test", _tests(X, y, loss, rows[case]["largest"], limit)
                    continue
                for share in SHARES[:1] if options.quick else SHARES:
                    problem = Problem(X, y, loss, share * rows[case]["largest"])
                    yield from _missing(
                        piece, f"{case}, {share:g}", problem, rows, limit, options.quick
                    )


def _missing(
    piece: str, case: str, problem: Problem, rows: Rows, limit: float, quick: bool
) -> Iterator[tuple[str, Row]]:
    """Pieces of one problem that have not been measured."""
    if piece == "ours":
        if f"{case}: generated" not in rows:
            yield f"{case}: generated", _generated(problem, limit)
        for p in NUMBERS[:1] if quick else NUMBERS:
            if f"{case}: {p}" not in rows:
                yield f"{case}: {p}", _random(problem, p, limit)
        return
    trial, steps, seeds, widths = (20, 50, 2, WIDTHS[:1]) if quick else (TRIAL, LONG, SEEDS, WIDTHS)
    for method in METHODS:
        for width in widths:
            if f"{case}: {method} {width}" not in rows:
                found = tuned(problem.task(), method, width, trial=trial, steps=steps, seeds=seeds)
                yield f"{case}: {method} {width}", found._asdict()


def _standardised(name: str) -> tuple[np.ndarray, np.ndarray]:
    data = Dataset.load(name)
    spread = data.X.std(axis=0)
    X = (data.X - data.X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return X[:, spread > 0], data.targets[:, 0]


def largest_price(X: np.ndarray, y: np.ndarray, loss: str) -> float:
    """The largest price that a deep search finds at the zero network: lambda_max over all patterns,
    as far as a search can tell."""
    problem = Problem(X, y, loss, 1.0).convex(1)
    Theta = np.asarray(problem.loss.gradient(np.zeros((len(X), 1))))
    rows = problem.operator_double.rows()
    return float(
        np.abs(Pricing(rows, np.random.default_rng(0)).search(Theta, None, DEEP).prices[0])
    )


def _generated(problem: Problem, limit: float, **settings: Any) -> Row:
    start, trace = time.process_time(), []

    def follow(progress: Round) -> None:
        trace.append([time.process_time() - start, progress.objective])

    found = cvxnn.train(
        problem.X,
        problem.y,
        problem.lam,
        loss=problem.loss,
        prove=False,
        tol=FINE,
        max_seconds=limit,
        callback=follow,
        on_failure="ignore",
    )
    return {
        "objective": found.objective,
        "seconds": time.process_time() - start,
        "gap": found.certificate.relative_gap,
        "price": None if found.price is None else found.price / problem.lam,
        "neurons": found.network.n_neurons,
        "patterns": len(found.patterns),
        "status": str(found.status),
        "trace": trace,
    }


def _random(problem: Problem, p: int, limit: float) -> Row:
    start = time.process_time()
    solution = cvxnn.solve(problem.convex(p), tol=TOL, max_seconds=limit, on_failure="ignore")
    return {
        "objective": solution.certificate.objective,
        "seconds": time.process_time() - start,
        "gap": solution.certificate.relative_gap,
        "neurons": solution.n_active,
    }


def _tests(X: np.ndarray, y: np.ndarray, loss: str, largest: float, limit: float) -> Row:
    """Errors on rows that were held out, at the strength that other rows chose: of generated
    patterns and of NUMBERS[0] random ones; and how many fits the time limit ended."""
    from sklearn.model_selection import train_test_split

    found: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    ended = 0
    for seed in range(SPLITS):
        rest, test = train_test_split(
            np.arange(len(y)), test_size=0.2, random_state=seed, stratify=y
        )
        fit, choose = train_test_split(rest, test_size=0.25, random_state=seed, stratify=y[rest])
        for kind, results in found.items():
            nets = []
            for share in SHARES:
                problem = Problem(X[fit], y[fit], loss, share * largest)
                if kind == "random":
                    solution = cvxnn.solve(problem.convex(NUMBERS[0]), on_failure="ignore")
                    nets.append(solution.network())
                else:
                    trained = cvxnn.train(
                        *problem[:2],
                        problem.lam,
                        loss=loss,
                        prove=False,
                        max_seconds=limit,
                        on_failure="ignore",
                    )
                    ended += trained.status is Status.TIME_LIMIT
                    nets.append(trained.network)
            losses = [_mean_loss(net.predict(X[choose]), y[choose], loss) for net in nets]
            best = int(np.argmin(losses))
            z = nets[best].predict(X[test])
            error = float(np.mean((z > 0) != (y[test] > 0)))
            results.append([SHARES[best], error, _mean_loss(z, y[test], loss)])
    return found | {"ended": ended}


def _mean_loss(z: np.ndarray, y: np.ndarray, loss: str) -> float:
    if loss == "squared":
        return float(0.5 * np.mean((z - y) ** 2))
    return float(np.mean(np.logaddexp(0.0, -y * z)))


class Verdict(NamedTuple):
    """One problem: what generation found against the others, as far as they are measured.

    random : objectives by the number of patterns, in units of that of generation.
    gradients : the best of each method, in these units.
    sooner : whether generation reached the objective of the most random patterns before the program
        with them was solved.
    """

    case: str
    generated: Row
    random: dict[int, float]
    gradients: dict[str, float]
    sooner: bool | None
    seconds_to_reach: float | None
    random_seconds: float | None

    @property
    def below_gradients(self) -> bool | None:
        if len(self.gradients) < len(METHODS):
            return None
        return min(self.gradients.values()) > 1 - SAME

    @property
    def below_random(self) -> bool | None:
        if NUMBERS[-1] not in self.random:
            return None
        return min(self.random.values()) > 1 - SAME


def verdicts(rows: Rows, loss: str) -> Iterator[Verdict]:
    for name in SETS:
        for share in SHARES:
            case = f"{name}, {loss}, {share:g}"
            generated = rows.get(f"{case}: generated")
            if generated is None:
                continue
            mine = generated["objective"]
            random = {p: rows[f"{case}: {p}"] for p in NUMBERS if f"{case}: {p}" in rows}
            gradients = {}
            for method in METHODS:
                runs = [rows.get(f"{case}: {method} {width}") for width in WIDTHS]
                values = [min(run["objectives"]) for run in runs if run is not None]
                if len(values) == len(WIDTHS):
                    gradients[method] = min(values) / mine
            most = random.get(NUMBERS[-1])
            reached = None
            if most is not None:
                times = (t for t, value in generated["trace"] if value <= most["objective"])
                reached = next(times, math.inf)
            yield Verdict(
                f"{name}, {share:g}",
                generated,
                {p: row["objective"] / mine for p, row in random.items()},
                gradients,
                None if most is None else reached < most["seconds"],
                reached,
                None if most is None else most["seconds"],
            )


def present(rows: Rows) -> str:
    parts = [
        "Standardised columns, a hidden bias inside the group, no output bias. Strengths are in "
        "units of the largest price that a search finds at the zero network. Objectives are in "
        "units of the one that generation ends with: above 1 is worse. Seconds are processor "
        f"seconds of one thread. Generation has a tolerance of {FINE:g}, for prices and gaps. "
        f"Random patterns are Gaussian, solved to {TOL:g}. Adam and "
        f"gradient descent with momentum (SGD on all rows): the step size from {STEPS[0]:g} to "
        f"{STEPS[-1]:g} that is best for one seed after {TRIAL:,} steps, then {SEEDS} seeds with "
        f"{LONG:,} steps, widths {', '.join(map(str, WIDTHS))}; the best of all of them."
    ]
    for loss in LOSSES:
        found = list(verdicts(rows, loss))
        if found:
            parts += [f"## {loss.capitalize()} loss", _summary(found), _table(found)]
    tests = [name for name in rows if name.endswith(": test")]
    if tests:
        parts += ["## Rows that were held out", _test_table(rows)]
    return "\n\n".join(parts)


def _summary(found: list[Verdict]) -> str:
    def count(values: list[bool | None]) -> str:
        known = [value for value in values if value is not None]
        return f"{sum(known)} of {len(known)}"

    ratios = [v.random[NUMBERS[0]] for v in found if NUMBERS[0] in v.random]
    return (
        f"Generation ends below {NUMBERS[-1]:,} random patterns on "
        f"{count([v.below_random for v in found])} problems measured, reaches their objective "
        f"sooner than it takes to solve with them on {count([v.sooner for v in found])}, and ends "
        f"no higher than every gradient run on {count([v.below_gradients for v in found])}. "
        + (
            f"{NUMBERS[0]} random patterns are {statistics.median(ratios) - 1:.1%} above it in the "
            "median."
            if ratios
            else ""
        )
    )


def _table(found: list[Verdict]) -> str:
    header = (
        "set, strength",
        *(f"{p:,} random" for p in NUMBERS),
        *METHODS,
        "price found",
        "neurons",
        "seconds",
        f"to the objective of {NUMBERS[-1]:,}",
        f"solving with {NUMBERS[-1]:,}",
    )
    lines = []
    for v in found:
        price = v.generated["price"]
        lines.append(
            (
                v.case,
                *(_ratio(v.random.get(p)) for p in NUMBERS),
                *(_ratio(v.gradients.get(m)) for m in METHODS),
                "" if price is None else f"{price:.5f}",
                v.generated["neurons"],
                f"{v.generated['seconds']:.1f}",
                "" if v.seconds_to_reach is None else f"{v.seconds_to_reach:.2f}",
                "" if v.random_seconds is None else f"{v.random_seconds:.1f}",
            )
        )
    return markdown_table(header, lines)


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.5f}"


def _test_table(rows: Rows) -> str:
    lines = []
    for case, row in rows.items():
        if not case.endswith(": test"):
            continue
        cells = []
        for kind in KINDS:
            _, errors, losses = zip(*row[kind], strict=True)
            cells += [f"{statistics.mean(errors):.1%}", f"{statistics.mean(losses):.3f}"]
        lines.append((case.removesuffix(": test"), *cells, row["ended"]))
    header = (
        "set, loss",
        "error, generated",
        "loss, generated",
        f"error, {NUMBERS[0]} random",
        f"loss, {NUMBERS[0]} random",
        "fits that the limit ended",
    )
    return (
        f"The strength is chosen by a fifth of the rows, another fifth is the test; means of "
        f"{SPLITS} splits. {_test_summary(rows)} Of {SPLITS * len(SHARES)} fits with generated "
        "patterns, those that met the time limit of the command, in processor seconds, ended with "
        "their best network.\n\n" + markdown_table(header, lines)
    )


def _test_summary(rows: Rows) -> str:
    """How often either kind of patterns has the smaller mean loss, and the smaller mean error."""
    tests = [row for case, row in rows.items() if case.endswith(": test")]
    words = []
    for column, what in ((1, "error"), (2, "loss")):
        pairs = [
            [statistics.mean(split[column] for split in row[kind]) for kind in KINDS]
            for row in tests
        ]
        better, worse = (
            sum(sign * (theirs - ours) > 0 for ours, theirs in pairs) for sign in (1, -1)
        )
        words.append(f"the smaller {what} in {better} and the larger in {worse}")
    return f"Of {len(tests)} cases generated patterns have {', '.join(words)}."


def misses(rows: Rows) -> list[str]:
    lines = []
    for loss in LOSSES:
        found = list(verdicts(rows, loss))
        judged = [v.below_gradients for v in found if v.below_gradients is not None]
        wanted = len(SETS) * len(SHARES)
        if len(judged) < wanted:
            lines.append(f"{loss}: gradient runs of {wanted - len(judged)} problems not measured")
        if judged.count(False) > wanted - BELOW:
            lines.append(f"{loss}: a gradient run is better on {judged.count(False)} problems")
        unseen = [name for name in SETS if f"{name}, {loss}: test" not in rows]
        if unseen:
            lines.append(f"{loss}: rows held out are not measured for {', '.join(unseen)}")
        lines += [
            f"{loss}, {v.case}: random patterns are better"
            for v in found
            if v.below_random is False
        ]
        lines += [
            f"{loss}, {v.case}: {NUMBERS[-1]:,} random patterns were quicker"
            for v in found
            if v.sooner is False
        ]
    return lines


BENCHMARK = Benchmark(
    "all_patterns",
    "Generated patterns, random patterns, gradient methods",
    measure,
    present,
    misses,
    resumable=True,
)
