"""Files that long work goes on from: numbers only, of one problem, replaced as a whole.

A checkpoint is a safetensors file with a header in JSON. The header holds a fingerprint of
everything that the work depends on; a file with another one is refused. What is read is never
believed: weights and dual points from a file are certified afresh before anything is said about
them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as parse_tensors
from safetensors.numpy import save as serialize_tensors

from cvxnn.arrays import is_sparse, is_stored, row_blocks, to_numpy
from cvxnn.bits import Bits
from cvxnn.files import write_atomically
from cvxnn.modelfile import read_tensors
from cvxnn.patterns import Patterns
from cvxnn.problems import ConvexProblem
from cvxnn.threads import cached_property

VERSION = 2  # of the layout
ROWS = 2**16  # of a fingerprint at a time


class CheckpointError(ValueError):
    """The file does not hold the work that was to go on; the message says why."""


class Content(NamedTuple):
    """What a checkpoint holds."""

    arrays: dict[str, np.ndarray]
    header: dict[str, Any]


@runtime_checkable
class Store(Protocol):
    """Where work is kept: in a file, or wherever whoever goes on can read it."""

    file: Any  # its name, for messages

    def identify(self) -> None:
        """Compute what it is told by, which all ranks do together."""

    def write(self, arrays: Mapping[str, np.ndarray], header: Mapping[str, object]) -> None: ...

    def read(self) -> Content | None: ...

    def refusing(self) -> AbstractContextManager[None]:
        """Refuse what was read if its parts turn out not to fit together."""


class CheckpointFile:
    """A file for one kind of work on one problem.

    file : its name.
    kind : of the work, "path" or "run".
    settings : what the work depends on besides the problem; `arrays` are more of the same.
    parts : all of that in words, for the refusal of a file of something else.
    """

    def __init__(
        self,
        file: str | PathLike[str],
        kind: str,
        problem: ConvexProblem,
        settings: str,
        *arrays: np.ndarray,
        parts: str,
    ) -> None:
        if not isinstance(file, (str, PathLike)):
            raise TypeError(f"checkpoint must be the name of a file, got {type(file).__name__}")
        self.file, self.kind, self.parts = Path(file), kind, parts
        self._problem, self._settings, self._arrays = problem, settings, arrays
        if problem.operator.base.across.rank > 0:
            return  # rank 0 reads and writes for all, perhaps on another machine
        if not self.file.parent.is_dir():
            raise FileNotFoundError(f"checkpoint: there is no folder {self.file.parent}")
        if self.file.is_dir():
            raise IsADirectoryError(f"checkpoint: {self.file} is a folder")

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(self._problem, self._settings, *self._arrays)

    def identify(self) -> None:
        """Compute the fingerprint, which all ranks do together."""
        _ = self._fingerprint

    def write(self, arrays: Mapping[str, np.ndarray], header: Mapping[str, object]) -> None:
        tensors = {name: np.asarray(array, order="C") for name, array in arrays.items()}
        text = json.dumps({"version": VERSION, "fingerprint": self._fingerprint, **header})
        write_atomically(self.file, serialize_tensors(tensors, {f"cvxnn-{self.kind}": text}))

    def read(self) -> Content | None:
        """What the file holds; None without a file."""
        if not self.file.exists():
            return None
        what = f"a {self.kind} checkpoint"
        content = read_tensors(self.file, CheckpointError, what)
        try:
            tensors = parse_tensors(content)
            size = int.from_bytes(content[:8], "little")
            metadata = json.loads(content[8 : 8 + size])["__metadata__"]
            header = json.loads(metadata[f"cvxnn-{self.kind}"])
            version, found = header["version"], header["fingerprint"]
        except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{self.file} is not {what}, or damaged") from error
        if version != VERSION:
            raise CheckpointError(f"{self.file} has format version {version}, not {VERSION}")
        if found != self._fingerprint:
            raise CheckpointError(
                f"{self.file} belongs to another {self.parts}: remove it, or choose another file"
            )
        return Content(tensors, header)

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Refuse the file if its parts turn out not to fit together."""
        try:
            yield
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise CheckpointError(f"{self.file} is inconsistent: {error}") from error


