"""The convex programs of a model, posed again from its table and the numbers in its file.

They are computed elementwise, so that they are the same on every machine. A network of a fold has a
program of its own: that of the training rows without those that the fold holds out, with targets in
the units of all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from cvxnn.certificates import Certificate
from cvxnn.estimators.base import NetworkEstimator
from cvxnn.estimators.ensembles import ProvenMember
from cvxnn.estimators.posing import Posing
from cvxnn.estimators.rows import Numbers, Rows
from cvxnn.modelfile import ModelFileError
from cvxnn.networks import TwoLayerNetwork
from cvxnn.verification.checks import verify_network
from cvxnn.verification.many_rows import value_of
from cvxnn.verification.programs import Program, Scales
from cvxnn.verification.results import Verification

# A claimed objective is this much, relative, above the one that was found, so that a check on
# another machine, whose last bits may differ, still confirms it.
MARGIN = 2.0**-46


@dataclass(frozen=True, eq=False)
class PosedAgain:
    """The convex program of a network.

    rows : distinct and scaled, with their raw weights.
    differences : which numbers of the file differ from those of these rows, in words.
    """

    rows: Rows
    program: Program
    numbers: Numbers
    differences: tuple[str, ...]

    @classmethod
    def of(
        cls, estimator: NetworkEstimator, given: Rows, member: ProvenMember, *, merged: bool
    ) -> PosedAgain:
        """Of a network, from all rows trained on; merged as in training."""
        posing = Posing.of_fitted(estimator)
        if member.numbers is not None:
            posing = posing.with_factors(member.numbers.factors)
        targets = None
        rows = given
        if member.places is not None:
            targets = posing.target_scaling(given.merged())
            rows = given.select(member.places)
        rows = rows.merged() if merged else rows
        again = posing.numbers(rows, targets)
        numbers = again if member.numbers is None else member.numbers
        if not member.bits.n == len(rows) == len(numbers.row_weight):
            raise ModelFileError(
                f"the model's bounds are for {member.bits.n} distinct rows, but the table has "
                f"{len(rows)} to train on"
            )
        rows = numbers.scaled(rows)
        p, kind = member.bits.shape[1], posing.problem.kind
        settings = posing.targets.loss_settings
        ones = np.ones((len(rows), int(estimator.fit_intercept)))
        program = Program(
            X=np.hstack([rows.X, ones]),
            mask=member.bits.mask(),
            Y=rows.Y,
            weight=numbers.row_weight,
            lam=member.alpha,
            loss=settings["loss"],
            scope=f"{kind} over {p} given pattern{'s' if p > 1 else ''}{numbers.scope}",
            cones=kind == "C-ReLU",
            output_bias=estimator.fit_intercept,
            delta=settings.get("huber_delta", math.inf),
        )
        return cls(rows, program, numbers, tuple(numbers.differences(again, rows)))

    @property
    def scales(self) -> Scales:
        columns, targets = self.numbers.columns, self.numbers.targets
        directions = None if self.numbers.components is None else self.numbers.components.directions
        return Scales(columns.mean, columns.spread, targets.mean, targets.spread, directions)

    def verified(self, member: ProvenMember) -> Verification:
        """What the second route says of a network and its certificate."""
        found = verify_network(
            member.network,
            self.program,
            member.dual,
            member.certificate,
            scales=self.scales,
            multipliers=member.multipliers,
        )
        strays = self._strays(member.network)
        return replace(found, differences=(*found.differences, *self.differences, *strays))

    def claim(self, network: TwoLayerNetwork, found: Certificate) -> Certificate:
        """The certificate with an objective that is computed without rounding, or for many rows
        rounded outward, as a check will do it; for the network as it will be in the file."""
        value = value_of(network, self.program, self.scales).objective
        objective = max(value, found.lower_bound) * (1 + MARGIN)
        own = objective if self.program.cones else None
        return replace(found, objective=objective, network_objective=own)

    def _strays(self, network: TwoLayerNetwork) -> tuple[str, ...]:
        """What a network does that its program does not see, in words."""
        components = self.numbers.components
        scaled = self.numbers.columns.inverse().undo(network)
        if components is None or components.contain(scaled):
            return ()
        return ("the network depends on more than the components of the columns",)
