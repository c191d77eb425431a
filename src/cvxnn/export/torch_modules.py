"""Networks as torch modules. Weights are parameters, so the module can be trained further; gates
are buffers and stay fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import torch

if TYPE_CHECKING:
    from cvxnn.networks import GatedReLUNetwork, TwoLayerNetwork


class GatedReLU(torch.nn.Module):
    """x -> second(1(x gates + gate_bias >= 0) first(x)), `> 0` if strict."""

    def __init__(
        self,
        gates: torch.Tensor,
        gate_bias: torch.Tensor,
        first: torch.nn.Linear,
        second: torch.nn.Linear,
        strict: bool,
    ) -> None:
        super().__init__()
        self.register_buffer("gates", gates)
        self.register_buffer("gate_bias", gate_bias)
        self.first, self.second, self.strict = first, second, strict

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = torch.matmul(x, self.gates) + self.gate_bias
        on = gate > 0 if self.strict else gate >= 0
        pre = self.first(x)
        return self.second(torch.where(on, pre, torch.zeros_like(pre)))


def make_module(
    network: TwoLayerNetwork, arrays: dict[str, np.ndarray], link: str | None
) -> torch.nn.Module:
    first = _linear(arrays["W1"], arrays.get("b1"))
    second = _linear(arrays["W2"].T, arrays.get("b2"))
    if network.kind == "gated-relu":
        gates, gate_bias = torch.tensor(arrays["gates"]), torch.tensor(arrays["gate_bias"])
        layers = [
            GatedReLU(gates, gate_bias, first, second, cast("GatedReLUNetwork", network).strict)
        ]
    else:
        layers = [first, torch.nn.ReLU(), second]
    if link is not None:
        layers.append(torch.nn.Sigmoid() if link == "logistic" else torch.nn.Softmax(dim=1))
    return layers[0] if len(layers) == 1 else torch.nn.Sequential(*layers)


def _linear(weight: np.ndarray, bias: np.ndarray | None) -> torch.nn.Linear:
    """A layer with copies of these weights, made without drawing others from torch's generator."""
    layer = torch.nn.Linear(*weight.shape[::-1], bias=bias is not None, device="meta")
    state = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    layer.load_state_dict({name: torch.tensor(a) for name, a in state.items()}, assign=True)
    return layer
