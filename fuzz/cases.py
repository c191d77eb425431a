"""What is tried: problems drawn from a seed and a number, and the arrays that define them.

A `Case` is a choice of program, loss, penalty, solver and kind of data. Its `Instance` is the
arrays: what a problem is made of, and what a failure is kept as.
"""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import cvxnn

LOSSES = ("squared", "huber", "logistic", "softmax")
PENALTIES = ("neuron", "feature", "l1", "l2", "none")
GATED, RELU = "C-GReLU", "C-ReLU"
SMOOTH = ("l2", "none")
# programs, penalties of the gated one, losses
SOLVERS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "newton": ((GATED, RELU), ("neuron",), LOSSES),
    "rfista": ((GATED,), PENALTIES, LOSSES),
    "al": ((RELU,), ("neuron",), LOSSES),
    "decomposition": ((RELU,), ("neuron",), LOSSES),
    "direct": ((GATED,), SMOOTH, ("squared",)),
    "lsmr": ((GATED,), SMOOTH, ("squared",)),
    "cvxpy": ((GATED, RELU), PENALTIES, LOSSES),
    "auto": ((GATED, RELU), PENALTIES, LOSSES),
}
KINDS = {
    "plain": "normal X and targets of a small network",
    "scales": "X and y times 1e-8 to 1e8, columns too",
    "offsets": "means of X and y up to 1e9 spreads",
    "weights": "row weights from 1e-12 to 1e12",
    "ties": "small integers, and gates on which rows lie",
    "duplicates": "rows and columns that occur twice",
    "low rank": "X of low rank, or more columns than rows",
    "singular": "patterns that no gate produces",
    "soft targets": "probabilities, with zeros among them",
    "sparse": "X mostly zero, and held as such",
    "float32": "data in float32",
    "degenerate": "rows and columns of zeros, targets all alike",
    "mixed": "scales, offsets and weights at once",
}
UNABLE = {  # kinds that a solver refuses
    "direct": ("weights", "mixed", "soft targets"),
    "lsmr": ("weights", "mixed", "soft targets"),
    "decomposition": ("sparse",),
}


@dataclass(frozen=True)
class Case:
    """One draw. `share` is lam over lambda_max, or over a scale of its own for l2."""

    seed: int
    number: int
    kind: str
    program: str
    solver: str
    loss: str
    penalty: str
    n: int
    d: int
    p: int
    C: int
    share: float
    tol: float
    scale_x: float
    scale_y: float
    bias: bool
    output_bias: bool
    normalize: bool
    huber_delta: float
    singular: str

    @classmethod
    def draw(cls, seed: int, number: int) -> Case:
        """Solvers take turns, so that each has its eighth; all else is drawn among what they
        handle."""
        rng = np.random.default_rng([seed, number])
        solver = list(SOLVERS)[number % len(SOLVERS)]
        programs, penalties, losses = SOLVERS[solver]
        kind = str(rng.choice([k for k in KINDS if k not in UNABLE.get(solver, ())]))
        program = str(rng.choice(programs))
        if kind == "singular" and RELU in programs and rng.random() < 0.8:
            program = RELU
        loss = "softmax" if kind == "soft targets" else str(rng.choice(losses))
        if program == RELU:
            penalty = "none" if solver != "newton" and rng.random() < 0.15 else "neuron"
        else:
            often = [2 if name in ("feature", "l1") else 1 for name in penalties]
            penalty = str(rng.choice(np.repeat(penalties, often)))  # few solvers handle those
        offset = kind in ("offsets", "mixed")
        scaled = kind in ("scales", "mixed")
        reach = 8.0 if scaled and rng.random() < 0.7 else 4.0
        scales = 10.0 ** rng.uniform(-reach, reach, 2) if scaled or rng.random() < 0.2 else (1, 1)
        exponent = rng.uniform(-8, -3) if rng.random() < 0.35 else rng.uniform(-3, math.log10(2))
        return cls(
            seed=seed,
            number=number,
            kind=kind,
            program=program,
            solver=solver,
            loss=loss,
            penalty=penalty,
            n=int(rng.integers(6, 41)) if rng.random() < 0.9 else int(rng.integers(1, 6)),
            d=int(rng.integers(1, 6)),
            p=int(rng.integers(1, 11)),
            C=int(rng.integers(2 if loss == "softmax" else 1, 5)) if rng.random() < 0.6 else 2,
            share=0.0 if penalty == "none" else 10.0**exponent,
            tol=float(10.0 ** -rng.integers(2, 11)),
            scale_x=float(scales[0]),
            scale_y=float(scales[1]) if loss in ("squared", "huber") else 1.0,
            bias=bool(rng.random() < (0.7 if offset else 0.4)),
            output_bias=bool(rng.random() < (0.7 if offset else 0.4))
            and solver not in ("direct", "lsmr"),
            normalize=bool(rng.random() < 0.3),
            huber_delta=float(10.0 ** rng.uniform(-2, 1) * (scales[1] if reach > 4 else 1.0)),
            singular=str(rng.choice(["keep", "replace"])),
        )

    @property
    def moderate(self) -> bool:
        """Whether the tolerance should be met: scales of 1e-4 to 1e4, tol >= 1e-8."""
        scales = (self.scale_x, self.scale_y)
        return self.tol >= 1e-8 and all(1e-4 <= scale <= 1e4 for scale in scales)

    def instance(self) -> Instance:
        instance = self.unscaled()
        return instance if self.penalty == "none" else instance.at_share(self.share)

    def unscaled(self) -> Instance:
        """The instance at lam = 1, for which nothing has to be computed."""
        rng = np.random.default_rng([self.seed, self.number, 1])
        X = _features(self, rng)
        Y = _targets(self, rng, X)
        weighted = self.kind in ("weights", "mixed")
        if self.kind == "float32":
            X, Y = X.astype(np.float32), Y.astype(np.float32)
        return Instance(
            X=X,
            Y=Y,
            sample_weight=10.0 ** rng.uniform(-12, 12, self.n) if weighted else None,
            lam=0.0 if self.penalty == "none" else 1.0,
            sparse=self.kind == "sparse",
            **_patterns(self, rng, X),
            **{name: getattr(self, name) for name in _SHARED},
        )


