"""What commands say: words for people, JSON for machines, nothing if asked to be quiet.

Results go to stdout, notes, warnings and progress to stderr; progress is drawn on terminals, and
a line now and then elsewhere.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic as clock
from typing import TYPE_CHECKING, Any

import click

from cvxnn.progress import Follower, followed
from cvxnn.tables.notes import Guess

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, Task, TaskID
    from rich.text import Text

    from cvxnn.generation.rounds import Round
    from cvxnn.solvers.results import Progress as Iteration

PROGRESS = "... "  # what lines about progress begin with
_LEAST_GAP = 1e-12  # the smallest gap that a bar can show


class Console:
    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self.as_json, self.quiet = as_json, quiet
        self.notes: list[str] = []

    def say(self, text: str = "") -> None:
        if not (self.as_json or self.quiet):
            click.echo(text)

    def table(self, rows: list[tuple[str, str]]) -> None:
        """Labels and values, in two columns."""
        width = max(len(label) for label, _ in rows)
        for label, value in rows:
            self.say(f"  {label:<{width}}  {value}")

    def note(self, text: str, kind: str = "note") -> None:
        self.notes.append(text)
        if not (self.as_json or self.quiet):
            click.echo(f"{kind}: {text}", err=True)

    def notes_on_data(self, notes: Iterable[str]) -> None:
        """What was done to a table; guesses that matter come first, and as warnings."""
        for text in sorted(notes, key=lambda text: not isinstance(text, Guess)):
            self.note(text, "warning" if isinstance(text, Guess) else "note")

    def result(self, values: Mapping[str, object]) -> None:
        """The answer as JSON, with all notes so far."""
        if self.as_json:
            click.echo(json.dumps(_plain({**values, "notes": self.notes})))

    @contextmanager
    def warnings_as_notes(self) -> Iterator[None]:
        """Show warnings of the library as notes of the command line, each once."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for text in dict.fromkeys(str(warning.message) for warning in caught):
            self.note(text, "warning")

    @contextmanager
    def progress(self) -> Iterator[Bars]:
        """Bars on a terminal; elsewhere a line now and then. Results are said after it, because
        bars take over what is printed meanwhile."""
        if self.as_json or self.quiet:
            yield Bars()
            return
        if not sys.stderr.isatty():
            with followed(Follower(self._line)) as follower:
                yield Bars(None, follower)
            return
        from rich import progress
        from rich.console import Console as Terminal

        columns = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TimeElapsedColumn(),
            progress.TextColumn("left"),
            _time_left(),
        )
        with progress.Progress(*columns, console=Terminal(stderr=True), transient=True) as drawn:
            bars = Bars(drawn)
            with followed(Follower(lambda line: None, bars.step)):
                yield bars

    @staticmethod
    def _line(text: str) -> None:
        click.echo(f"{PROGRESS}{text}", err=True)


class Bars:
    """Progress of what takes time: folds or points, which are counted, a gap that falls, and rounds
    of generation. Without a terminal to draw on, a follower is told."""

    def __init__(self, bars: Progress | None = None, follower: Follower | None = None) -> None:
        self._bars, self._follower = bars, follower
        self._tasks: dict[str, TaskID] = {}

    def step(self, name: str) -> None:
        """Draw a bar without an end for a step, until the step has a bar of its own."""
        if self._bars is not None:
            for task in self._tasks.values():
                self._bars.remove_task(task)
            self._tasks = {"": self._bars.add_task(name, total=None)} if name else {}

    def count(self, label: str) -> Callable[[int, int], None]:
        """A callback for the number of things done, and the number of all."""

        def show(done: int, total: int) -> None:
            self._update(label, f"{label} {done} of {total}", done, total)

        return show

    def gap(self, tol: float) -> Callable[[Iteration], None]:
        """A callback for a solver's progress; the bar measures the logarithm of the gap."""
        total = -math.log10(max(tol, _LEAST_GAP))

        def show(iteration: Iteration) -> None:
            gap = min(max(iteration.relative_gap, _LEAST_GAP), 1.0)
            done, guess = min(-math.log10(gap), total), (clock(), iteration.seconds_left)
            self._update("gap", iteration.words, done, total, guess=guess)

        return show

    def rounds(self) -> Callable[[Round], None]:
        """A callback for the rounds of generation. Nobody knows how many are left, so the bar only
        says that something is going on."""

        def show(found: Round) -> None:
            self._update("round", found.words, 0, None)

        return show

    def _update(self, key: str, text: str, done: float, total: float | None, **fields: Any) -> None:
        if self._follower is not None:
            self._follower.detail(text)
        if self._bars is None:
            return
        if "" in self._tasks:
            self._bars.remove_task(self._tasks.pop(""))
        if key not in self._tasks:
            self._tasks[key] = self._bars.add_task(text, total=total, **fields)
        self._bars.update(self._tasks[key], description=text, completed=done, **fields)


def _time_left() -> ProgressColumn:
    """The column of the time that is left: the solver's own guess, where there is a solver, else
    from the pace at which things are counted."""
    from rich.progress import TimeRemainingColumn
    from rich.text import Text

    class TimeLeft(TimeRemainingColumn):
        def render(self, task: Task) -> Text:
            if "guess" not in task.fields:
                return super().render(task)
            at, left = task.fields["guess"]
            return Text(_duration(None if left is None else max(left - (clock() - at), 0.0)))

    return TimeLeft()


def _duration(seconds: float | None) -> str:
    """Hours, minutes and seconds; dashes if nobody knows, or if it will take more than days."""
    if seconds is None or seconds >= 1e6:
        return "-:--:--"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def _plain(value: object) -> object:
    """A value in the types of JSON, which has neither NaN nor infinity: null stands for them."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
