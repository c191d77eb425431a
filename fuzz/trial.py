"""One problem, from its number to a line of results."""

from __future__ import annotations

import math
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

import cvxnn
from cvxnn.cones.interiors import InteriorError
from fuzz.cases import Case, Instance
from fuzz.judge import judge

MAX_SECONDS = 0.4  # for a solver
HUNG = 30  # seconds after which a trial is given up, as an error
CONIC_EVERY, CONIC_ENTRIES = 3, 1200  # problems judged by a conic solver too: which, and n p d C
_HOME = str(Path(cvxnn.__file__).parent)

Line = dict[str, Any]


def run(seed: int, number: int) -> Line:
    """Draw, solve and judge; whatever happens is a line."""
    case = Case.draw(seed, number)
    small = case.n * case.p * case.d * case.C <= CONIC_ENTRIES
    with_conic = small and (number // 8) % CONIC_EVERY == 0
    facts = {
        "seed": seed,
        "number": number,
        **{name: getattr(case, name) for name in ("kind", "program", "solver", "loss", "penalty")},
        "size": [case.n, case.d, case.p, case.C],
        "share": _short(case.share),
        "tol": case.tol,
        "moderate": case.moderate,
    }
    return facts | attempt(case.instance, with_conic=with_conic)


def attempt(make: Callable[[], Instance], *, with_conic: bool = False) -> Line:
    """Make an instance, solve and judge it, and have its certificate verified. Refused is what the
    library says no to, by a ValueError of its own; any other exception is an error."""
    started = time.perf_counter()
    try:
        with _time_limit(HUNG), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            instance = make()
            solution = instance.solve(MAX_SECONDS)
    except Exception as error:  # of any kind: that is what is looked for
        text = f"{type(error).__name__}: {error}"
        return {"verdict": _verdict_on(error), "reasons": [text[:200]]}
    solved = time.perf_counter()
    try:
        with _time_limit(HUNG), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            judgement = judge(solution, with_conic=with_conic)
            judged = time.perf_counter()
            with threadpool_limits(2):  # another number of BLAS threads than it was solved with
                checked = cvxnn.verify(solution)
            verified = time.perf_counter()
    except Exception as error:
        return {"verdict": "error", "reasons": [_where(error)]}
    claim, verdict = solution.certificate, judgement.verdict
    line = {
        "verdict": "not confirmed" if verdict == "ok" and not checked.agrees else verdict,
        "reasons": [*judgement.reasons, *checked.differences],
        "status": str(solution.status),
        "gap": _short(claim.relative_gap),
        "plain": _short(min((p.relative_gap for p in solution.history), default=math.inf)),
        "positive": claim.lower_bound > 0,
        "rigour": _short(judgement.rigour),
        "judged": " ".join(j.replace(" ", "-") for j in judgement.judged),
        # to solve, to judge and to verify
        "seconds": [_short(b - a) for a, b in pairwise((started, solved, judged, verified))],
    }
    if claim.caveats:
        line["caveats"] = list(claim.caveats)
    numeric = {str(w.message)[:80] for w in warned if issubclass(w.category, RuntimeWarning)}
    return line | ({"warned": sorted(numeric)} if numeric else {})


def _verdict_on(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    own = last.filename.startswith(_HOME)
    if own and type(error) is ValueError and "outside their cones" not in str(error):
        return "refused"  # the solver's own weights are no reason to refuse
    if own and isinstance(error, RuntimeError) and "returned no point" in str(error):
        return "no answer"
    if isinstance(error, InteriorError):
        return "no answer"
    return "error"


def _where(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(last.filename).name}:{last.lineno}"
    return f"the judge failed at {place}: {type(error).__name__}: {error}"[:200]


def _short(x: float | None) -> float | None:
    """Three digits, so that ten thousand lines stay small."""
    return None if x is None or not math.isfinite(x) else float(f"{x:.3g}")


class HungError(Exception):
    """A trial took too long."""


@contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    def give_up(*_: Any) -> None:
        raise HungError(f"no end after {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
