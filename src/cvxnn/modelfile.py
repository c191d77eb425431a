"""Model files: safetensors with a JSON header. They hold data only; loading one runs no code.

Anything that is not a complete, consistent model of a known version is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as parse_tensors
from safetensors.numpy import save as serialize_tensors

from cvxnn.files import MODEL_BYTES, most_bytes, read_bounded, write_atomically

if TYPE_CHECKING:
    from cvxnn.networks import TwoLayerNetwork

FORMAT = "cvxnn-model"
# New in 2: output biases, and a checksum of the arrays. New in 3: models, which are more than
# their network, and a checksum of the header as well. New in 4: the numbers that define a
# model's program. New in 5: principal components among these. New in 6: rounds of generation, and
# bounds over all patterns with their evidence. New in 7: learned scales of columns. New in 8: how
# numbers and dates of tables are written, texts for missing values, and labels that are numbers.
# New in 9: means of networks, with what proves each of them.
VERSION = 9
_SINCE = {"b2": 2}  # the version in which an array was introduced, if not in the first
MAX_HEADER = 2**24  # bytes of JSON; parsing takes up to thirty times as much memory
_PREFIX = "model."  # of the names of arrays that are not part of the network


class ModelFileError(ValueError):
    """This version cannot read the file as a model; the message says why."""


@dataclass(frozen=True, eq=False)
class Content:
    """What a model file holds: a network and, for a model, a description in JSON and further
    arrays."""

    network: TwoLayerNetwork
    description: dict[str, Any] | None = None
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


def write(content: Content, path: str | PathLike[str]) -> None:
    network = content.network
    tensors = {
        name: np.ascontiguousarray(getattr(network, name))
        for name in network.arrays
        if getattr(network, name) is not None
    }
    for name, array in content.arrays.items():
        tensors[_PREFIX + name] = np.ascontiguousarray(array)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "kind": network.kind,
        **{flag: getattr(network, flag) for flag in network.flags},
    }
    if content.description is not None:
        header["model"] = content.description
    header["sha256"] = digest_of(tensors, header)
    write_atomically(Path(path), serialize_tensors(tensors, {"cvxnn": json.dumps(header)}))


def read(path: str | PathLike[str], kinds: Mapping[str, type[TwoLayerNetwork]]) -> Content:
    """The contents of a file; `kinds` are the classes of networks, by kind."""
    path = Path(path)
    content = read_tensors(path, ModelFileError, "a model file")
    try:
        tensors = parse_tensors(content)
    except SafetensorError as error:
        raise ModelFileError(f"{path} is not a model file, or damaged: {error}") from error
    except KeyError as error:  # a dtype that safetensors has, but NumPy has not
        raise ModelFileError(f"{path} holds tensors of dtype {error}") from error
    header = read_header(path, content)
    if header.get("format") != FORMAT:
        raise ModelFileError(f"{path} is a safetensors file, but not a cvxnn model")
    version = header.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ModelFileError(f"{path} has no valid version number: {version!r}")
    if version > VERSION:
        raise ModelFileError(
            f"{path} has format version {version}, this cvxnn reads up to {VERSION}: update cvxnn"
        )
    kind = header.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise ModelFileError(f"{path} holds a model of unknown kind {kind!r}")
    description = header.get("model") if version > 2 else None
    if description is not None and not isinstance(description, dict):
        raise ModelFileError(f"{path} has a damaged header: model is not a JSON object")
    further = set() if description is None else {n for n in tensors if n.startswith(_PREFIX)}
    cls = kinds[kind]
    own = {name: tensor for name, tensor in tensors.items() if name not in further}
    parts: dict[str, Any] = {
        **_checked_tensors(path, cls, own, version),
        **_checked_flags(path, cls, header),
    }
    try:
        network = cls(**parts)  # which checks that shapes fit
    except ValueError as error:
        raise ModelFileError(f"{path} is inconsistent: {error}") from error
    claimed = header.pop("sha256", None)
    try:
        digest = digest_of(tensors, header if version > 2 else None)
    except RecursionError as error:
        raise ModelFileError(f"{path} has a damaged header: {error}") from error
    if version > 1 and claimed != digest:
        raise ModelFileError(f"{path} is damaged: its contents do not match their checksum")
    others = {name.removeprefix(_PREFIX): tensors[name] for name in further}
    return Content(network, description, others)


def read_tensors(path: Path, refusal: type[ValueError], what: str) -> bytes:
    """The bytes of a safetensors file; its header is checked before the rest is read."""

    def look(beginning: bytes) -> None:
        length = int.from_bytes(beginning[:8], "little")
        if len(beginning) > 8 and not beginning.startswith(b"{", 8):
            raise refusal(f"{path} is not {what}, or damaged: it has no header")
        if len(beginning) > 8 and length > MAX_HEADER:
            raise refusal(
                f"{path} is not {what}, or damaged: its header has {length:,} bytes, and at most "
                f"{MAX_HEADER:,} are read"
            )

    return read_bounded(path, most_bytes(MODEL_BYTES), refusal, look)


def column_names(path: Path) -> list[str]:
    """The columns of a model of a table, from the header alone; none where that does not name any,
    and `read` says what is amiss."""
    try:
        with path.open("rb") as file:
            beginning = file.read(8)
            length = min(int.from_bytes(beginning, "little"), MAX_HEADER)
            header = read_header(path, beginning + file.read(length))
        return [str(column["name"]) for column in header["model"]["columns"]]
    except (OSError, ModelFileError, LookupError, TypeError):
        return []


def digest_of(tensors: Mapping[str, np.ndarray], header: Mapping[str, object] | None) -> str:
    """A checksum that detects damage; it is no protection against forgery."""
    digest = hashlib.sha256()
    if header is not None:
        digest.update(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(name.encode() + tensors[name].tobytes())
    return digest.hexdigest()


def read_header(path: Path, content: bytes) -> dict[str, Any]:
    """The JSON header; safetensors has already checked that the layout around it is sound."""
    length = int.from_bytes(content[:8], "little")
    try:
        metadata = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
        header = json.loads(metadata.get("cvxnn", "{}"))
    except (ValueError, AttributeError, RecursionError) as error:
        raise ModelFileError(f"{path} has a damaged header: {error}") from error
    if not isinstance(header, dict):
        raise ModelFileError(f"{path} has a damaged header: not a JSON object")
    return header


def _checked_tensors(
    path: Path, cls: type[TwoLayerNetwork], tensors: dict[str, np.ndarray], version: int
) -> dict[str, np.ndarray | None]:
    expected = {name for name in cls.arrays if _SINCE.get(name, 1) <= version}
    missing, unknown = expected - cls.optional - set(tensors), set(tensors) - expected
    if missing or unknown:
        raise ModelFileError(
            f"{path} is incomplete or damaged: missing {sorted(missing)}, unknown {sorted(unknown)}"
        )
    ndim = {"gates": 2, "gate_bias": 1, "W1": 2, "b1": 1, "W2": 2, "b2": 1}
    for name, tensor in tensors.items():
        if tensor.dtype != np.float64 or tensor.ndim != ndim[name]:
            raise ModelFileError(f"{path}: {name} has dtype {tensor.dtype}, shape {tensor.shape}")
        if not np.isfinite(tensor).all():
            raise ModelFileError(f"{path}: {name} holds NaN or infinity")
    return {name: tensors.get(name) for name in cls.arrays}


def _checked_flags(
    path: Path, cls: type[TwoLayerNetwork], header: Mapping[str, object]
) -> dict[str, bool]:
    flags = {}
    for name in cls.flags:
        value = header.get(name)
        if not isinstance(value, bool):
            raise ModelFileError(f"{path}: {name} must be true or false, got {value!r}")
        flags[name] = value
    return flags