@dataclass(frozen=True)
class Instance:
    """A problem as arrays and settings, and the solver to run."""

    program: str
    solver: str
    loss: str
    penalty: str
    bias: bool
    output_bias: bool
    normalize: bool
    huber_delta: float
    singular: str
    tol: float
    lam: float
    X: np.ndarray
    Y: np.ndarray
    mask: np.ndarray
    gates: np.ndarray | None
    gate_bias: np.ndarray | None
    strict: bool
    sample_weight: np.ndarray | None
    sparse: bool

    def problem(self) -> Any:
        patterns = cvxnn.Patterns(self.mask, self.gates, self.gate_bias, self.strict)
        settings: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("loss", "bias", "output_bias", "normalize", "sample_weight")
        }
        if self.loss == "huber":
            settings["huber_delta"] = self.huber_delta
        X = csr_array(self.X) if self.sparse else self.X
        if self.program == RELU:
            return cvxnn.CReLU(X, self.Y, patterns, self.lam, singular=self.singular, **settings)
        return cvxnn.CGReLU(X, self.Y, patterns, self.lam, penalty=self.penalty, **settings)

    def at_share(self, share: float) -> Instance:
        """The same at that share of lambda_max."""
        problem = quietly(self.problem)
        if self.penalty == "l2":
            X, w = problem.operator.rows(), problem.loss.row_weight[:, 0]
            X = X.toarray() if self.sparse else X
            largest = float(w @ np.sum(X.astype(np.float64) ** 2, axis=1))
        else:
            largest = cvxnn.lambda_max(problem)
        return self.changed(lam=share * largest if largest > 0 else share)

    def solve(self, max_seconds: float) -> Any:
        problem = quietly(self.problem)
        return cvxnn.solve(
            problem, self.solver, tol=self.tol, max_seconds=max_seconds, on_failure="ignore"
        )

    def changed(self, **changes: Any) -> Instance:
        return Instance(**{f.name: getattr(self, f.name) for f in fields(self)} | changes)

    def save(self, path: Path, note: str) -> None:
        """As JSON; decimal numbers of full length are exact."""
        content = {"note": note, "single": self.X.dtype == np.float32}
        for name, value in asdict(self).items():
            content[name] = value.tolist() if isinstance(value, np.ndarray) else value
        path.write_text(json.dumps(content) + "\n")

    @classmethod
    def load(cls, path: Path) -> Instance:
        content = json.loads(path.read_text())
        content.pop("note")
        dtype = np.float32 if content.pop("single") else np.float64
        content["mask"] = np.array(content["mask"], dtype=bool)
        for name in ("X", "Y"):
            content[name] = np.array(content[name], dtype=dtype)
        for name in ("gates", "gate_bias", "sample_weight"):
            if content[name] is not None:
                content[name] = np.array(content[name])
        return cls(**content)


