"""Rows of numbers in a file, for data that do not fit into memory.

The file holds raw rows, one after the other. They are read in chunks by `pread` into two buffers: a
thread fills one while the other is computed with. (Mapping the file into memory took three times
the memory, and counts against limits of it.) What is done to columns, such as scaling, is noted
and applied to chunks as they are read, until `written` makes another file of it.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any, Self, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

CHUNK = 2**24  # bytes of a chunk, of which two are in memory
MULTIPLE = 64  # of rows in a chunk: patterns are words of bits
_TOGETHER = 2**16  # bytes between two rows that are not worth a read of their own
_BINARY = getattr(os, "O_BINARY", 0)

Step = Callable[[np.ndarray], np.ndarray]  # what is done to the rows of a chunk


def is_stored(x: object) -> TypeGuard[StoredRows]:
    return isinstance(x, StoredRows)


class StoredRows:
    """Rows (n, d) of float32 or float64 numbers in a file, which take the place of an array X in
    `sample_patterns`, `CGReLU`, the gated estimators and `predict`.

    Parameters
    ----------
    path : a file of raw numbers, row by row, in the byte order of the machine.
    n_columns : d; the size of the file says how many rows there are.
    dtype : of the numbers.
    offset : bytes before the first row.

    `StoredRows.from_npy`, `from_parquet` and `from_chunks` make them from other data.
    """

    ndim = 2

    def __init__(
        self,
        path: str | PathLike[str],
        n_columns: int,
        dtype: DTypeLike = np.float64,
        *,
        offset: int = 0,
    ) -> None:
        self._take(RawFile(Path(path)), n_columns, dtype, offset)

    def _take(self, file: RawFile, n_columns: int, dtype: DTypeLike, offset: int) -> None:
        self._file, self._offset, self._stored = file, offset, np.dtype(dtype)
        if self._stored not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise TypeError(f"rows in files are float32 or float64, got {self._stored}")
        if n_columns < 1:
            raise ValueError(f"n_columns must be positive, got {n_columns}")
        self._row_bytes = n_columns * self._stored.itemsize
        size = file.size - offset
        if size <= 0 or size % self._row_bytes:
            raise ValueError(
                f"{file.path} holds {size:,} bytes after the first {offset}, which are not rows of "
                f"{n_columns} numbers of {self._stored.itemsize} bytes"
            )
        self.shape: tuple[int, int] = (size // self._row_bytes, n_columns)
        self._columns_stored, self._steps, self.dtype = n_columns, (), self._stored
        self.chunk_rows = max(1, CHUNK // self._row_bytes // MULTIPLE) * MULTIPLE

    _steps: tuple[Step, ...]

    # -- where they come from

    @classmethod
    def from_npy(cls, path: str | PathLike[str]) -> Self:
        """The rows of a .npy file, which is read where it is."""
        with open(path, "rb") as file:
            version = np.lib.format.read_magic(file)
            if version != (1, 0):
                raise ValueError(f"{path} is a .npy file of version {version}; (1, 0) is expected")
            shape, by_column, dtype = np.lib.format.read_array_header_1_0(file)
            offset = file.tell()
        if len(shape) != 2 or by_column:
            raise ValueError(f"{path} must hold a 2-dimensional array, row by row, got {shape}")
        return cls(path, shape[1], dtype, offset=offset)

    @classmethod
    def from_chunks(
        cls, chunks: Iterable[ArrayLike], dtype: DTypeLike | None = None, folder: str | None = None
    ) -> Self:
        """Write chunks of rows (k, d), from whatever source, one after the other into a temporary
        file, which is removed with the rows. `dtype` is that of the first chunk unless given, and
        `folder` that for temporary files."""
        file = RawFile.temporary(folder)
        n_columns, n = None, 0
        for chunk in chunks:
            rows = np.asarray(chunk)
            if n_columns is None:
                single = rows.dtype == np.float32
                dtype = (np.float32 if single else np.float64) if dtype is None else dtype
                n_columns = rows.shape[1] if rows.ndim == 2 else 0
            if rows.ndim != 2 or rows.shape[1] != n_columns or n_columns == 0:
                raise ValueError(
                    f"chunks must be rows of equally many numbers, got shape {rows.shape}"
                )
            rows = np.ascontiguousarray(rows, dtype=dtype)
            _check_finite(rows, n)
            file.write(rows)
            n += len(rows)
        if n_columns is None or n == 0:
            raise ValueError("X is empty: there are no rows")
        rows_in_file = cls.__new__(cls)
        rows_in_file._take(file, n_columns, np.float64 if dtype is None else dtype, 0)
        file.checked = True
        return rows_in_file

    @classmethod
    def from_parquet(
        cls,
        paths: str | PathLike[str] | Sequence[str | PathLike[str]],
        columns: Sequence[str] | None = None,
        dtype: DTypeLike = np.float64,
        folder: str | None = None,
    ) -> Self:
        """The numbers of Parquet files, written once as rows to a temporary file. `columns` are
        their names, all columns unless given."""
        try:
            from pyarrow import parquet
        except ImportError as error:
            raise ImportError("Parquet files need pyarrow: pip install 'cvxnn[data]'") from error
        files = [paths] if isinstance(paths, (str, PathLike)) else list(paths)

        def chunks() -> Iterator[np.ndarray]:
            for path in files:
                with parquet.ParquetFile(path) as file:
                    for batch in file.iter_batches(columns=columns, use_threads=False):
                        yield np.column_stack([np.asarray(column) for column in batch.columns])

        return cls.from_chunks(chunks(), dtype, folder)

    @classmethod
    def from_array(cls, X: Any, dtype: DTypeLike | None = None, folder: str | None = None) -> Self:
        """The rows of an array, which may be mapped from a file, written to a temporary file."""
        step = max(1, CHUNK // (8 * max(1, X.shape[1])))
        parts = (X[start : start + step] for start in range(0, X.shape[0], step))
        return cls.from_chunks(parts, dtype, folder)

    # -- what is done to columns

    def then(self, step: Step, *, columns: int = 0, dtype: DTypeLike | None = None) -> Self:
        """The same rows, with `step` done to every chunk; it may add `columns`."""
        other = copy(self)
        other._steps = (*self._steps, step)
        other.shape = (self.shape[0], self.shape[1] + columns)
        other.dtype = self.dtype if dtype is None else np.dtype(dtype)
        return other

    def with_ones(self) -> Self:
        return self.then(_AddOnes(), columns=1)

    def first_columns(self, count: int) -> Self:
        """Without the others."""
        if count == self.shape[1]:
            return self
        return self.then(_First(count), columns=count - self.shape[1])

    def divided(self, scale: np.ndarray) -> Self:
        """x / scale, column by column."""
        return self.then(_Divide(scale.astype(self.dtype)))

    def scaled(self, mean: np.ndarray, spread: np.ndarray) -> Self:
        """(x - mean) / spread in float64, column by column."""
        return self.then(_Scale(mean, spread), dtype=np.float64)

    def leading(self, grid: np.ndarray) -> Self:
        """x rounded to multiples of the grid, column by column."""
        return self.then(_Round(grid))

    def rest(self, grid: np.ndarray) -> Self:
        """What this rounding leaves."""
        return self.then(_Rest(grid))

    def astype(self, dtype: DTypeLike) -> Self:
        if np.dtype(dtype) == self.dtype:
            return self
        return self.then(_Cast(np.dtype(dtype)), dtype=dtype)

    def select(self, rows: np.ndarray) -> StoredRows:
        """Some rows (indices or booleans), in a file of their own."""
        index = np.arange(len(self))[rows]
        parts = (index[k : k + self.chunk_rows] for k in range(0, len(index), self.chunk_rows))
        return self.from_chunks((self[part] for part in parts), self.dtype, self._file.folder)

    def written(self) -> StoredRows:
        """The same rows in a file of their own, if there is something left to do to them."""
        if not self._steps:
            return self
        made = self.from_chunks((rows for _, rows in self.chunks()), self.dtype, self._file.folder)
        self._file.buffers.clear()  # passes now are over the new file
        return made

    def check_finite(self) -> None:
        """Raise unless all numbers of the file are finite; the rows are read once for that."""
        if not self._file.checked:
            for rows, block in self.chunks():
                _check_finite(block, rows.start)
            self._file.checked = True

    # -- reading

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"StoredRows({self.shape[0]:,} x {self.shape[1]} {self.dtype}, {self._file.path})"

    @property
    def nbytes(self) -> int:
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        raise TypeError("X is in a file; this needs an array: X[:] reads all rows into memory")

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Some rows as an array: by a slice, indices or booleans."""
        if isinstance(rows, tuple):
            if len(rows) != 2 or rows[1] != slice(None):
                raise TypeError("rows in files are taken whole: X[rows]")
            rows = rows[0]
        if isinstance(rows, slice) and rows.indices(len(self))[2] == 1:
            start, stop, _ = rows.indices(len(self))
            return self._done(self._read(start, max(start, stop)))
        index = np.atleast_1d(np.arange(len(self))[rows])
        stored = np.empty((len(index), self._columns_stored), dtype=self._stored)
        order = np.argsort(index, kind="stable")
        far = np.flatnonzero(np.diff(index[order]) * self._row_bytes > _TOGETHER) + 1
        for part in np.split(order, far):
            for some in np.array_split(part, max(1, -(-len(part) // self.chunk_rows))):
                if len(some):
                    first = index[some[0]]
                    stored[some] = self._read(first, index[some[-1]] + 1)[index[some] - first]
        return self._done(stored)

    def chunks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """All rows, a chunk at a time, with the slice of rows that it is. The array is good until
        the next one is asked for. The next chunk is read meanwhile."""
        starts = range(0, len(self), self.chunk_rows)
        parts = [slice(start, min(start + self.chunk_rows, len(self))) for start in starts]
        buffers = [self._buffer(), self._buffer()]
        with ThreadPoolExecutor(1) as reader:
            coming = reader.submit(self._read, parts[0].start, parts[0].stop, buffers[0])
            for k, rows in enumerate(parts):
                block = coming.result()
                if k + 1 < len(parts):
                    then = parts[k + 1]
                    coming = reader.submit(self._read, then.start, then.stop, buffers[(k + 1) % 2])
                yield rows, self._done(block)
        self._file.buffers += buffers

    def _buffer(self) -> np.ndarray:
        """Of a chunk; those of earlier passes over the file are used again, whose memory is there
        already."""
        try:
            return self._file.buffers.pop()
        except IndexError:
            rows = min(self.chunk_rows, len(self))
            return np.empty((rows, self._columns_stored), dtype=self._stored)

    def _read(self, start: int, stop: int, buffer: np.ndarray | None = None) -> np.ndarray:
        if buffer is None:
            buffer = np.empty((stop - start, self._columns_stored), dtype=self._stored)
        block = buffer[: stop - start]
        self._file.read_into(block, self._offset + start * self._row_bytes)
        return block

    def _done(self, block: np.ndarray) -> np.ndarray:
        for step in self._steps:
            block = step(block)
        return block


class RawFile:
    """An open file, closed with its last user."""

    def __init__(self, path: Path, folder: str | None = None) -> None:
        self.path, self.folder, self.checked = path, folder, False
        self.buffers: list[np.ndarray] = []  # of chunks, for the next pass
        self._handle = os.open(path, (os.O_RDWR if folder else os.O_RDONLY) | _BINARY)
        self._lock = Lock()  # where there is no `pread`, positions are shared
        self._end = weakref.finalize(self, _close, self._handle)

    @classmethod
    def temporary(cls, folder: str | None) -> RawFile:
        """A new file, which is removed with its last user. Where open files have names of their
        own in /proc it loses its name at once, so that even a killed process leaves none behind."""
        folder = tempfile.gettempdir() if folder is None else folder
        handle, name = tempfile.mkstemp(prefix="cvxnn-rows-", dir=folder)
        os.close(handle)
        file = cls(Path(name), folder)
        alias = Path(f"/proc/{os.getpid()}/fd/{file._handle}")
        if alias.exists():
            os.unlink(name)
            file.path = alias  # for other processes, as long as this one has it open
        else:
            file._end.detach()
            file._end = weakref.finalize(file, _close, file._handle, Path(name), os.getpid())
        return file

    @property
    def size(self) -> int:
        return os.fstat(self._handle).st_size

    def write(self, block: np.ndarray) -> None:
        """At the end."""
        view = memoryview(block.data).cast("B")
        while len(view):
            view = view[os.write(self._handle, view) :]

    def read_into(self, block: np.ndarray, offset: int) -> None:
        view = memoryview(block.data).cast("B") if block.size else memoryview(b"")
        done = 0
        while done < len(view):
            got = self._read_some(view[done:], offset + done)
            if got == 0:
                raise OSError(f"{self.path} ended early: it has been changed")
            done += got

    def _read_some(self, view: memoryview, offset: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._handle, [view], offset)
        with self._lock:
            os.lseek(self._handle, offset, os.SEEK_SET)
            content = os.read(self._handle, len(view))
        view[: len(content)] = content
        return len(content)

    def __reduce__(self) -> tuple[type[RawFile], tuple[Path]]:
        return RawFile, (self.path,)  # whoever made a temporary file removes it


def _check_finite(block: np.ndarray, first: int) -> None:
    bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
    if len(bad):
        raise ValueError(f"X holds NaN or infinity, first in row {first + bad[0]}")


def _close(handle: int, path: Path | None = None, process: int = 0) -> None:
    """Close a file, and remove it if it has a path; a fork of the process does not own it."""
    os.close(handle)
    if path is not None and os.getpid() == process:
        path.unlink(missing_ok=True)


class _AddOnes:
    def __call__(self, block: np.ndarray) -> np.ndarray:
        return np.concatenate([block, np.ones_like(block[:, :1])], axis=1)


@dataclass(frozen=True)
class _First:
    count: int

    def __call__(self, block: np.ndarray) -> np.ndarray:
        return block[:, : self.count]


@dataclass(frozen=True, eq=False)
class _Divide:
    scale: np.ndarray

    def __call__(self, block: np.ndarray) -> np.ndarray:
        return block / self.scale


@dataclass(frozen=True, eq=False)
class _Scale:
    mean: np.ndarray
    spread: np.ndarray

    def __call__(self, block: np.ndarray) -> np.ndarray:
        found = block - self.mean
        found /= self.spread
        return found


@dataclass(frozen=True, eq=False)
class _Round:
    grid: np.ndarray

    def __call__(self, block: np.ndarray) -> np.ndarray:
        return np.rint(block / self.grid) * self.grid


@dataclass(frozen=True, eq=False)
class _Rest:
    grid: np.ndarray

    def __call__(self, block: np.ndarray) -> np.ndarray:
        return block - np.rint(block / self.grid) * self.grid


@dataclass(frozen=True, eq=False)
class _Cast:
    dtype: np.dtype

    def __call__(self, block: np.ndarray) -> np.ndarray:
        return block.astype(self.dtype)
