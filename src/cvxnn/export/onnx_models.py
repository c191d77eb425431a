"""Networks as ONNX models, made of standard operators only."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import onnx
from onnx import helper, numpy_helper

import cvxnn

if TYPE_CHECKING:
    from cvxnn.networks import GatedReLUNetwork, TwoLayerNetwork

OPSET, IR_VERSION = 17, 8  # from 2022: runtimes refuse versions newer than themselves


def make_model(
    network: TwoLayerNetwork, arrays: dict[str, np.ndarray], link: str | None
) -> onnx.ModelProto:
    """The checked model; its graph is the formula of the network, node by node."""
    dtype = arrays["W1"].dtype
    nodes = [*_hidden(network, arrays), _affine("hidden", "W2", "b2", "prediction", arrays)]
    columns = {"X": network.n_features, "prediction": network.n_outputs}
    constants = dict(arrays)
    if network.kind == "gated-relu":
        constants["zero"] = np.zeros((), dtype)
    if link is not None:
        nodes += _probabilities(link)
        columns["probabilities"] = max(2, network.n_outputs)
    if link == "logistic":
        constants["halves"] = np.array([[-0.5, 0.5]], dtype)
    element = helper.np_dtype_to_tensor_dtype(dtype)
    X, *outputs = (
        helper.make_tensor_value_info(name, element, ["n", size]) for name, size in columns.items()
    )
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "cvxnn", [X], outputs, tensors)
    model = helper.make_model(
        graph,
        producer_name="cvxnn",
        producer_version=cvxnn.__version__,
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
    )
    about = {"producer": "cvxnn", "version": cvxnn.__version__, "kind": network.kind}
    helper.set_model_props(model, about)
    onnx.checker.check_model(model, full_check=True)
    return model


def _hidden(network: TwoLayerNetwork, arrays: dict[str, np.ndarray]) -> list[onnx.NodeProto]:
    """The hidden layer, from "X" to "hidden"."""
    pre = _affine("X", "W1", "b1", "pre", arrays, transB=1)
    if network.kind != "gated-relu":
        return [pre, helper.make_node("Relu", ["pre"], ["hidden"])]
    compare = "Greater" if cast("GatedReLUNetwork", network).strict else "GreaterOrEqual"
    return [
        pre,
        helper.make_node("MatMul", ["X", "gates"], ["product"]),
        helper.make_node("Add", ["product", "gate_bias"], ["gate"]),
        helper.make_node(compare, ["gate", "zero"], ["on"]),
        helper.make_node("Where", ["on", "pre", "zero"], ["hidden"]),
    ]


def _affine(
    x: str, weight: str, bias: str, out: str, arrays: dict[str, np.ndarray], transB: int = 0
) -> onnx.NodeProto:
    inputs = [x, weight, bias] if bias in arrays else [x, weight]
    return helper.make_node("Gemm", inputs, [out], transB=transB)


def _probabilities(link: str) -> list[onnx.NodeProto]:
    """From "prediction" to "probabilities".

    The logistic ones are the softmax of (-z/2, z/2), because small probabilities round to zero in
    1 - p, and in the Sigmoid of onnxruntime.
    """
    if link == "softmax":
        return [helper.make_node("Softmax", ["prediction"], ["probabilities"], axis=1)]
    return [
        helper.make_node("MatMul", ["prediction", "halves"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["probabilities"], axis=1),
    ]
