"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass

from cvxnn.digits import text_above, text_below

# What may be off where it sets a scale only, or is claimed up to rounding only, relative.
SLACK = 1e-9


@dataclass(frozen=True)
class Verification:
    """What `verify` found.

    Attributes
    ----------
    objective, network_objective : from above, by no more than rounding to a double.
    lower_bound : what the dual point proves, from below.
    zero_objective, max_violation : what a `Certificate` has under these names, recomputed.
    scope : the problem that they are about.
    checked : what was recomputed, and how, in words.
    differences : the claims of the certificate that were not confirmed, in words.
    finished : whether the check came to its end; one that did not confirms nothing.
    over_all : the same for the bound over all patterns, where there is one.
    others : the same for further networks, where that of a model is a mean of several; nothing is
        claimed of the mean.
    """

    objective: float
    lower_bound: float
    zero_objective: float
    max_violation: float
    network_objective: float | None
    scope: str
    checked: tuple[str, ...]
    differences: tuple[str, ...] = ()
    finished: bool = True
    over_all: Verification | None = None
    others: tuple[Verification, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether every claim of every certificate was confirmed."""
        own = self.finished and not self.differences
        further = self.others if self.over_all is None else (self.over_all, *self.others)
        return own and all(one.agrees for one in further)

    @property
    def verdict(self) -> str:
        """The outcome in one or two words."""
        if not self.finished or (self.over_all is not None and not self.over_all.finished):
            return "NOT finished"
        return "confirmed" if self.agrees else "NOT confirmed"

    @property
    def relative_gap(self) -> float:
        """(objective - lower_bound) / max(objective, 1e-8 zero_objective), with 0/0 = 0."""
        gap = max(self.objective - self.lower_bound, 0.0)
        return gap / max(self.objective, 1e-8 * self.zero_objective) if gap > 0 else 0.0

    def __str__(self) -> str:
        lines = [
            f"certificate {self.verdict}: {self.scope}",
            f"found: objective {text_above(self.objective)}, lower bound "
            f"{text_below(self.lower_bound)}, relative gap {text_above(self.relative_gap, 2)}",
            *(f"checked: {text}" for text in self.checked),
            *(f"differs: {text}" for text in self.differences),
        ]
        if self.over_all is not None:
            lines.append(str(self.over_all))
        lines += [str(other) for other in self.others]
        return "\n".join(lines)
