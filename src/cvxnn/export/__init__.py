"""Networks for other programs: torch modules and ONNX models of the same function.

Both have outputs of shape (n, C), never flat, and compute in one dtype throughout. A link turns
scores into probabilities: "logistic" for one score, "softmax" for several.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cvxnn.files import write_atomically
from cvxnn.validation import check_choice

if TYPE_CHECKING:
    import torch

    from cvxnn.networks import TwoLayerNetwork

LINKS = ("logistic", "softmax")
DTYPES = ("float64", "float32")


def to_torch(
    network: TwoLayerNetwork, *, link: str | None = None, dtype: str | torch.dtype = "float64"
) -> torch.nn.Module:
    """The network as a torch module; `dtype` may also be one of torch."""
    arrays = checked_arrays(network, link, dtype)
    try:
        from cvxnn.export.torch_modules import make_module
    except ImportError as error:
        raise ImportError("to_torch needs PyTorch: pip install 'cvxnn[torch]'") from error
    return make_module(network, arrays, link)


def to_onnx(
    network: TwoLayerNetwork,
    path: str | PathLike[str],
    *,
    link: str | None = None,
    dtype: str | torch.dtype = "float64",
) -> None:
    """Write the network as an ONNX model, whole or not at all."""
    arrays = checked_arrays(network, link, dtype)
    try:
        from cvxnn.export.onnx_models import make_model
    except ImportError as error:
        raise ImportError("to_onnx needs onnx: pip install 'cvxnn[onnx]'") from error
    write_atomically(Path(path), make_model(network, arrays, link).SerializeToString())


def checked_arrays(
    network: TwoLayerNetwork, link: str | None, dtype: str | torch.dtype
) -> dict[str, np.ndarray]:
    """The arrays that the network has, in `dtype`, if it can have this link."""
    _check_link(link, network.n_outputs)
    return _arrays(network, dtype)


def _check_link(link: str | None, n_outputs: int) -> None:
    if link is None:
        return
    check_choice(link, "link", LINKS)
    if (link == "logistic") != (n_outputs == 1):
        wanted = "one output" if link == "logistic" else "at least two outputs"
        raise ValueError(f"link {link!r} needs {wanted}, the network has {n_outputs}")


def _arrays(network: TwoLayerNetwork, dtype: str | torch.dtype) -> dict[str, np.ndarray]:
    name_of_dtype = check_choice(str(dtype).removeprefix("torch."), "dtype", DTYPES)
    arrays = {}
    for name in network.arrays:
        array = getattr(network, name)
        if array is None:
            continue
        if array.size == 0:  # few runtimes accept empty layers: use one neuron of zeros
            array = np.zeros([max(1, size) for size in array.shape])
        with np.errstate(over="ignore"):
            arrays[name] = array.astype(name_of_dtype)
        if not np.isfinite(arrays[name]).all():
            raise ValueError(f"{name} holds numbers too large for {name_of_dtype}")
    return arrays
