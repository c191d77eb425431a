"""CSV files by PyArrow, where it is installed: in a small part of the time and the memory. Cells
are the same texts; what PyArrow does not read in just the same way is left to `reading.py`."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from csv import field_size_limit, reader
from typing import Any

import numpy as np

from cvxnn.tables.numerals import Reading
from cvxnn.tables.table import MISSING

LEAST = 1_000_000  # bytes of a file that is worth the import of PyArrow
# blank lines, which would not be counted, and what PyArrow takes for a text
_ODD = (b"\n\n", b"\n\r\n", b"\0")
# quotes after a blank, which would be part of the field, and quotes inside of one
_ODD_QUOTES = re.compile(rb'[,;\t|] +"|[^,;\t|\r\n"]"[^,;\t|\r\n"]')


def read_cells(content: bytes, delimiter: str) -> tuple[list[str], ArrowColumns] | None:
    """The header and the columns of a CSV file in UTF-8; None if it has to be read another way."""
    if len(content) < LEAST or content[:1].isspace() or any(odd in content for odd in _ODD):
        return None
    quoted = b'"' in content
    if (quoted and _ODD_QUOTES.search(content)) or content.count(b"\r") > content.count(b"\r\n"):
        return None
    try:
        import pyarrow
        from pyarrow import compute, csv
    except ImportError:
        return None
    first = content[:100_000].decode("utf-8", errors="replace").splitlines()[0]
    names = [f"f{k}" for k in range(len(next(reader([first], delimiter=delimiter))))]
    try:
        cells = csv.read_csv(
            io.BytesIO(content),
            csv.ReadOptions(use_threads=False, column_names=names, block_size=2**24),
            csv.ParseOptions(delimiter=delimiter, newlines_in_values=quoted),
            csv.ConvertOptions(
                column_types=dict.fromkeys(names, pyarrow.string()), strings_can_be_null=False
            ),
        )
    except (pyarrow.ArrowException, OSError):
        return None
    longest = max(compute.max(compute.binary_length(part)).as_py() or 0 for part in cells.columns)
    if len(cells) < 2 or longest > field_size_limit():
        return None
    header = [str(cells.column(name)[0].as_py()).strip() for name in names]
    return header, ArrowColumns(
        {str(k): cells.column(name)[1:] for k, name in enumerate(names)}, len(cells) - 1
    )


class ArrowColumns(Mapping[str, np.ndarray]):
    """Columns of texts in Arrow's format. They become arrays of Python's texts when these are asked
    for, and numbers without that."""

    def __init__(
        self, columns: Mapping[str, Any], n_rows: int, rows: np.ndarray | None = None
    ) -> None:
        self._columns, self._rows, self._n_all = columns, rows, n_rows
        self.n_rows = n_rows if rows is None else len(rows)

    def __getitem__(self, name: str) -> np.ndarray:
        found = _cleaned(self._columns[name]).dictionary_encode().combine_chunks()
        texts = np.array([*found.dictionary.to_pylist(), None], dtype=object)
        codes = found.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)
        return texts[codes if self._rows is None else codes[self._rows]]

    def numbers(self, name: str) -> Reading | None:
        """The numbers of a column in which all values are plain ones; None for other columns."""
        import pyarrow
        from pyarrow import compute

        try:
            found = compute.cast(_cleaned(self._columns[name]), pyarrow.float64())
        except pyarrow.ArrowException:
            return None
        values = found.to_numpy().astype(np.float64, copy=False)
        return Reading(values if self._rows is None else values[self._rows])

    def named(self, names: Sequence[str], places: Sequence[int]) -> ArrowColumns:
        """Some of the columns, which so far are known by their places, under these names."""
        columns = {name: self._columns[str(k)] for name, k in zip(names, places, strict=True)}
        return ArrowColumns(columns, self._n_all)

    @classmethod
    def joined(cls, parts: Sequence[ArrowColumns], names: Sequence[str]) -> ArrowColumns:
        """The rows of several files, which have these columns."""
        import pyarrow

        columns = {
            name: pyarrow.chunked_array(
                [chunk for part in parts for chunk in part._columns[name].chunks],
                type=pyarrow.string(),
            )
            for name in names
        }
        return cls(columns, sum(part._n_all for part in parts))

    def select(self, rows: np.ndarray | slice) -> ArrowColumns:
        index = (np.arange(self._n_all) if self._rows is None else self._rows)[rows]
        return ArrowColumns(self._columns, self._n_all, index)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def _cleaned(column: Any) -> Any:
    """Without blanks around texts, and null where a value is missing."""
    import pyarrow
    from pyarrow import compute

    texts = compute.utf8_trim_whitespace(column)
    missing = compute.is_in(
        compute.utf8_lower(texts), value_set=pyarrow.array(sorted(MISSING), pyarrow.string())
    )
    return compute.if_else(missing, None, texts)
