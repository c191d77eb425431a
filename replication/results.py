"""Finished pieces in a file: one line of JSON each, appended as soon as it is there.

A line holds the piece's settings, its row and its processor seconds, and names the environment it
was computed in; environments (versions, machine, commit) have lines of their own. A process that is
killed while it writes leaves half a line, which is passed over and cut off by the next run. A piece
counts as done if a line has its key and the same settings; of several lines the last one counts.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.record import ROOT, machine

from replication.experiment import Done, Piece, Profile, Row


class Busy(RuntimeError):
    """Another process writes to the same file."""


class Results:
    """The file of one experiment and one profile."""

    def __init__(self, name: str, profile: Profile, folder: Path | None = None) -> None:
        place = folder or ROOT / "replication" / name / "results"
        self.file = place / (f"{name}-{profile}.jsonl" if folder else f"{profile}.jsonl")
        self.profile = profile

    def done(self) -> dict[str, Done]:
        """The finished pieces by key."""
        lines = (line for line in self._lines() if "piece" in line)
        return {
            line["piece"]: Done(
                line["piece"],
                line["settings"],
                line["row"],
                line["cpu_seconds"],
                str(self.profile),
                line["environment"],
            )
            for line in lines
        }

    def environments(self) -> dict[str, Row]:
        return {
            line["environment"]: line["is"]
            for line in self._lines()
            if "environment" in line and "is" in line
        }

    def missing(self, pieces: list[Piece]) -> list[Piece]:
        """The pieces that have no line with the same settings yet."""
        done = self.done()
        return [p for p in pieces if p.key not in done or done[p.key].settings != plain(p.settings)]

    @contextmanager
    def writing(self) -> Iterator[Results]:
        """The right to append, for one process at a time; a lock dies with its process."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a+") as file:
            _lock(file, self.file)
            self._cut_half_line()
            yield self

    def append(self, piece: Piece, row: Row, cpu_seconds: float, environment: Row) -> None:
        """The call returns when the line is on the disk."""
        name = _digest(environment)
        lines = [] if name in self.environments() else [{"environment": name, "is": environment}]
        lines.append(
            {
                "piece": piece.key,
                "settings": piece.settings,
                "row": row,
                "cpu_seconds": round(cpu_seconds, 3),
                "environment": name,
            }
        )
        with self.file.open("a") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())

    def _lines(self) -> Iterator[Row]:
        if not self.file.exists():
            return
        with self.file.open() as file:
            for line in file:
                if line.endswith("\n"):
                    yield json.loads(line)

    def _cut_half_line(self) -> None:
        content = self.file.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(self.file, whole)


def environment() -> Row:
    """What numbers depend on beside settings: versions, machine, commit; nothing that names the
    machine."""
    return {**machine(), "commit": _commit()}


def plain(value: Any) -> Any:
    """The value as JSON gives it back."""
    return json.loads(json.dumps(value))


def _commit() -> str:
    """The commit of the repository, with a plus where files of the package differ from it."""

    def git(*words: str) -> str:
        called = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        return called.stdout.strip()

    commit = git("rev-parse", "--short=12", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", "src")
    return (commit or "unknown") + ("+" if changed else "")


def _digest(environment: Row) -> str:
    return hashlib.sha256(json.dumps(environment, sort_keys=True).encode()).hexdigest()[:8]


def _lock(file: Any, path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows: two runs of one experiment are the user's to avoid
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise Busy(f"another process is writing to {path}") from None
