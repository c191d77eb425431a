"""Columns from Parquet files."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cvxnn.files import too_large
from cvxnn.tables.table import TableError, check_cells, text_or_missing

_INDEX = r"__index_level_\d+__"  # the names that pandas gives to an index

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.parquet import FileMetaData, ParquetFile


def read_columns(path: Path, content: bytes, most: int) -> tuple[list[str], list[np.ndarray]]:
    """Names and columns of a Parquet file, without the index that pandas adds."""
    with _opened(path, io.BytesIO(content)) as file:
        _check_parquet(path, file.metadata, most)
        names, columns = _columns(path, file, range(file.num_row_groups))
    if file.metadata.num_rows == 0:
        raise TableError(f"{path} has columns, but no rows")
    return names, columns


def read_groups(path: Path, groups: Sequence[int]) -> tuple[list[str], list[np.ndarray], int]:
    """Names and columns of some row groups of a Parquet file, which follow each other, and the
    number of rows before them."""
    with _opened(path, path) as file:
        names, columns = _columns(path, file, groups)
        before = sum(file.metadata.row_group(k).num_rows for k in range(groups[0]))
    return names, columns, before


def group_sizes(path: Path) -> list[int]:
    """The bytes of each row group, unpacked."""
    with _opened(path, path) as file:
        facts = file.metadata
        return [facts.row_group(k).total_byte_size for k in range(facts.num_row_groups)]


@contextmanager
def _opened(path: Path, source: Path | io.BytesIO) -> Iterator[ParquetFile]:
    """A Parquet file, of which errors of reading name the path. A text that occurs often is stored
    once in the file, and stays so."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise TableError(
            f"{path} is a Parquet file, which needs pyarrow: pip install 'cvxnn[data]'"
        ) from error
    try:
        schema = parquet.read_schema(source)
        texts = [field.name for field in schema if pyarrow.types.is_string(field.type)]
        if isinstance(source, io.BytesIO):
            source.seek(0)
        with parquet.ParquetFile(source, read_dictionary=texts) as file:
            yield file
    except (pyarrow.ArrowException, OSError) as error:
        raise TableError(f"{path} is a damaged Parquet file: {_first_line(error)}") from error


def _columns(
    path: Path, file: ParquetFile, groups: Sequence[int]
) -> tuple[list[str], list[np.ndarray]]:
    data = file.read_row_groups(list(groups), use_threads=False)
    names = [str(name) for name in data.column_names]
    kept = [k for k, name in enumerate(names) if not re.fullmatch(_INDEX, name)]
    columns = [_arrow_column(path, names[k], data.column(k)) for k in kept]
    return [names[k] for k in kept], columns


def arrow_batches(path: Path, rows: int) -> Iterator[tuple[list[str], list[np.ndarray]]]:
    """Names and columns of a Parquet file, so many rows at a time."""
    with _opened(path, path) as file:
        import pyarrow

        for batch in file.iter_batches(batch_size=rows, use_threads=False):
            kept = [
                (str(name), pyarrow.chunked_array([column]))
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
                if not re.fullmatch(_INDEX, str(name))
            ]
            names = [name for name, _ in kept]
            yield names, [_arrow_column(path, name, column) for name, column in kept]


def _check_parquet(path: Path, facts: FileMetaData, most: int) -> None:
    """Refuse a file that is too large before it is read: a few bytes may announce billions of
    rows."""
    groups = [facts.row_group(k) for k in range(facts.num_row_groups)]
    parts = [group.column(k) for group in groups for k in range(group.num_columns)]
    cells = sum(max(part.num_values, 0) for part in parts)
    check_cells(path, max(cells, facts.num_rows * facts.num_columns), most)
    if sum(max(part.total_uncompressed_size, 0) for part in parts) > most:
        raise TableError(too_large(path, most, "unpacked, "))


def _arrow_column(
    path: Path, name: str, column: pyarrow.ChunkedArray | pyarrow.Array
) -> np.ndarray:
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind):
        return np.concatenate([_from_dictionary(path, name, chunk) for chunk in column.chunks])
    if types.is_nested(kind) or "binary" in str(kind):
        raise TableError(f"{path}, column {name!r}: values of type {kind} cannot be used")
    if types.is_integer(kind) or types.is_floating(kind):
        doubles = column.cast("float64", safe=False)  # null is NaN
        return np.array(doubles.to_numpy(zero_copy_only=False), dtype=np.float64)
    values = column.to_pylist()
    if types.is_decimal(kind):
        return np.array([np.nan if v is None else float(v) for v in values])
    # the same texts as in a CSV file, so that False is the label False in both
    return np.array(
        [None if v is None else text_or_missing(str(v).strip()) for v in values], dtype=object
    )


def _from_dictionary(path: Path, name: str, chunk: pyarrow.DictionaryArray) -> np.ndarray:
    values = _arrow_column(path, name, chunk.dictionary)
    missing = None if values.dtype == object else np.nan
    values = np.append(values, np.array([missing], dtype=values.dtype))
    return values[chunk.indices.cast("int64").fill_null(len(values) - 1).to_numpy()]


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
