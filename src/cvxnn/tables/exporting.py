"""Models of tables for other programs: what becomes of the columns is part of them."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cvxnn.export import checked_arrays
from cvxnn.files import write_atomically
from cvxnn.tables.columns import CategoryColumn, Column, DateColumn, NumberColumn
from cvxnn.tables.encoding import Encoder
from cvxnn.tables.preparation import Target
from cvxnn.tables.table import listed

if TYPE_CHECKING:
    import torch

    from cvxnn.networks import TwoLayerNetwork


def to_onnx(
    network: TwoLayerNetwork,
    encoder: Encoder,
    target: Target,
    path: str | PathLike[str],
    *,
    link: str | None,
    dtype: str,
) -> None:
    """Write an ONNX model with an input for each column of the table."""
    arrays = checked_arrays(network, link, dtype)
    try:
        from cvxnn.export.onnx_models import make_model
        from cvxnn.tables.onnx_columns import columns_before
    except ImportError as error:
        raise ImportError("to_onnx needs onnx: pip install 'cvxnn[onnx]'") from error
    classes = None if target.classes is None else target.restored(np.array(target.classes))
    before = columns_before(encoder.columns, arrays["W1"].dtype)
    made = make_model(network, arrays, link, before, classes)
    write_atomically(Path(path), made.SerializeToString())


def to_torch(
    network: TwoLayerNetwork, encoder: Encoder, *, link: str | None, dtype: str
) -> torch.nn.Module:
    """A torch module of a matrix with one number for each column of the table."""
    module = network.to_torch(link=link, dtype=dtype)
    import torch

    from cvxnn.tables.torch_columns import Columns

    return torch.nn.Sequential(Columns(encoder.columns, getattr(torch, dtype)), module)


def inputs_of(encoder: Encoder, suffix: str) -> list[tuple[str, str]]:
    """The inputs of an exported model, by name, and what they are, in words."""
    if suffix == ".onnx":
        return [(_onnx_name(column), _for_onnx(column)) for column in encoder.columns]
    return [(column.name, _for_torch(column)) for column in encoder.columns]


def _onnx_name(column: Column) -> str:
    from cvxnn.tables.onnx_columns import input_name

    return input_name(column)


def _for_onnx(column: Column) -> str:
    if isinstance(column, CategoryColumn):
        return f"string, one of {listed(column.categories, 6)}; an empty one is missing"
    return f"double, {_number(column)}"


def _for_torch(column: Column) -> str:
    if isinstance(column, CategoryColumn):
        codes = [f"{k} {text!r}" for k, text in enumerate(column.categories[:6])]
        more = ", ..." * (len(column.categories) > 6)
        return f"{', '.join(codes)}{more}; NaN is missing"
    return _number(column)


def _number(column: NumberColumn | DateColumn) -> str:
    if isinstance(column, DateColumn):
        what = (
            "days since 1970" if column.order != "time" else "the part of the day that has passed"
        )
        return f"{what}; NaN is missing"
    unit = f" in {column.style.unit}" if column.style.unit else ""
    return f"a number{unit}; NaN is missing"
