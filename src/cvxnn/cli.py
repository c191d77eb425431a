"""The command line. Heavy imports happen inside the commands, so `cvxnn --help` is instant."""

from __future__ import annotations

from pathlib import Path

import click

from cvxnn import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cvxnn")
def main() -> None:
    """Train two-layer ReLU networks to a certified optimum."""


@main.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("demo.png"),
    show_default=True,
    help="Where the picture of the convergence goes.",
)
@click.option("--patterns", default=1000, show_default=True, type=click.IntRange(min=1))
@click.option("--lam", default=1e-3, show_default=True, type=click.FloatRange(min=0))
@click.option("--tol", default=1e-6, show_default=True, type=click.FloatRange(min=0))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0))
def demo(output: Path, patterns: int, lam: float, tol: float, seed: int) -> None:
    """Train a gated ReLU network on the breast-cancer data and show what is proven about it.

    \b
    Example:
        cvxnn demo --lam 1e-2 -o convergence.png
    """
    from cvxnn.demo import run

    if not output.absolute().parent.is_dir():
        raise click.ClickException(f"there is no folder {output.absolute().parent} to write to")
    run(output, n_patterns=patterns, lam=lam, tol=tol, seed=seed)
