"""The command line. Heavy imports happen inside the commands, so `cvxnn --help` is instant."""

from __future__ import annotations

import math
from pathlib import Path

import click

from cvxnn import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cvxnn")
def main() -> None:
    """Train two-layer ReLU networks to a certified optimum."""


def _finite(context: click.Context, parameter: click.Parameter, value: float) -> float:
    if not math.isfinite(value):
        raise click.BadParameter(f"{value} is not finite.")
    return value


def _picture(context: click.Context, parameter: click.Parameter, path: Path) -> Path:
    """Refuse before any work what could not be written after it."""
    if path.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise click.BadParameter(f"{path} does not end in .png, .pdf or .svg.")
    if not path.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {path.absolute().parent} to write to.")
    return path


@main.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("demo.png"),
    show_default=True,
    callback=_picture,
    help="Where the picture of the convergence goes: .png, .pdf or .svg.",
)
@click.option("--patterns", default=1000, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--lam", default=3e-3, show_default=True, type=click.FloatRange(min=0), callback=_finite
)
@click.option(
    "--tol", default=1e-6, show_default=True, type=click.FloatRange(min=0), callback=_finite
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 2**32 - 1))
def demo(output: Path, patterns: int, lam: float, tol: float, seed: int) -> None:
    """Train a gated ReLU network on the breast-cancer data and show what is proven about it.

    \b
    Example:
        cvxnn demo --lam 1e-2 -o convergence.png
    """
    from cvxnn.demo import run

    run(output, n_patterns=patterns, lam=lam, tol=tol, seed=seed)
