"""Columns of tables in torch modules, which have no texts: categories come in as their numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cvxnn.tables.columns import CategoryColumn, Column, DateColumn
from cvxnn.tables.moments import YEAR


class Columns(torch.nn.Module):
    """(n, columns) -> (n, features): fills in what is missing (NaN), takes dates (days since 1970)
    apart, and makes a column of 0 and 1 for each category (0, 1, ... in the order of the
    categories; any other number is none of them)."""

    def __init__(self, columns: Sequence[Column], dtype: torch.dtype) -> None:
        super().__init__()
        self.columns, self.dtype = tuple(columns), dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [
            part
            for k, column in enumerate(self.columns)
            for part in _features(column, x[:, k : k + 1])
        ]
        return torch.cat(parts, dim=1).to(self.dtype)


def _features(column: Column, x: torch.Tensor) -> list[torch.Tensor]:
    missing = torch.isnan(x)
    mark = [missing.to(x.dtype)] if column.marked else []
    if isinstance(column, CategoryColumn):
        fill = -1 if column.fill is None else column.categories.index(column.fill)
        codes = torch.where(missing, torch.full_like(x, fill), x)
        places = torch.arange(len(column.categories), dtype=x.dtype, device=x.device)
        return [(codes == places).to(x.dtype), *mark]
    if column.fill is not None:
        x = torch.where(missing, torch.full_like(x, column.fill), x)
    if isinstance(column, DateColumn):
        return [*(_part(x, part) for part in column.parts), *mark]
    return [x, *mark]


def _part(days: torch.Tensor, part: str) -> torch.Tensor:
    """The sums of `moments.part_of`."""
    if part == "day of year":
        return days - YEAR * torch.floor(days / YEAR)
    if part == "weekday":
        shifted = torch.floor(days) + 3
        return shifted - 7 * torch.floor(shifted / 7)
    return 24 * (days - torch.floor(days)) if part == "hour" else days
