"""Which functions of the package a call goes through, in order: as it is and as it was.

    python docs/trace_walks.py [-o docs/walks.md]

Each walk is made twice and traced the second time, when everything is imported. Only calls into the
package itself are kept, four deep. A function that is called again from the same place is listed
once, at its first call, with everything it called at any time. The older version comes from git, in
a temporary folder. Both run without compiled kernels, so that nothing has to be built.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[1]
BEFORE = "868c297"  # the last commit before the package was rebuilt
DEPTH = 4
Walk = dict[str, "Walk"]

PAGE = """# Walks through the code

<!-- made by docs/trace_walks.py -->

Which functions a call goes through, in order: now, and before the package was rebuilt (commit
`{before}`). Calls into the package itself are listed, {depth} deep. A function that is called again
from the same place is listed once, at its first call. Comprehensions and lambdas count as part of
the function around them. The walk of `cvxnn fit` begins after the command line has been parsed.

{walks}
Made by `python docs/trace_walks.py`.
"""


class Tracer:
    """Records the calls of Python functions that are defined in one folder.

    start : the function to begin with; whatever is called around it is left out.
    """

    def __init__(self, folder: Path, start: str | None = None) -> None:
        self.folder, self.start = str(folder) + os.sep, start
        self.walk: Walk = {}
        self._open: list[tuple[FrameType, Walk | None]] = []  # None where it is too deep

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            name = self._name(frame.f_code)
            if name is not None and (self._open or self.start in (None, name)):
                self._enter(frame, name)
        elif event == "return" and self._open and self._open[-1][0] is frame:
            self._open.pop()

    def _enter(self, frame: FrameType, name: str) -> None:
        inside = self._open[-1][1] if self._open else self.walk
        deep = inside is None or len(self._open) >= DEPTH
        self._open.append((frame, None if deep or inside is None else inside.setdefault(name, {})))

    def _name(self, code: CodeType) -> str | None:
        """The function's name with its module, or None for what is not listed."""
        if not code.co_filename.startswith(self.folder) or code.co_qualname.endswith(">"):
            return None
        module = code.co_filename.removeprefix(self.folder).removesuffix(".py").replace(os.sep, ".")
        return f"{module.removesuffix('.__init__')}: {code.co_qualname.replace('.<locals>', '')}"


def trace(call: Callable[[], object], start: str | None = None) -> Walk:
    import cvxnn

    call()
    tracer = Tracer(Path(cvxnn.__file__).parent, start)
    sys.setprofile(tracer)
    try:
        call()
    finally:
        sys.setprofile(None)
    return tracer.walk


def walks(folder: Path) -> dict[str, Walk]:
    """The three walks of the version that is importable; files go to `folder`."""
    import numpy as np
    from sklearn.datasets import load_iris

    import cvxnn
    from cvxnn.cli import main as command

    X, y = load_iris(return_X_y=True)
    X, y = X[::3], y[::3]  # few rows and patterns: tracing is slow, and the walks are the same
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    table = folder / "iris.csv"
    lines = [",".join([*map(str, x), "abc"[k]]) for x, k in zip(X, y, strict=True)]
    table.write_text("\n".join(["one,two,three,four,label", *lines]) + "\n")
    patterns = cvxnn.sample_patterns(X, 10, random_state=0)

    def solve() -> object:
        return cvxnn.solve(cvxnn.CReLU(X, np.eye(3)[y], patterns, lam=0.01))

    def fit() -> object:
        return cvxnn.ReLUClassifierCV(n_patterns=10, n_alphas=3, cv=2).fit(X, y)

    def fit_table() -> object:
        with suppress(SystemExit):  # which is how a command ends
            small = ["--patterns", "10", "--folds", "2"]
            command(["fit", str(table), "--target", "label", "-o", str(folder / "model"), *small])
        return None

    # the function around what a command does; in the older version, each command has one
    start = "cli.running: runs.run" if find_spec("cvxnn.cli.running") else "cli: fit"
    return {
        "cvxnn.solve(CReLU(...))": trace(solve),
        "ReLUClassifierCV().fit": trace(fit),
        "cvxnn fit": trace(fit_table, start),
    }


def walks_of(source: Path) -> dict[str, Walk]:
    """Those of the version in a folder, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(source), "CVXNN_NATIVE": "0"}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, __file__, "--in", folder],
            env={**environment, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        return json.loads((Path(folder) / "walks.json").read_text())


def walks_before() -> dict[str, Walk]:
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "before.tar"
        tree = ["git", "-C", str(ROOT), "archive", "-o", str(archive), BEFORE, "src"]
        subprocess.run(tree, check=True)
        subprocess.run(["tar", "-xf", str(archive), "-C", folder], check=True)
        return walks_of(Path(folder) / "src")


def lines_of(walk: Walk, depth: int = 0) -> list[str]:
    lines = []
    for name, inside in walk.items():
        lines += ["  " * depth + name, *lines_of(inside, depth + 1)]
    return lines


def page(before: dict[str, Walk], now: dict[str, Walk]) -> str:
    parts = []
    for name, walk in now.items():
        parts.append(f"## `{name}`\n")
        for version, listing in (("Now", lines_of(walk)), ("Before", lines_of(before[name]))):
            text = "\n".join(listing)
            parts.append(f"### {version}: {len(listing)} functions\n\n```text\n{text}\n```\n")
    return PAGE.format(before=BEFORE, depth=DEPTH, walks="\n".join(parts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs/walks.md")
    parser.add_argument("--in", dest="folder", type=Path, help="trace the importable version")
    options = parser.parse_args()
    if options.folder is not None:
        (options.folder / "walks.json").write_text(json.dumps(walks(options.folder)))
        return
    options.output.write_text(page(walks_before(), walks_of(ROOT / "src")))


if __name__ == "__main__":
    main()
