"""Models of tables in files, trained on a Dask cluster whose workers read the files themselves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cvxnn.dask.attempts import DaskFit
from cvxnn.estimators.base import Watch
from cvxnn.ranks import TorchRanks
from cvxnn.solvers.results import Progress
from cvxnn.tables.model import Model
from cvxnn.tables.shards import FilesOfCluster, Piece, ShardedTable, read_pieces
from cvxnn.tables.table import Table

PARTS = 4  # for each worker: those of a lost one are shared by the others


@dataclass(frozen=True)
class TableTraining:
    """Training a model on parts of a table, each of which is made of pieces of files.

    reading : how text files are read.
    settings : the parameters of `Model.fit`.
    """

    source: str
    target: str
    reading: Mapping[str, str | None]
    settings: Mapping[str, Any]

    def held(self, k: int, *given: Any) -> tuple[list[Table], int, int]:
        tables = read_pieces([Piece(*piece) for piece in given[0]], **self.reading)
        return tables, sum(map(len, tables)), 0

    def run(
        self,
        ranks: TorchRanks,
        kept: dict[int, list[Table]],
        parts: Sequence[int],
        d: int,
        watch: Watch,
    ) -> Model:
        table = ShardedTable.of({k: kept[k] for k in parts}, self.source, ranks)
        _share_memory(kept, parts, table.local)
        alone = self.settings.get("alpha") is not None
        return Model.fit(
            table.local if ranks.size == 1 else table,
            self.target,
            on_data=lambda notes: None,
            on_iteration=watch.on_iteration,
            on_alpha=watch.on_alpha,
            checkpoint=watch.checkpoint if alone else None,
            **self.settings,
        )


def _share_memory(kept: dict[int, list[Table]], parts: Sequence[int], local: Table) -> None:
    """Make the tables that are kept views of all rows here, so that these are in memory once."""
    start = 0
    for k in sorted(parts):
        for place, one in enumerate(kept[k]):
            rows = slice(start, start + len(one))
            if isinstance(one.columns, dict):
                views = {name: local.columns[name][rows] for name in one.columns}
                kept[k][place] = replace(one, columns=views)
            start = rows.stop


def fit_on_cluster(
    client: Any,
    files: FilesOfCluster,
    target: str,
    *,
    on_iteration: Callable[[Progress], object] | None = None,
    on_alpha: Callable[[int, int], object] | None = None,
    **settings: Any,
) -> Model:
    """The model of a table in files that all workers see under the same names; `settings` are the
    other parameters of `Model.fit`."""
    workers = max(len(client.scheduler_info()["workers"]), 1)
    few = math.ceil(len(files.pieces) / min(PARTS * workers, len(files.pieces)))
    shares = [files.pieces[k : k + few] for k in range(0, len(files.pieces), few)]
    job = TableTraining(str(files.source), target, files.reading, settings)
    parts = [([tuple(piece) for piece in share],) for share in shares]
    names = [", ".join(dict.fromkeys(str(piece.path) for piece in share)) for share in shares]
    return DaskFit(client, job, parts, names, on_iteration, on_alpha).run()
