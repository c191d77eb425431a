"""Notes on what was done to a table, and which of them are worth a warning."""

from __future__ import annotations

import warnings
from collections.abc import Iterable


class TableWarning(UserWarning):
    """Something about a table was guessed that matters, and another guess may be the right one."""


class Guess(str):
    """A note on a guess that matters, and that only the user can judge."""

    __slots__ = ()


def warn_about_guesses(notes: Iterable[str]) -> None:
    """Warn the caller of the caller about guesses; other notes are for those who look at them."""
    for note in notes:
        if isinstance(note, Guess):
            warnings.warn(note, TableWarning, stacklevel=3)
