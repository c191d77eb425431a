"""The demonstration behind `cvxnn demo`: data in, certified network and picture out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import cvxnn
from cvxnn.cli.pictures import check_matplotlib, save_plot
from cvxnn.digits import text_above, text_below
from cvxnn.solvers.results import Progress as Iteration


def run(output: Path, *, n_patterns: int, lam: float, tol: float, seed: int) -> cvxnn.Solution:
    console = Console()
    data = load_breast_cancer()
    labels = np.where(data.target == 1, 1.0, -1.0)
    X, X_test, y, y_test = train_test_split(
        data.data, labels, test_size=0.2, random_state=seed, stratify=labels
    )
    centre, spread = X.mean(axis=0), X.std(axis=0)
    X, X_test = (X - centre) / spread, (X_test - centre) / spread

    patterns = cvxnn.sample_patterns(X, n_patterns, bias=True, normalize=True, random_state=seed)
    problem = cvxnn.CGReLU(X, y, patterns, lam=lam, bias=True, normalize=True)
    solution = _solve_with_progress(console, problem, tol)
    network = solution.network()

    certificate = solution.certificate
    table = Table(title="Gated ReLU network on breast cancer (scikit-learn)", show_header=False)
    table.add_row("training / test rows", f"{len(X)} / {len(X_test)}")
    table.add_row("training accuracy", f"{np.mean(np.sign(network.predict(X)) == y):.3f}")
    table.add_row("test accuracy", f"{np.mean(np.sign(network.predict(X_test)) == y_test):.3f}")
    table.add_row("objective", text_above(certificate.objective))
    table.add_row("lower bound", text_below(certificate.lower_bound))
    table.add_row("relative duality gap", f"{certificate.relative_gap:.2e}")
    table.add_row("active neurons", f"{solution.n_active} of {len(patterns)}")
    table.add_row("iterations", f"{solution.n_iter} ({solution.n_products} passes over the data)")
    table.add_row("time to solve", f"{solution.seconds:.2f} s")
    table.add_row("status", f"{solution.status}: {solution.status.help}")
    console.print(table)
    console.print(
        f"Proven: no weights of the {certificate.scope} have an objective below the lower bound.\n"
        "Not proven: that other patterns could not do better.",
        highlight=False,
    )
    _draw(console, solution, output)
    return solution


def _solve_with_progress(console: Console, problem: cvxnn.CGReLU, tol: float) -> cvxnn.Solution:
    """Solve, and show on a terminal how the gap closes; the bar measures its logarithm."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("gap 1.0e+00", total=-np.log10(max(tol, 1e-12)))

        def show(iteration: Iteration) -> None:
            if iteration.n_iter % 10 == 0 and iteration.relative_gap > 0:
                bar.update(
                    task,
                    completed=-np.log10(min(iteration.relative_gap, 1.0)),
                    description=f"gap {iteration.relative_gap:.1e}",
                )

        # no warning, because the table shows the status
        return cvxnn.solve(problem, tol=tol, callback=show, on_failure="ignore")


def _draw(console: Console, solution: cvxnn.Solution, output: Path) -> None:
    try:
        check_matplotlib()
    except ImportError:
        console.print("No picture: matplotlib is missing, pip install 'cvxnn[plot]'", markup=False)
        return
    save_plot(cvxnn.plot_convergence(solution), output)
    console.print(f"Convergence drawn to {output}")
