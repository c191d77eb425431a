"""Draw the three pictures of the first page: python docs/draw_landing.py"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import cvxnn

FOLDER = Path(__file__).parent / "images"
BLUE, ORANGE, GREEN, GREY = "#0072b2", "#c8500a", "#00795a", "#8a94a0"
ALPHA, SEEDS, WIDTH, STEPS = 1e-3, 12, 10, 20_000


def main() -> None:
    plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2, 2, 60))[:, None]
    y = np.sin(2.5 * x[:, 0]) + 0.15 * rng.standard_normal(60)
    sampled = cvxnn.ReLURegressor(ALPHA, n_patterns=200, scale=False, tol=1e-6).fit(x, y)
    save("landing-proof", lambda ax: draw_proof(ax, sampled))
    model = cvxnn.ReLURegressor(ALPHA, patterns="generate", prove=True, scale=False).fit(x, y)
    assert model.bound_.over_all_patterns
    save("landing-same", lambda ax: draw_same(ax, model, x, y))
    save("landing-small", lambda ax: draw_small(ax, model, x, y))


def save(name: str, draw: object) -> None:
    figure, ax = plt.subplots(figsize=(4.2, 3.1), layout="constrained")
    draw(ax)
    figure.savefig(FOLDER / f"{name}.png", dpi=200, metadata={"Software": None})
    plt.close(figure)


def draw_proof(ax: plt.Axes, model: cvxnn.ReLURegressor) -> None:
    """The objective and its lower bound meet."""
    passes = [record.n_products for record in model.history_]
    objective = [record.objective for record in model.history_]
    bound = [record.lower_bound for record in model.history_]
    ax.fill_between(passes, bound, objective, color=BLUE, alpha=0.12)
    ax.plot(passes, objective, color=BLUE, label="objective")
    ax.plot(passes, bound, color=ORANGE, ls="--", label="lower bound")
    ax.set(xlabel="passes over the data", ylabel="value", xscale="log")
    ax.legend(frameon=False)


def draw_same(ax: plt.Axes, model: cvxnn.ReLURegressor, x: np.ndarray, y: np.ndarray) -> None:
    """Where descent on the same objective ends, and what no network of any width reaches."""
    values = np.array([descend(x, y, seed) for seed in range(SEEDS)])
    ax.scatter(
        np.arange(1, SEEDS + 1), values, color=GREY, label=f"Adam, {WIDTH} neurons", zorder=3
    )
    ax.axhline(model.bound_.objective, color=BLUE, label="cvxnn")
    ax.axhspan(
        0, model.bound_.lower_bound, color=ORANGE, alpha=0.12, lw=0, label="proven: none is here"
    )
    low, high = model.bound_.lower_bound, values.max()
    ax.set(
        xlabel="seed",
        ylabel="objective",
        xticks=range(1, SEEDS + 1),
        ylim=(low - (high - low), high + 0.2 * (high - low)),
    )
    ax.legend(frameon=False, loc="lower right")


def descend(x: np.ndarray, y: np.ndarray, seed: int) -> float:
    """The lowest objective on the way of Adam, with all rows in every step and a falling rate."""
    rng = np.random.default_rng(seed)
    rows, n = np.column_stack([x, np.ones(len(x))]), len(x)
    weights = [
        rng.standard_normal((WIDTH, 2)) / 2,
        rng.standard_normal(WIDTH) / WIDTH**0.5,
        np.zeros(1),
    ]
    first, second = ([np.zeros_like(w) for w in weights] for _ in range(2))
    best = np.inf
    for step in range(1, STEPS + 1):
        W1, W2, b = weights
        inputs = rows @ W1.T
        hidden = np.maximum(inputs, 0)
        residual = hidden @ W2 + b - y
        penalty = ALPHA / 2 * (np.sum(W1**2) + np.sum(W2**2))
        best = min(best, residual @ residual / (2 * n) + penalty)
        slope = residual[:, None] * (inputs > 0) * W2
        gradients = [
            slope.T @ rows / n + ALPHA * W1,
            hidden.T @ residual / n + ALPHA * W2,
            np.array([residual.mean()]),
        ]
        rate = 1e-2 * (1 - step / STEPS)
        for w, g, m, v in zip(weights, gradients, first, second, strict=True):
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            w -= rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    return float(best)


def draw_small(ax: plt.Axes, model: cvxnn.ReLURegressor, x: np.ndarray, y: np.ndarray) -> None:
    """What comes out is a ReLU network, and a small one."""
    grid = np.linspace(-2.2, 2.2, 500)[:, None]
    ax.scatter(x[:, 0], y, s=14, color=GREY, label="data")
    ax.plot(grid[:, 0], model.predict(grid), color=GREEN, lw=2)
    ax.plot([], [], color=GREEN, lw=2, label=f"{model.network_.n_neurons} neurons")
    ax.set(xlabel="x", ylabel="y")
    ax.legend(frameon=False, loc="upper right")


if __name__ == "__main__":
    main()
