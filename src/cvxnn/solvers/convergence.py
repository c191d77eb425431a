"""The warning of a run that ended early: one of scikit-learn's, so that one filter catches both.

It has a file of its own because scikit-learn takes longer to import than all solvers together, and
is needed only to warn or to filter warnings.
"""

from __future__ import annotations

from sklearn.exceptions import ConvergenceWarning as _ConvergenceWarning


class ConvergenceWarning(_ConvergenceWarning):
    """A run ended before its tolerance was met. It is a `sklearn.exceptions.ConvergenceWarning`."""
