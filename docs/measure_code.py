"""Measure the code of the package, as it is and as it was before its rebuild.

    python docs/measure_code.py [-o docs/code.md]

Every number is read from the Python files of src/cvxnn alone, with nothing installed. Those of the
older version come from git, so that the table can be made again from any checkout with its history.
"""

from __future__ import annotations

import argparse
import ast
import io
import statistics
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BEFORE = "868c297"  # the last commit before the package was rebuilt
PACKAGE = "src/cvxnn"
Function = ast.FunctionDef | ast.AsyncFunctionDef

PAGE = """# The code in numbers

<!-- made by docs/measure_code.py -->

The Python files of `src/cvxnn`, as they are and as they were before the package was rebuilt
(commit `{before}`).

{table}

- *Lines* count everything: code, docstrings, comments and empty lines.
- The *length of a function* runs from its `def` to its last line, with signature and docstring.
- *Annotations* are those of parameters, results and attributes. One that mentions `Any` anywhere,
  such as `dict[str, Any]`, counts in full.
- *Comments* are counted by lines that have one, docstrings not among them, for every hundred lines
  that are not empty.

Made by `python docs/measure_code.py`.
"""


@dataclass(frozen=True)
class Measures:
    """The numbers of one version of the package."""

    files: int
    lines: int
    longest_file: int
    functions: int
    longest: int
    longest_name: str
    percentile: float  # the 90th, of function lengths
    median: float
    annotations: int
    anys: int
    comments: float  # in a hundred lines

    @classmethod
    def of(cls, sources: dict[str, str]) -> Measures:
        trees = {name: ast.parse(text) for name, text in sources.items()}
        functions = [
            ((node.end_lineno or node.lineno) - node.lineno + 1, f"{node.name} in {name}")
            for name, tree in trees.items()
            for node in ast.walk(tree)
            if isinstance(node, Function)
        ]
        lengths = [length for length, _ in functions]
        longest, longest_name = max(functions)
        annotations = [note for tree in trees.values() for note in _annotations(tree)]
        lines = [text.count("\n") for text in sources.values()]
        written = sum(bool(line.strip()) for text in sources.values() for line in text.split("\n"))
        comments = sum(_n_comments(text) for text in sources.values())
        return cls(
            files=len(sources),
            lines=sum(lines),
            longest_file=max(lines),
            functions=len(functions),
            longest=longest,
            longest_name=longest_name,
            percentile=statistics.quantiles(lengths, n=10)[-1],
            median=statistics.median(lengths),
            annotations=len(annotations),
            anys=sum(_mentions_any(note) for note in annotations),
            comments=100 * comments / written,
        )


def _annotations(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, Function):
            arguments = node.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            every += [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
            yield from (a.annotation for a in every if a.annotation is not None)
            if node.returns is not None:
                yield node.returns
        elif isinstance(node, ast.AnnAssign):
            yield node.annotation


def _mentions_any(annotation: ast.expr) -> bool:
    if isinstance(annotation, ast.Constant):  # an annotation in quotes
        return "Any" in str(annotation.value)
    return any(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(annotation))


def _n_comments(text: str) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(token.type == tokenize.COMMENT for token in tokens)


def sources_here() -> dict[str, str]:
    return {
        str(file.relative_to(ROOT / PACKAGE)): file.read_text()
        for file in sorted((ROOT / PACKAGE).rglob("*.py"))
    }


def sources_at(commit: str) -> dict[str, str]:
    names = _git("ls-tree", "-r", "--name-only", commit, PACKAGE).splitlines()
    return {
        name.removeprefix(f"{PACKAGE}/"): _git("show", f"{commit}:{name}")
        for name in names
        if name.endswith(".py")
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


def table(before: Measures, now: Measures) -> str:
    rows = {
        "files": lambda m: f"{m.files}",
        "lines": lambda m: f"{m.lines:,}",
        "lines of the longest file": lambda m: f"{m.longest_file}",
        "functions": lambda m: f"{m.functions:,}",
        "length of a function, median": lambda m: f"{m.median:g} lines",
        "length of a function, 90th percentile": lambda m: f"{m.percentile:.0f} lines",
        "length of the longest function": lambda m: f"{m.longest} lines (`{m.longest_name}`)",
        "annotations that mention `Any`": lambda m: (
            f"{100 * m.anys / m.annotations:.1f} % ({m.anys:,} of {m.annotations:,})"
        ),
        "comments in 100 lines": lambda m: f"{m.comments:.1f}",
    }
    lines = [f"| | before (`{BEFORE}`) | now |", "| --- | ---: | ---: |"]
    lines += [f"| {name} | {show(before)} | {show(now)} |" for name, show in rows.items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs/code.md")
    options = parser.parse_args()
    before, now = Measures.of(sources_at(BEFORE)), Measures.of(sources_here())
    options.output.write_text(PAGE.format(before=BEFORE, table=table(before, now)))
    print(table(before, now))


if __name__ == "__main__":
    main()
