"""Columns of tables in ONNX models: an input for each, and what turns them into features. All of it
is made of standard operators, those for texts of the standard's part for machine learning."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto, helper

from cvxnn.export.onnx_models import NAMES, Before
from cvxnn.tables.columns import CategoryColumn, Column, DateColumn
from cvxnn.tables.moments import YEAR

_PREFIX = "columns/"  # of the names inside the graph
_SPELLINGS = (str.lower, str.upper, str.capitalize)  # of true and false
_NONE = -1  # the code of a text that is no category


def columns_before(columns: Sequence[Column], features: np.dtype) -> Before:
    """What stands before a network: from the inputs, which have the names of the columns, to its
    features "X"."""
    graph = _Graph()
    parts = [part for column in columns for part in _features(graph, column)]
    joined = graph.add("Concat", *parts, axis=1)
    graph.add("Cast", joined, out="X", to=helper.np_dtype_to_tensor_dtype(features))
    return Before(graph.inputs, graph.nodes, graph.constants)


def input_name(column: Column) -> str:
    """The name of a column among the inputs, where it must not be one of the graph itself."""
    taken = column.name in NAMES or column.name.startswith(_PREFIX)
    return f"column {column.name}" if taken else column.name


class _Graph:
    def __init__(self) -> None:
        self.inputs: list[object] = []
        self.nodes: list[object] = []
        self.constants: dict[str, np.ndarray] = {}

    def add(self, kind: str, *inputs: str, out: str = "", **settings: object) -> str:
        """A node with one output, whose name is returned."""
        out = out or f"{_PREFIX}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], **settings))
        return out

    def constant(self, value: object, dtype: type = np.float64) -> str:
        name = f"{_PREFIX}constant {len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    def take(self, column: Column, kind: int) -> str:
        name = input_name(column)
        self.inputs.append(helper.make_tensor_value_info(name, kind, ["n", 1]))
        return name


def _features(graph: _Graph, column: Column) -> list[str]:
    if isinstance(column, CategoryColumn):
        return [_categories(graph, column)]
    values = graph.take(column, TensorProto.DOUBLE)
    missing = graph.add("IsNaN", values)
    if column.fill is not None:
        values = graph.add("Where", missing, graph.constant(column.fill), values)
    parts = [values]
    if isinstance(column, DateColumn):
        parts = [_part(graph, values, part) for part in column.parts]
    if column.marked:
        parts.append(graph.add("Cast", missing, to=TensorProto.DOUBLE))
    return parts


def _categories(graph: _Graph, column: CategoryColumn) -> str:
    """A column of 0 and 1 for each category, and for missing values, which are empty texts."""
    codes = {text: k for k, text in enumerate(column.categories)}
    if column.truths:
        codes |= {spell(text): k for text, k in codes.items() for spell in _SPELLINGS}
    codes[""] = len(column.categories) if column.marked else codes.get(column.fill or "", _NONE)
    found = graph.add(
        "LabelEncoder",
        graph.take(column, TensorProto.STRING),
        domain="ai.onnx.ml",
        keys_strings=list(codes),
        values_int64s=list(codes.values()),
        default_int64=_NONE,
    )
    places = graph.constant(np.arange(len(column.features))[None], np.int64)
    return graph.add("Cast", graph.add("Equal", found, places), to=TensorProto.DOUBLE)


def _part(graph: _Graph, days: str, part: str) -> str:
    """The sums of `moments.part_of`."""
    if part == "day of year":
        return _rest(graph, days, YEAR)
    if part == "weekday":
        return _rest(graph, graph.add("Add", graph.add("Floor", days), graph.constant(3)), 7)
    if part == "hour":
        return graph.add("Mul", _rest(graph, days, 1), graph.constant(24))
    return days


def _rest(graph: _Graph, value: str, of: float) -> str:
    size = graph.constant(of)
    whole = graph.add("Floor", graph.add("Div", value, size))
    return graph.add("Sub", value, graph.add("Mul", whole, size))
