"""Networks as ONNX models, made of standard operators only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import onnx
from onnx import helper, numpy_helper

import cvxnn

if TYPE_CHECKING:
    from cvxnn.networks import GatedReLUNetwork, TwoLayerNetwork

OPSET, IR_VERSION = 17, 8  # from 2022: runtimes refuse versions newer than themselves


# of what is inside a graph, or comes out of it
_NAMES = """X W1 b1 W2 b2 gates gate_bias zero halves pre product gate on hidden scores class labels
    prediction probabilities label"""
NAMES = frozenset(_NAMES.split())


@dataclass(frozen=True, eq=False)
class Before:
    """What stands before a network: its own inputs, and nodes that make the features "X"."""

    inputs: list[object]
    nodes: list[object]
    constants: dict[str, np.ndarray]


def make_model(
    network: TwoLayerNetwork,
    arrays: dict[str, np.ndarray],
    link: str | None,
    before: Before | None = None,
    classes: np.ndarray | None = None,
) -> onnx.ModelProto:
    """The checked model; its graph is the formula of the network, node by node. With `classes` it
    has one more output, the label."""
    dtype = arrays["W1"].dtype
    nodes = [*_hidden(network, arrays), _affine("hidden", "W2", "b2", "prediction", arrays)]
    columns = {"X": network.n_features, "prediction": network.n_outputs}
    constants = dict(arrays)
    if network.kind == "gated-relu":
        constants["zero"] = np.zeros((), dtype)
    if link is not None:
        nodes += _probabilities(link)
        columns["probabilities"] = max(2, network.n_outputs)
    if classes is not None and network.n_outputs == 1 and link is None:
        nodes.append(helper.make_node("MatMul", ["prediction", "halves"], ["scores"]))
    if network.n_outputs == 1 and (link is not None or classes is not None):
        constants["halves"] = np.array([[-0.5, 0.5]], dtype)
    element = helper.np_dtype_to_tensor_dtype(dtype)
    X, *outputs = (
        helper.make_tensor_value_info(name, element, ["n", size]) for name, size in columns.items()
    )
    inputs = [X]
    if before is not None:
        inputs, nodes = before.inputs, [*before.nodes, *nodes]
        constants |= before.constants
    if classes is not None:
        scores = "scores" if network.n_outputs == 1 else "prediction"
        nodes.append(helper.make_node("ArgMax", [scores], ["class"], axis=1, keepdims=0))
        nodes.append(helper.make_node("Gather", ["labels", "class"], ["label"], axis=0))
        constants["labels"] = classes.astype(object) if classes.dtype.kind == "U" else classes
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    if classes is not None:
        outputs.append(helper.make_tensor_value_info("label", tensors[-1].data_type, ["n"]))
    graph = helper.make_graph(nodes, "cvxnn", inputs, outputs, tensors)
    model = helper.make_model(
        graph,
        producer_name="cvxnn",
        producer_version=cvxnn.__version__,
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET), *_learning(before)],
    )
    about = {"producer": "cvxnn", "version": cvxnn.__version__, "kind": network.kind}
    helper.set_model_props(model, about)
    onnx.checker.check_model(model, full_check=True)
    return model


def _learning(before: Before | None) -> list[onnx.OperatorSetIdProto]:
    """The standard's part for machine learning, where texts are looked up."""
    return [] if before is None else [helper.make_opsetid("ai.onnx.ml", 2)]


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