_SHARED = ("program", "solver", "loss", "penalty", "bias", "output_bias", "normalize",
           "huber_delta", "singular", "tol")  # fmt: skip


def quietly(make: Any) -> Any:
    """What `make` returns, without a word about patterns that were replaced."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cvxnn.PatternWarning)
        return make()


def _features(case: Case, rng: np.random.Generator) -> np.ndarray:
    n, d, kind = case.n, case.d, case.kind
    X = rng.standard_normal((n, d))
    if kind == "ties":
        X = rng.integers(-2, 3, (n, d)).astype(float)
    elif kind == "low rank":
        rank = int(rng.integers(1, d + 1))
        X = rng.integers(-3, 4, (n, rank)) @ rng.standard_normal((rank, d))
    elif kind == "sparse":
        X = X * (rng.random((n, d)) < 0.35)
    elif kind == "duplicates":
        X = X[rng.integers(0, max(n // 2, 1), n)]
        X[:, rng.integers(0, d)] = X[:, 0]
    elif kind == "degenerate":
        X[rng.random(n) < 0.3] = 0.0
        X[:, rng.random(d) < 0.2] = 0.0
    if kind in ("offsets", "mixed") and rng.random() < 0.7:
        X = X + 10.0 ** rng.uniform(0, 9) * rng.standard_normal(d)
    if kind == "scales" and rng.random() < 0.4:
        X = X * 10.0 ** rng.uniform(-3, 3, d)
    return X * case.scale_x


def _targets(case: Case, rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    n, C = case.n, case.C
    size = np.abs(X).max(axis=0)
    unit = X / np.where(size > 0, size, 1.0)
    hidden = np.maximum(unit @ rng.standard_normal((case.d, 4)) + rng.standard_normal(4), 0)
    noise = 10.0 ** rng.uniform(-3, 0)
    Y = hidden @ rng.standard_normal((4, C)) + noise * rng.standard_normal((n, C))
    alike = case.kind == "degenerate" and rng.random() < 0.3
    if case.loss == "logistic":
        signs = np.where(np.median(Y, axis=0) < Y, 1.0, -1.0)
        signs[0] = -signs[-1]  # both classes, if there are two rows
        return np.ones_like(Y) if alike else signs
    if case.loss == "softmax":
        labels = (Y * 4).argmax(axis=1)
        labels[:C] = np.arange(C)[:n]
        if case.kind != "soft targets":
            return np.eye(C)[np.zeros_like(labels) if alike else labels]
        soft = rng.dirichlet(np.full(C, 10.0 ** rng.uniform(-2, 1)), n)
        soft = np.where((soft < 0.1) & (rng.random((n, C)) < 0.5), 0.0, soft)
        soft[0] += 0.1  # no class without a row
        return soft / soft.sum(axis=1, keepdims=True)
    if alike:
        Y = np.full_like(Y, 3.0)
    if case.kind in ("offsets", "mixed"):
        Y = Y + 10.0 ** rng.uniform(0, 9)
    if case.kind == "ties":
        Y = np.round(Y)
    return Y * case.scale_y


def _patterns(case: Case, rng: np.random.Generator, X: np.ndarray) -> dict[str, Any]:
    strict = bool(rng.random() < 0.2)
    if case.kind == "singular" and rng.random() < 0.7:
        # of gates, with some rows switched against them
        gates = rng.standard_normal((case.d, case.p))
        switched = rng.random((case.n, case.p)) < rng.choice([0.03, 0.1, 0.5])
        patterns = cvxnn.Patterns.from_mask((X @ gates >= 0) ^ switched)
    elif case.kind in ("ties", "singular") and not case.bias:
        gates = rng.integers(-2, 3, (case.d, case.p)).astype(float)
        gates[0] += ~gates.any(axis=0)
        patterns = cvxnn.Patterns.from_gates(X, gates, strict=strict)
    else:
        patterns = cvxnn.sample_patterns(
            X,
            case.p,
            active_share=float(rng.uniform(0.2, 0.8)) if case.bias else None,  # which needs biases
            normalize=case.normalize,
            strict=strict,
            random_state=rng,
        )
    return {
        "mask": patterns.mask,
        "gates": patterns.gates,
        "gate_bias": patterns.gate_bias,
        "strict": patterns.strict,
    }
