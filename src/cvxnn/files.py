"""Files on the disk: written whole or not at all, and read up to a stated size only."""

from __future__ import annotations

import io
import os
import re
import select
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO, Protocol

try:
    import fcntl
except ImportError:  # not a Unix: temporary files of killed processes stay
    fcntl = None  # type: ignore[assignment]

TABLE_BYTES = 2**30  # of a table, unpacked
MODEL_BYTES = 2**32  # of a model or a checkpoint
_VARIABLE = "CVXNN_MAX_BYTES"  # the environment variable that overrides both
_PIECE = 2**20
_WRITER_SECONDS = 10.0  # how long to wait for the first writer of a pipe
_TEMPORARY = re.compile(r"\.cvxnn-[0-9a-f]{16}\.tmp")


class Readable(Protocol):
    """A file, or what unpacks one."""

    def read(self, size: int, /) -> bytes: ...


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` to `path` whole or not at all, and on the disk before it takes the place of
    what was there.

    The content goes to a file without a name, which vanishes with its process, or to one with a
    temporary name on systems that have no such files. A process that is killed between naming and
    renaming leaves the temporary file behind; the next write to the folder removes it. Writers lock
    what they write and locks end with their process, so nobody removes a file that another process
    is about to rename.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} to")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder")
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is not a regular file, and would be replaced by one")
    _remove_abandoned(path.parent)
    temporary = path.with_name(f".cvxnn-{token_hex(8)}.tmp")
    try:
        handle = _written(temporary, content)
        try:
            os.replace(temporary, path)
        finally:
            os.close(handle)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is not None:
            named = OSError(error.errno, error.strerror, str(path))  # as its user named it
            raise named.with_traceback(error.__traceback__) from None
        raise
    _sync_folder(path.parent)


def _written(temporary: Path, content: bytes) -> int:
    """The handle of a file of this name and content, which is on the disk, and locked."""
    try:
        return _filled(_nameless(temporary.parent), content, temporary)
    except OSError:  # no such files on this system; any other error will come again
        return _filled(_named(temporary), content)


def _filled(handle: int, content: bytes, name: Path | None = None) -> int:
    """The handle, with the content on the disk, and with a name if it had none."""
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
        if name is not None:  # src_dir_fd is not used, but makes Python follow the link
            os.link(f"/proc/self/fd/{handle}", name, src_dir_fd=handle)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _nameless(folder: Path) -> int:
    """A new file that has no name."""
    if not hasattr(os, "O_TMPFILE"):
        raise OSError("this system has no files without a name")
    handle = os.open(folder, os.O_WRONLY | os.O_TMPFILE, 0o666)
    _lock(handle)
    return handle


def _named(temporary: Path) -> int:
    """A new, locked file of this name; made again if another process removed it as abandoned before
    it was locked."""
    while True:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        _lock(handle)
        if os.fstat(handle).st_nlink > 0:
            return handle
        os.close(handle)


def _lock(handle: int) -> None:
    with suppress(OSError):  # where there are no locks nothing is removed, either
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)


def _remove_abandoned(folder: Path) -> None:
    """Remove temporary files whose writers were killed: those that nobody has locked."""
    if fcntl is None:
        return
    for file in folder.glob(".cvxnn-*.tmp"):
        if not _TEMPORARY.fullmatch(file.name):
            continue
        with suppress(OSError):  # it is in use, or another process was faster
            handle = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                file.unlink()
            finally:
                os.close(handle)


def _sync_folder(folder: Path) -> None:
    """Make a new name last, where folders can be synced."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def most_bytes(default: int) -> int:
    """The most that is read: the default, or what the environment says."""
    told = os.environ.get(_VARIABLE)
    if told is None:
        return default
    if not re.fullmatch(r"[1-9][0-9]{0,17}", told):
        raise ValueError(f"{_VARIABLE} must be a positive whole number of bytes, got {told!r}")
    return int(told)


def read_bounded(
    path: Path,
    most: int,
    refusal: type[ValueError],
    look: Callable[[bytes], None] = lambda beginning: None,
) -> bytes:
    """What a file or a pipe holds, if that is at most `most` bytes.

    look : called with the beginning, at least 8 bytes of it if there are as many; may raise.
    """
    with _opened(path, refusal) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise refusal(too_large(path, most))
        beginning = file.read(_PIECE)
        look(beginning)
        return _rest(file, beginning, path, most, refusal)


def unpacked(file: Readable, path: Path, most: int, refusal: type[ValueError]) -> bytes:
    """What a compressed file holds, if that is at most `most` bytes."""
    return _rest(file, b"", path, most, refusal, "unpacked, ")


def _rest(
    file: Readable,
    beginning: bytes,
    path: Path,
    most: int,
    refusal: type[ValueError],
    how: str = "",
) -> bytes:
    content = io.BytesIO()
    piece = beginning or file.read(_PIECE)
    while piece:
        content.write(piece)
        if content.tell() > most:
            raise refusal(too_large(path, most, how))
        piece = file.read(_PIECE)
    return content.getvalue()


def too_large(path: Path, most: int, how: str = "") -> str:
    """The message about a file that is not read."""
    return (
        f"{path} is too large: {how}more than {most:,} bytes, which is all that is read; set "
        f"{_VARIABLE} to read more"
    )


def _opened(path: Path, refusal: type[ValueError]) -> BinaryIO:
    """A file, a pipe or a terminal; devices never end."""
    mode = os.stat(path).st_mode
    if stat.S_ISFIFO(mode):
        return _pipe(path, refusal)
    file = open(path, "rb")  # noqa: SIM115
    if not stat.S_ISREG(mode) and not file.isatty():
        file.close()
        raise refusal(f"{path} is a device, not a file")
    return file


def _pipe(path: Path, refusal: type[ValueError]) -> BinaryIO:
    """A pipe that somebody writes to, however slowly."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # which does not wait for a writer
    try:
        if os.path.exists(os.path.realpath(path)):  # it has a name, so its writer may come later
            _await_writer(handle, path, refusal)
        os.set_blocking(handle, True)
    except BaseException:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def _await_writer(handle: int, path: Path, refusal: type[ValueError]) -> None:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    if poll.poll(1000 * _WRITER_SECONDS):
        return
    try:
        os.read(handle, 1)
    except BlockingIOError:  # there is a writer, who takes time
        return
    raise refusal(f"{path} is a pipe that nobody has written to for {_WRITER_SECONDS:g} seconds")