def fingerprint(problem: ConvexProblem, settings: str, *arrays: np.ndarray) -> str:
    """Of a problem, its penalty strength apart, and of whatever else work on it depends on."""
    loss, penalty, X = problem.loss, problem.chosen_penalty, problem.operator.rows()
    digest = hashlib.sha256(f"{problem.kind} {problem.penalty_name} {settings}".encode())
    digest.update(f"{problem.loss_name} {problem.output_bias}".encode())
    for own in (loss.settings, penalty.settings):
        for name, value in sorted(own.items()):
            digest.update(name.encode())
            _add(digest, value)
    across = problem.operator.base.across
    if across.size > 1:
        return _over_ranks(problem, digest)
    data: Iterable[Any] = (X.data, X.indices, X.indptr) if is_sparse(X) else (X,)
    if is_stored(X):
        data = (chunk for _, chunk in X.chunks())
    for array in (*data, loss.Y, loss.row_weight, problem.patterns.bits.rows, *arrays):
        _add(digest, array)
    return digest.hexdigest()


def _over_ranks(problem: ConvexProblem, digest: Any) -> str:
    """Of rows in several processes, whichever has which: a sum of numbers that stand for rows.
    The shares of the rows are left out; they depend on sums, which are rounded."""
    operator, loss, patterns = problem.operator.base, problem.loss, problem.patterns
    here: Any = np.zeros(1, dtype=np.uint64)
    for rows, X in row_blocks(operator.rows(), ROWS):
        parts = (X, to_numpy(loss.Y)[rows])
        content = np.column_stack([np.asarray(part, dtype=np.float64) for part in parts])
        random = np.random.default_rng(0)
        factors: Any = random.integers(2**63, size=content.shape[1], dtype=np.uint64)
        mixed = (content.view(np.uint64) ^ factors) * (factors | np.uint64(1))
        mixed = (mixed ^ (mixed >> np.uint64(29))).sum(axis=1, dtype=np.uint64)
        here += ((mixed ^ (mixed >> np.uint64(32))) * factors[0]).sum(dtype=np.uint64)
    everywhere: Any = np.sum(operator.across.gather(here), dtype=np.uint64)
    _add(digest, np.array([operator.n_all, operator.d, len(patterns)]))
    for array in (everywhere, patterns.gates, patterns.gate_bias):
        _add(digest, array)
    return digest.hexdigest()


def _add(digest: Any, value: Any) -> None:
    """All numbers of an array, of which `repr` shows only some; anything else as its `repr`."""
    if not hasattr(value, "shape"):
        digest.update(repr(value).encode())
        return
    content = np.ascontiguousarray(to_numpy(value))
    digest.update(f"{content.shape} {content.dtype}".encode())
    digest.update(content.data.cast("B") if content.size else b"")


def packed(U: np.ndarray) -> dict[str, np.ndarray]:
    """Weights (blocks, d, C) as the pairs (block, class) that are not zero."""
    live = np.any(U != 0, axis=1)
    return {"pairs": np.flatnonzero(live), "rows": U.transpose(0, 2, 1)[live]}


def unpacked(arrays: Mapping[str, np.ndarray], shape: tuple[int, int, int]) -> np.ndarray:
    """Weights of this shape, from what `packed` made."""
    blocks, d, C = shape
    pairs, rows = arrays["pairs"], arrays["rows"]
    if rows.shape != (len(pairs), d):
        raise ValueError(f"weights of shape {rows.shape} for {len(pairs)} pairs and {d} columns")
    U = np.zeros((blocks * C, d), dtype=rows.dtype)
    U[pairs] = rows
    return U.reshape(blocks, C, d).transpose(0, 2, 1)


def packed_patterns(patterns: Patterns) -> dict[str, np.ndarray]:
    """Patterns with their gates."""
    if patterns.gates is None or patterns.gate_bias is None:
        raise ValueError("the patterns have no gates")
    return {
        "mask": patterns.bits.octets(),
        "gates": np.asarray(patterns.gates),
        "gate_bias": np.asarray(patterns.gate_bias),
    }


def unpacked_patterns(arrays: Mapping[str, np.ndarray], like: Patterns) -> Patterns:
    """Patterns of the same rows as `like`, from what `packed_patterns` made."""
    mask, n = arrays["mask"], like.n_samples
    if mask.dtype != np.uint8 or mask.ndim != 2 or len(mask) != -(-n // 8):
        raise ValueError(f"patterns of {n} rows as {mask.dtype} of shape {mask.shape}")
    bits = Bits.of_octets(mask, n)
    return Patterns(bits, arrays["gates"], arrays["gate_bias"], like.strict)
