"""Devices that arrays may be on, such as a GPU: found by the names that PyTorch has for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cvxnn.arrays import Array, has_float64, like, widest

NAMES = "'cpu', 'cuda' (NVIDIA, and AMD with ROCm), 'mps' (Apple), 'xpu' (Intel)"


@dataclass(frozen=True)
class Device:
    """A device, and a way to it. Devices of the same name are the same.

    name : as PyTorch has it, "cuda" or "cuda:1".
    sample : an array on the device, of the library that computes there.
    """

    name: str
    sample: Array = field(compare=False, repr=False)

    def put(self, values: np.ndarray) -> Array:
        """These numbers on the device, in float32 where it has no float64."""
        dtype = self.sample.dtype if values.dtype == np.float32 else widest(self.sample)
        return like(self.sample, values, dtype)

    @property
    def has_float64(self) -> bool:
        return has_float64(self.sample)


def find_device(device: object) -> Device:
    """The device of this name, or a `torch.device`. One that is not there is an error that says
    why, and what to do."""
    if isinstance(device, Device):
        return device
    name = device if isinstance(device, str) else _name_of(device)
    torch = _torch(name)
    try:
        its = torch.device(name)
    except RuntimeError as error:
        raise ValueError(
            f"unknown device {name!r}; PyTorch's names are {NAMES}, and such as 'cuda:1' for one "
            "of several"
        ) from error
    return Device(str(its), _sample(torch, its))


def _name_of(device: object) -> str:
    if type(device).__name__ == "device" and type(device).__module__ == "torch":
        return str(device)
    raise TypeError(
        f"device must be the name of a device of PyTorch, such as 'cuda', got "
        f"{type(device).__name__}"
    )


def _torch(name: str) -> Any:
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"device={name!r} needs PyTorch: pip install 'cvxnn[torch]'; without `device`, NumPy "
            "and the compiled kernels do the work"
        ) from error
    return torch


def _sample(torch: Any, its: Any) -> Array:
    """An array on the device, which shows that it works."""
    try:
        sample = torch.ones(1, dtype=torch.float32, device=its)
        if float(sample.sum()) == 1.0:
            return sample
        why = "its sums are wrong"
    except (AssertionError, ImportError, NotImplementedError, RuntimeError) as error:
        why = str(error).partition("\n")[0].partition(". ")[0]
    there = _available(torch)
    if its.type in there and not there[its.type]:
        why = f"PyTorch {torch.__version__} finds none"
    found = ", ".join(repr(name) for name, works in there.items() if works)
    raise ValueError(
        f"there is no device {str(its)!r} that works: {why}; there is {found}. Leave `device` out "
        "to train without one"
    )


def _available(torch: Any) -> dict[str, bool]:
    """Whether there are such devices, by name."""
    return {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "xpu": hasattr(torch, "xpu") and torch.xpu.is_available(),
    }
