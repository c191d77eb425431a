"""The convex program of a model on the rows that it was trained on."""

from __future__ import annotations

from dataclasses import dataclass

from cvxnn.estimators.rows import Numbers, Rows
from cvxnn.networks import TwoLayerNetwork
from cvxnn.verification.programs import Program, Scales


@dataclass(frozen=True, eq=False)
class PosedModel:
    """The convex program of a model.

    rows : distinct and scaled, with their raw weights.
    differences : which numbers of the file differ from those of these rows, in words.
    """

    rows: Rows
    program: Program
    numbers: Numbers
    differences: tuple[str, ...]

    @property
    def scales(self) -> Scales:
        columns, targets = self.numbers.columns, self.numbers.targets
        directions = None if self.numbers.components is None else self.numbers.components.directions
        return Scales(columns.mean, columns.spread, targets.mean, targets.spread, directions)

    def strays(self, network: TwoLayerNetwork) -> tuple[str, ...]:
        """What a network does that its program does not see, in words."""
        components = self.numbers.components
        scaled = self.numbers.columns.inverse().undo(network)
        if components is None or components.contain(scaled):
            return ()
        return ("the network depends on more than the components of the columns",)
