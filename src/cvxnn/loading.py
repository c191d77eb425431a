"""Models and networks from their files."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from cvxnn import modelfile
from cvxnn.networks import NETWORKS, TwoLayerNetwork

if TYPE_CHECKING:
    from cvxnn.tables.model import Model


def load(path: str | PathLike[str]) -> TwoLayerNetwork | Model:
    """Read a file: a `Model` if `Model.save` or `cvxnn fit` has written it, a network if
    `network.save` has. The network of a model is `model.network`."""
    content = modelfile.read(path, NETWORKS)
    if content.description is None:
        return content.network
    from cvxnn.tables.model import Model  # needs scikit-learn, which networks do without

    return Model.of_file(content, path)
