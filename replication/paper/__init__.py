"""The paper as data: every printed cell, its claims, and the values that its authors selected."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent


class Claim(NamedTuple):
    """A claim of the paper, what it prints in its support, and how it is judged here."""

    id: str
    where: str
    text: str
    printed: str
    judged_by: str


@cache
def claims() -> dict[str, Claim]:
    """All claims by their id, in the order of the paper's sections."""
    return {row["id"]: Claim(*row.values()) for row in _rows("claims")}


@cache
def printed(table: int) -> dict[str, dict[str, float]]:
    """The numbers of a table by set and column; sets have the names of their files."""
    return {_set(row): _numbers(row) for row in _rows(_TABLES[table])}


@cache
def selected(table: int) -> dict[str, dict[str, float]]:
    """The hyper-parameters that the authors' cross-validation selected for Table 2 (and 6) or
    Table 3 (and 7, 8), by set and column; a column that has no value is left out. That of the
    active proportion has none ("random") where gates have no bias."""
    return {_set(row): _numbers(row) for row in _rows(f"selected_table{table}")}


_TABLES = {
    1: "table1_cone_decomp",
    2: "table2_binary_uci",
    3: "table3_nonconvex",
    4: "table4_images",
    5: "table5_cone_decomp_full",
    6: "table6_binary_uci_additional",
    7: "table7_gated_quartiles",
    8: "table8_relu_quartiles",
}
_NAMES = ("dataset", "uci", "data_file")  # the columns that say which set a row is about


def _rows(name: str) -> list[dict[str, str]]:
    with (FOLDER / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def _set(row: dict[str, str]) -> str:
    """The name of the file, or what the paper calls a set that has none here."""
    file = row.get("uci") or row.get("data_file")
    return Path(file).stem if file else row["dataset"].lower().replace("-", "")


def _numbers(row: dict[str, str]) -> dict[str, float]:
    return {
        name: float(cell)
        for name, cell in row.items()
        if name not in _NAMES and cell not in ("", "random")
    }
