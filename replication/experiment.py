"""What an experiment is: pieces of work, a page and figures made of their results, verdicts.

An experiment reruns one or several floats of the paper. Its work is cut into pieces that know
nothing of each other, each a few minutes at most, so that a run can be stopped anywhere. What a
piece computes depends on its settings alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

Row = dict[str, Any]


class Profile(StrEnum):
    """How much of the paper's setting is run."""

    SMOKE = "smoke"  # seconds: whether everything works
    DESK = "desk"  # two cores, at most three hours an experiment
    PAPER = "paper"  # the full setting


class Piece(NamedTuple):
    """A piece of work.

    key : its name, unique in the experiment.
    settings : all that its result depends on, as JSON has it.
    cost : processor seconds that it is expected to take, for the estimate of the time left.
    """

    key: str
    settings: Row
    cost: float = 1.0


class Done(NamedTuple):
    """A finished piece: what was asked for, what came out, and what it took."""

    key: str
    settings: Row
    row: Row
    cpu_seconds: float
    profile: str
    environment: str


class Judgement(StrEnum):
    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "cannot be told"


class Verdict(NamedTuple):
    """On a claim of the paper, with the number that decides it and why."""

    claim: str
    judgement: Judgement
    number: str
    reason: str


@dataclass(frozen=True)
class Experiment:
    """One or several floats of the paper.

    Attributes
    ----------
    name : of its folder.
    title : of its page.
    floats : what it reruns, as "Table 1" or "Figure 6".
    pieces : the work of a profile, in the order in which it is best done.
    run : computes a piece from its settings; imported by name in other processes.
    present : the page's Markdown, without its title, of all finished pieces.
    draw : puts figures into a folder and returns their file names.
    verdicts : on the claims that the experiment decides.
    reductions : for each profile below the full setting, in words, what is less than in the paper.
    """

    name: str
    title: str
    floats: tuple[str, ...]
    pieces: Callable[[Profile], Sequence[Piece]]
    run: Callable[[Row], Row]
    present: Callable[[Sequence[Done]], str]
    draw: Callable[[Sequence[Done], Path], Sequence[str]] | None = None
    verdicts: Callable[[Sequence[Done]], Sequence[Verdict]] | None = None
    reductions: dict[Profile, str] = field(default_factory=dict)
