"""Networks that were trained elsewhere, as networks of this package."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    from cvxnn.networks import ReLUNetwork

_ROWS = 50  # random rows on which a module is compared with its network


def from_torch(cls: type[ReLUNetwork], module: torch.nn.Module) -> ReLUNetwork:
    try:
        import torch
    except ImportError as error:
        raise ImportError("from_torch needs PyTorch: pip install 'cvxnn[torch]'") from error
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, got {type(module).__name__}")
    every = [part for _, part in module.named_modules(remove_duplicate=False)]
    leaves = [part for part in every if not list(part.children())]
    if [type(leaf) for leaf in leaves] != [torch.nn.Linear, torch.nn.ReLU, torch.nn.Linear]:
        found = ", ".join(type(leaf).__name__ for leaf in leaves)
        raise ValueError(f"module must be made of Linear, ReLU, Linear; found {found}")
    first, _, second = leaves
    if first.out_features != second.in_features:
        raise ValueError(
            "module has layers that do not fit together: the first has "
            f"{first.out_features} outputs, the second {second.in_features} inputs"
        )
    network = cls(
        W1=_copied(first.weight),
        b1=None if first.bias is None else _copied(first.bias),
        W2=_copied(second.weight).T,
        b2=None if second.bias is None else _copied(second.bias),
    )
    _check_forward(module, network)
    return network


def from_sklearn(cls: type[ReLUNetwork], mlp: MLPClassifier | MLPRegressor) -> ReLUNetwork:
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.utils.validation import check_is_fitted

    if not isinstance(mlp, (MLPClassifier, MLPRegressor)):
        raise TypeError(f"mlp must be an MLPClassifier or MLPRegressor, got {type(mlp).__name__}")
    check_is_fitted(mlp, "coefs_")
    if mlp.activation != "relu":
        raise ValueError(f"mlp must have activation='relu', got {mlp.activation!r}")
    if len(mlp.coefs_) != 2:
        raise ValueError(f"mlp must have one hidden layer, got {len(mlp.coefs_) - 1}")
    (W1, W2), (b1, b2) = mlp.coefs_, mlp.intercepts_
    copies = {"W1": W1.T, "b1": b1, "W2": W2, "b2": b2}
    copies = {name: np.array(array, np.float64) for name, array in copies.items()}
    return cls(**copies, flat_output=W2.shape[1] == 1)


def _copied(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().double().numpy().copy()  # in torch, as NumPy has no bfloat16


def _absolute(network: ReLUNetwork) -> ReLUNetwork:
    """The network of absolute weights. At |X| it gives the size of the terms that add up to a
    prediction, and rounding errors are relative to that."""
    arrays = {name: getattr(network, name) for name in network.arrays}
    return replace(network, **{k: np.abs(a) for k, a in arrays.items() if a is not None})


def _check_forward(module: torch.nn.Module, network: ReLUNetwork) -> None:
    """Raise unless the module computes what its layers do: its `forward` may be any code."""
    import torch

    X = np.random.default_rng(0).standard_normal((_ROWS, network.n_features))
    X *= np.logspace(-3, 3, _ROWS)[:, None]
    double = copy.deepcopy(module).to("cpu", torch.float64).eval()
    advice = "pass torch.nn.Sequential of its layers instead"
    try:
        with torch.no_grad():
            Z = double(torch.tensor(X)).numpy()
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"module does not turn rows of features into outputs; {advice}") from error
    expected, size = network.predict(X), _absolute(network).predict(np.abs(X))
    if Z.shape != expected.shape or not np.all(np.abs(Z - expected) <= 1e-9 * size):
        raise ValueError(f"module computes something else than Linear, ReLU, Linear; {advice}")
