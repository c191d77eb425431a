"""Files of bounds: a description in JSON, and arrays. A file may be damaged or forged, so that
everything in it is checked when it is read; whether it is true is a matter of `verify`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as parse_tensors
from safetensors.numpy import save as serialize_tensors

from cvxnn.files import write_atomically
from cvxnn.modelfile import ModelFileError, digest_of, read_header, read_tensors

FORMAT = "cvxnn-bound"
VERSION = 1


def write(
    description: Mapping[str, Any], arrays: Mapping[str, np.ndarray], path: str | PathLike[str]
) -> None:
    tensors = {name: np.ascontiguousarray(part) for name, part in arrays.items()}
    header = {"format": FORMAT, "version": VERSION, "bound": dict(description)}
    header["sha256"] = digest_of(tensors, header)
    write_atomically(Path(path), serialize_tensors(tensors, {"cvxnn": json.dumps(header)}))


def read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Description and arrays; `ModelFileError` if the file is of another kind, or damaged."""
    content = read_tensors(path, ModelFileError, "the file of a bound")
    try:
        tensors = parse_tensors(content)
    except (SafetensorError, KeyError) as error:
        raise ModelFileError(f"{path} is not the file of a bound, or damaged: {error}") from error
    header = read_header(path, content)
    if header.get("format") != FORMAT:
        raise ModelFileError(f"{path} is a safetensors file, but not that of a bound")
    if header.get("version") != VERSION:
        raise ModelFileError(
            f"{path} has format version {header.get('version')!r}, this cvxnn reads {VERSION}"
        )
    claimed = header.pop("sha256", None)
    described = header.get("bound")
    if claimed != digest_of(tensors, header) or not isinstance(described, dict):
        raise ModelFileError(f"{path} is damaged: its contents do not match their checksum")
    return described, tensors
