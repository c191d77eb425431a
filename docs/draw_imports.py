"""The import graph of the package: its modules, what each imports, and a picture of it.

    python docs/draw_imports.py [SOURCE] [-o docs/images/imports.svg]

Imports inside functions count like any other; those for type checkers alone do not, as they never
happen. `tests/test_imports.py` checks the graph.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
Graph = dict[str, set[str]]

# From the bottom to the top: a module imports from its own layer and from those below.
LAYERS = {
    "ground": "arrays devices digits files memory ranks rounding sharded stored",
    "machine": "validation budget progress threads kernels panels bits",
    "terms": "losses penalties gates patterns",
    "data": "smooth operators least_squares cones",
    "networks": "modelfile conversion export networks pruning",
    "problems": "protocols proofs certificates problems checkpoints bounds",
    "solvers": "solvers decompositions",
    "methods": "paths generation verification",
    "estimators": "estimators",
    "improvement": "improvement",
    "tables": "tables loading",
    "clusters": "dask",
    "pages": "plots reports",
    "command line": "cli __main__",
}


def layer_of(module: str) -> int:
    room = module.split(".")[0]
    return next(k for k, rooms in enumerate(LAYERS.values()) if room in rooms.split())


def import_graph(source: Path) -> Graph:
    """Modules of the package, without its name, and what each of them imports."""
    files = {_name(source, file): file for file in sorted((source / "cvxnn").rglob("*.py"))}
    graph = {name: _targets(name, file, files) for name, file in files.items()}
    del graph[""]  # the package itself, which looks names up when they are used
    return {name: targets - {""} for name, targets in graph.items()}


def _targets(name: str, file: Path, files: dict[str, Path]) -> set[str]:
    """What a module imports, and with it the packages around that, unless it is in them itself."""
    direct = {_known(target, files) for target in _imports(ast.parse(file.read_text()))}
    around = {
        target.rsplit(".", k)[0] for target in direct for k in range(1, target.count(".") + 1)
    }
    return (direct | {package for package in around if not name.startswith(package)}) - {name}


def _name(source: Path, file: Path) -> str:
    parts = file.relative_to(source / "cvxnn").with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def _known(target: str, files: dict[str, Path]) -> str:
    """The module of an imported name, which may be that of a class in it."""
    return target if target in files else target.rpartition(".")[0]


def _imports(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.ImportFrom) and _is_ours(child.module or ""):
            for alias in child.names:
                yield f"{child.module}.{alias.name}".removeprefix("cvxnn").removeprefix(".")
        elif isinstance(child, ast.Import):
            for alias in child.names:
                if _is_ours(alias.name):
                    yield alias.name.removeprefix("cvxnn").removeprefix(".")
        yield from _imports(child)


def _is_ours(module: str) -> bool:
    return module == "cvxnn" or module.startswith("cvxnn.")


def cycles(graph: Graph) -> list[list[str]]:
    """The largest sets of modules that all import each other, directly or not."""
    reach = {name: _reachable(graph, name) for name in graph}
    found = {
        tuple(sorted(other for other in reach[name] if name in reach[other])) for name in graph
    }
    return sorted([list(members) for members in found if len(members) > 1], key=len)


def _reachable(graph: Graph, start: str) -> set[str]:
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(graph[name])
    return seen


def upward_imports(graph: Graph) -> list[tuple[str, str]]:
    return [
        (name, target)
        for name, targets in graph.items()
        for target in sorted(targets)
        if layer_of(target) > layer_of(name)
    ]


def draw(graph: Graph, file: Path) -> None:
    """Rooms as boxes, layer by layer, and a line from each to those it imports from, unless it does
    so through another one as well. Red lines are between rooms whose modules go round in a circle.
    """
    import matplotlib.pyplot as plt

    rooms = _rooms(graph)
    circles = [{name.split(".")[0] for name in members} for members in cycles(graph)]
    by_layer: dict[int, list[str]] = {}
    for room in rooms:
        by_layer.setdefault(_layer_or_top(room), []).append(room)
    widest = max(len(members) for members in by_layer.values())
    place = {
        room: ((k + 0.5) * widest / len(members), layer)
        for layer, members in by_layer.items()
        for k, room in enumerate(sorted(members))
    }
    figure, axes = plt.subplots(figsize=(1.35 * widest, 0.8 * len(by_layer) + 0.5))
    for room, targets in rooms.items():
        for target in targets:
            bad = any(room in circle and target in circle for circle in circles)
            if not bad and any(target in _reachable(rooms, c) for c in targets - {target}):
                continue
            style = {"color": "#c44", "lw": 0.9} if bad else {"color": "#89a", "lw": 0.5}
            axes.plot(*zip(place[room], place[target], strict=True), zorder=1, **style)
    for room, (x, y) in place.items():
        box = {"boxstyle": "round", "facecolor": "white", "edgecolor": "#345"}
        axes.text(x, y, room, ha="center", va="center", fontsize=8, bbox=box, zorder=2)
    axes.set_axis_off()
    figure.savefig(
        file, bbox_inches="tight", metadata={"Date": None} if file.suffix == ".svg" else {}
    )
    plt.close(figure)


def _rooms(graph: Graph) -> Graph:
    rooms: Graph = {}
    for name, targets in graph.items():
        room = name.split(".")[0]
        others = {target.split(".")[0] for target in targets} - {room}
        rooms.setdefault(room, set()).update(others)
    return rooms


def _layer_or_top(room: str) -> int:
    """Rooms of other versions may have no layer here."""
    known = [room in rooms.split() for rooms in LAYERS.values()]
    return known.index(True) if any(known) else len(LAYERS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", nargs="?", type=Path, default=ROOT / "src")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs/images/imports.svg")
    options = parser.parse_args()
    graph = import_graph(options.source)
    draw(graph, options.output)
    edges = sum(map(len, graph.values()))
    print(f"{len(graph)} modules, {edges} imports; in a circle: {cycles(graph) or 'none'}")


if __name__ == "__main__":
    main()
