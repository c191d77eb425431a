"""Models and networks from their files."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from cvxnn import modelfile
from cvxnn.networks import NETWORKS, TwoLayerNetwork

if TYPE_CHECKING:
    from cvxnn.tables.model import Model


def load(path: str | PathLike[str]) -> TwoLayerNetwork | Model:
    """Read a file: a `Model` where `Model.save` or `cvxnn fit` has written it, whose network is
    `model.network`; a network where `network.save` has."""
    content = modelfile.read(path, NETWORKS)
    if content.description is None:
        return content.network
    from cvxnn.tables.model import Model  # which needs scikit-learn; networks do not

    return Model.of_file(content, path)
