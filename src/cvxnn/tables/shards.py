"""Tables of which every process has some rows.

Files are shared out in pieces, the row groups of Parquet files and whole CSV files. Decisions about
columns, targets and held-out rows are made as in one process, by the same code and on the same
values: a column of all rows is gathered when it is asked for, one at a time, and all processes
decide alike. Nothing else of the rows leaves its process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cvxnn.ranks import Ranks, failing_together
from cvxnn.tables.numerals import Reading
from cvxnn.tables.parquet import group_sizes, read_groups
from cvxnn.tables.reading import read_file
from cvxnn.tables.several import common_columns, files_of, joined, kinds, segments_of
from cvxnn.tables.table import Segment, Table, TableError, count

# What is shared out has pieces of about this many bytes at least, unpacked.
_PIECE = 2**22


class Piece(NamedTuple):
    """Rows of a file: some of its row groups, which follow each other, or all of it if there are
    none; `size` is in bytes, roughly."""

    path: Path
    groups: tuple[int, ...]
    size: int

    def read(self, delimiter: str | None, encoding: str | None) -> Table:
        if not self.path.exists():
            raise TableError(f"there is no file {self.path} on this machine, but on another one")
        if not self.groups:
            return read_file(self.path, delimiter=delimiter, encoding=encoding)
        names, columns, before = read_groups(self.path, self.groups)
        numbers = np.arange(before, before + len(columns[0])) + 1
        return Table(dict(zip(names, columns, strict=True)), str(self.path), numbers)


def pieces_of(data: Path) -> list[Piece]:
    """The pieces of the files that a name stands for, in order."""
    return [piece for path in files_of(data) for piece in _pieces(path)]


def _pieces(path: Path) -> Iterator[Piece]:
    if not path.exists():
        raise TableError(f"there is no file {path}")
    with path.open("rb") as file:
        is_parquet = file.read(4) == b"PAR1"
    sizes = group_sizes(path) if is_parquet else []
    if not sizes:
        yield Piece(path, (), path.stat().st_size)
    groups: list[int] = []
    for k in range(len(sizes)):
        groups.append(k)
        together = sum(sizes[group] for group in groups)
        if together >= _PIECE or k == len(sizes) - 1:
            yield Piece(path, tuple(groups), together)
            groups = []


def shared_out(pieces: Sequence[Piece], n: int) -> list[list[Piece]]:
    """The pieces in n shares of about the same size; each has pieces that follow each other."""
    total = sum(piece.size for piece in pieces)
    shares: list[list[Piece]] = [[] for _ in range(n)]
    before = 0
    for piece in pieces:
        middle = before + piece.size / 2
        shares[min(int(n * middle / max(total, 1)), n - 1)].append(piece)
        before += piece.size
    return shares


def read_pieces(
    pieces: Sequence[Piece], *, delimiter: str | None = None, encoding: str | None = None
) -> list[Table]:
    return [piece.read(delimiter, encoding) for piece in pieces]


class FilesOfCluster(NamedTuple):
    """A table that a cluster is to read: the name that was given, the pieces that it stands for,
    and how text files are read."""

    source: Path
    pieces: list[Piece]
    reading: dict[str, str | None]


@dataclass(frozen=True, eq=False)
class ShardedTable:
    """A table of which this process has some rows, and others have the others.

    local : the rows of this process.
    places : (n,) where they are in the whole table.
    whole : the whole table, whose columns are gathered from all processes when they are asked for,
        which all have to do at the same point.
    """

    local: Table
    places: np.ndarray
    whole: Table
    ranks: Ranks

    @classmethod
    def of(cls, parts: Mapping[int, Sequence[Table]], source: str, ranks: Ranks) -> ShardedTable:
        """From the parts of the table that this process has, by their numbers, each in one or
        several tables. All processes together have all parts."""
        mine = [parts[k] for k in sorted(parts)]
        with failing_together(ranks):
            about = [
                (k, [(len(one), segments_of(one), kinds(one)) for one in parts[k]])
                for k in sorted(parts)
            ]
        known = sorted((entry for of_rank in ranks.gather(about) for entry in of_rank), key=_number)
        holding = common_columns(
            [(its[0].source, what) for _, ones in known for _, its, what in ones if its]
        )
        start, segments, begins = 0, [], {}
        for k, ones in known:
            begins[k] = start
            for length, its, _ in ones:
                segments += [Segment(start + s.start, s.source, s.first) for s in its]
                start += length
        if not start:
            raise TableError(f"{source} has no rows")
        local = joined([one for ones in mine for one in ones], source, holding)
        places = np.concatenate(
            [np.zeros(0, dtype=np.int64)]
            + [begins[k] + np.arange(sum(map(len, parts[k]))) for k in sorted(parts)]
        )
        notes = tuple(dict.fromkeys(note for its in ranks.gather(local.notes) for note in its))
        comma = any(ranks.gather(local.decimal_comma))
        local = replace(
            local, row_numbers=places + 1, segments=tuple(segments), decimal_comma=comma
        )
        columns = _GatheredColumns(local, places, ranks)
        whole = Table(columns, source, None, comma, notes, segments=tuple(segments))
        return cls(local, places, whole, ranks)

    @property
    def source(self) -> str:
        return self.whole.source

    def __len__(self) -> int:
        return len(self.whole)

    def __repr__(self) -> str:
        mine = count(len(self.local), "row")
        return f"ShardedTable({self.whole.source!r}, {mine} of {len(self)} in this process)"


def _number(entry: tuple[int, Any]) -> int:
    return entry[0]


def read_share(
    data: Path, ranks: Ranks, *, delimiter: str | None = None, encoding: str | None = None
) -> ShardedTable:
    """The share of this process of the files that a name stands for. Rank 0 says which there are,
    so that all mean the same."""
    shares: list[list[Piece]] = []
    with failing_together(ranks):
        if ranks.rank == 0:
            shares = shared_out(pieces_of(data), ranks.size)
    pieces = ranks.gather(shares)[0][ranks.rank]
    with failing_together(ranks):
        tables = read_pieces(pieces, delimiter=delimiter, encoding=encoding)
    return ShardedTable.of({ranks.rank: tables}, str(data), ranks)


class _GatheredColumns(Mapping[str, np.ndarray]):
    """Columns of the rows of all processes, or of some of them. The last one is kept."""

    in_files = True  # they are not in memory

    def __init__(
        self, local: Table, places: np.ndarray, ranks: Ranks, rows: np.ndarray | None = None
    ) -> None:
        self._local, self._places, self._ranks, self._rows = local, places, ranks, rows
        all_places = np.concatenate(ranks.gather(places))
        in_order = np.all(all_places[1:] > all_places[:-1])
        self._order = None if in_order else np.argsort(all_places, kind="stable")
        self.n_rows = len(all_places) if rows is None else len(rows)
        self._last: list[tuple[str, str, np.ndarray]] = []

    def __getitem__(self, name: str) -> np.ndarray:
        values = self._local.column(name)
        if values.dtype != object:
            return self._gathered(name, "numbers", values)
        texts: dict[str | None, int] = {}
        codes = [texts.setdefault(text, len(texts)) for text in values.tolist()]
        return self._gathered(name, "texts", np.array(codes, dtype=np.int32), list(texts))

    def numbers(self, name: str) -> Reading | None:
        """The numbers of a column in which all values of all processes are plain ones."""
        found = self._local.reading(name)
        plain = found.wrong is None and found.style.plain and not found.absent
        if not all(self._ranks.gather(plain)):
            return None
        return Reading(self._gathered(name, "numbers", found.numbers))

    def _gathered(
        self, name: str, what: str, values: np.ndarray, texts: list[str | None] | None = None
    ) -> np.ndarray:
        if not self._last or self._last[0][:2] != (name, what):
            parts = self._ranks.gather((values, texts))
            whole = np.concatenate([_decoded(*part) for part in parts])
            whole = whole if self._order is None else whole[self._order]
            self._last[:] = [(name, what, whole)]
        whole = self._last[0][2]
        return whole if self._rows is None else whole[self._rows]

    def select(self, rows: np.ndarray | slice) -> _GatheredColumns:
        index = (np.arange(self.n_rows) if self._rows is None else self._rows)[rows]
        some = _GatheredColumns.__new__(_GatheredColumns)
        some.__dict__.update(vars(self), _rows=index, n_rows=len(index))
        return some

    def __contains__(self, name: object) -> bool:
        return name in self._local.columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._local.columns)

    def __len__(self) -> int:
        return len(self._local.columns)


def _decoded(values: np.ndarray, texts: list[str | None] | None) -> np.ndarray:
    if texts is None:
        return values
    return np.array([*texts, None], dtype=object)[values]
