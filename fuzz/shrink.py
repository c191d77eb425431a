"""Small problems that fail like large ones, kept as tests in tests/fuzz_cases."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.cases import RELU, Case, Instance
from fuzz.judge import FAILURES
from fuzz.trial import Line, attempt

FOLDER = Path(__file__).parent.parent / "tests" / "fuzz_cases"
PATIENCE = 20.0  # seconds for one


def signature(line: Line) -> tuple[str, str]:
    """The verdict and its first reason, without the number in it."""
    return line["verdict"], _first_reason(line).split(" by ")[0][:80]


def _first_reason(line: Line) -> str:
    reasons = [r for r in line["reasons"] if r.startswith(line["verdict"])] or line["reasons"]
    return reasons[0] if reasons else ""


def _excess(line: Line) -> float:
    """By how much, where the reason says so."""
    try:
        return float(_first_reason(line).rpartition(" by ")[2])
    except ValueError:
        return 0.0


def shrink(instance: Instance, line: Line, seconds: float = PATIENCE) -> Instance:
    """A smaller instance that fails like `line`, and by no less than a tenth of it: what can be
    left out is, again and again, until nothing more can or time is up."""
    deadline, wanted = time.perf_counter() + seconds, signature(line)

    def fails(candidate: Instance) -> bool:
        found = attempt(lambda: candidate, with_conic="conic" in wanted[1])
        return signature(found) == wanted and _excess(found) >= 0.1 * _excess(line)

    progress = True
    while progress:
        progress = False
        for step in (_rows, _patterns, _columns, _classes, _options, _digits):
            smaller = _reduced(instance, step, fails, deadline)
            progress = progress or smaller is not instance
            instance = smaller
            if time.perf_counter() > deadline:
                return instance
    return instance


def _reduced(
    instance: Instance,
    step: Callable[[Instance], Iterator[Instance]],
    fails: Callable[[Instance], bool],
    deadline: float,
) -> Instance:
    """The first candidate of a step that still fails, and of that one, until none does."""
    found = True
    while found:
        found = False
        for candidate in step(instance):
            if time.perf_counter() > deadline:
                return instance
            if fails(candidate):
                instance, found = candidate, True
                break
    return instance


def _without(m: int) -> Iterator[np.ndarray]:
    """What is left of range(m) without a half, a quarter, ..., one of it."""
    length = m // 2
    while length >= 1:
        for start in range(0, m, length):
            kept = np.r_[0:start, min(start + length, m) : m]
            if len(kept):
                yield kept
        length //= 2


def _rows(instance: Instance) -> Iterator[Instance]:
    for kept in _without(len(instance.X)):
        weight = instance.sample_weight
        yield _distinct(
            instance.changed(
                X=instance.X[kept],
                Y=instance.Y[kept],
                mask=instance.mask[kept],
                sample_weight=None if weight is None else weight[kept],
            )
        )


def _distinct(instance: Instance) -> Instance:
    """Fewer rows may make patterns equal, or zero."""
    _, first = np.unique(instance.mask, axis=1, return_index=True)
    kept = [i for i in sorted(first) if instance.mask[:, i].any()]
    return _select_patterns(instance, np.array(kept, dtype=int))


def _select_patterns(instance: Instance, kept: np.ndarray) -> Instance:
    changes: dict[str, Any] = {"mask": instance.mask[:, kept]}
    if instance.gates is not None and instance.gate_bias is not None:
        changes |= {"gates": instance.gates[:, kept], "gate_bias": instance.gate_bias[kept]}
    return instance.changed(**changes)


def _patterns(instance: Instance) -> Iterator[Instance]:
    for kept in _without(instance.mask.shape[1]):
        yield _select_patterns(instance, kept)
    if instance.gates is not None:
        yield instance.changed(gates=None, gate_bias=None)


def _columns(instance: Instance) -> Iterator[Instance]:
    for kept in _without(instance.X.shape[1]):
        yield instance.changed(X=instance.X[:, kept], gates=None, gate_bias=None)


def _classes(instance: Instance) -> Iterator[Instance]:
    for kept in _without(instance.Y.shape[1]):
        Y = instance.Y[:, kept]
        if instance.loss == "softmax":
            total = Y.sum(axis=1, keepdims=True)
            if len(kept) < 2 or not np.all(total > 0):
                continue
            Y = Y / total
        yield instance.changed(Y=Y)


def _options(instance: Instance) -> Iterator[Instance]:
    for name in ("normalize", "bias", "output_bias", "sparse", "strict"):
        if getattr(instance, name):
            yield instance.changed(**{name: False})
    if instance.sample_weight is not None:
        yield instance.changed(sample_weight=None)
    if instance.X.dtype == np.float32:
        yield instance.changed(X=instance.X.astype(float), Y=instance.Y.astype(float))
    if instance.program == RELU and instance.singular == "keep":
        yield instance.changed(singular="replace")
    if instance.solver != "auto":
        yield instance.changed(solver="auto")


def _digits(instance: Instance) -> Iterator[Instance]:
    """Numbers of three digits."""
    for name in ("X", "Y", "lam", "sample_weight", "huber_delta"):
        value = getattr(instance, name)
        if value is None or (name == "Y" and instance.loss in ("logistic", "softmax")):
            continue
        rounded = np.vectorize(lambda x: float(f"{x:.3g}"))(value)
        if not np.array_equal(rounded, value):
            rounded = rounded.astype(value.dtype) if name in "XY" else rounded
            yield instance.changed(**{name: rounded if np.ndim(value) else float(rounded)})


def keep(seed: int, line: Line, folder: Path = FOLDER) -> Path | None:
    """Shrink a failure and write it down; None if it does not fail again."""
    case, wanted = Case.draw(seed, line["number"]), signature(line)
    if wanted[0] not in FAILURES:
        raise ValueError(f"{wanted[0]!r} is no failure")
    try:
        instance = case.instance()
    except Exception:  # what fails without a lam fails with one
        instance = case.unscaled()
    again = attempt(lambda: instance, with_conic="conic" in wanted[1])
    if signature(again) != wanted:
        return None
    small = shrink(instance, again)
    folder.mkdir(parents=True, exist_ok=True)
    words = (wanted[0], case.program, small.loss, small.penalty, str(line["number"]))
    path = folder / ("-".join(words).replace(" ", "-").lower() + ".json")
    what = f"seed {seed}, number {line['number']}, {case.kind}"
    small.save(path, f"{what}: {_first_reason(again)}")
    return path
