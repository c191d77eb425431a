"""One run on MNIST in a process of its own: `python -m benchmarks.mnist_runs NAME SETTINGS`.

The clock is processor time and starts when the images are read, as bytes. Whatever is done with
them counts, conversion and principal components too; only looking at the accuracy does not.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import cvxnn
from benchmarks.datasets import folder
from cvxnn.estimators.components import Components
from cvxnn.solvers.base import Iterate

CLASSES = 10
VALIDATION = 10_000  # rows at the end of the training set that choose settings
PCA_ROWS = 20_000  # that directions are computed from


class Images(NamedTuple):
    """Bytes (n, 784) and labels, to train on and to score on."""

    X: np.ndarray
    y: np.ndarray
    X_score: np.ndarray
    y_score: np.ndarray

    @classmethod
    def read(cls, split: str, rows: int | None) -> Images:
        with np.load(folder() / "mnist.npz") as file:
            X, y, X_test, y_test = (file[name] for name in ("X", "y", "X_test", "y_test"))
        if split == "test":
            return cls(X[:rows], y[:rows], X_test, y_test)
        inner = slice(rows if rows is not None else -VALIDATION)
        return cls(X[inner], y[inner], X[-VALIDATION:], y[-VALIDATION:])


class Clock:
    """Processor seconds without those in which it is stopped."""

    def __init__(self) -> None:
        self._start = time.process_time()

    @property
    def seconds(self) -> float:
        return time.process_time() - self._start

    def accuracy(self, predict: Callable[[], np.ndarray], labels: np.ndarray) -> list[float]:
        """The seconds so far, and the accuracy of predictions that do not count."""
        now = self.seconds
        found = [now, float(np.mean(predict() == labels))]
        self._start += self.seconds - now
        return found


class Rotation(NamedTuple):
    """Pixels to their leading components, of unit variance on average."""

    mean: np.ndarray
    directions: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray, count: int) -> Rotation:
        some = X[:: max(1, len(X) // PCA_ROWS)].astype(np.float32)
        mean = some.mean(axis=0)
        some -= mean
        found = Components.of(some, np.ones(len(some)), count)
        unit = np.sqrt(found.held / count)
        return cls(mean, (found.directions / unit).astype(np.float32))

    def apply(self, X: np.ndarray) -> np.ndarray:
        return X.astype(np.float32) @ self.directions - self.mean @ self.directions


class Posed(NamedTuple):
    problem: cvxnn.CGReLU
    rotation: Rotation

    @classmethod
    def of(cls, images: Images, k: int, p: int, seed: int) -> Posed:
        rotation = Rotation.of(images.X, k)
        R = rotation.apply(images.X)
        patterns = cvxnn.sample_patterns(R, p, bias=True, random_state=seed)
        Y = np.eye(CLASSES, dtype=np.float32)[images.y]
        return cls(cvxnn.CGReLU(R, Y, patterns, 1.0, loss="softmax", bias=True), rotation)

    def labels(self, weights: np.ndarray, X: np.ndarray) -> np.ndarray:
        rows = self.rotation.apply(X)
        return self.problem.network(weights).predict(rows).argmax(axis=1)


def ours(images: Images, s: dict[str, Any]) -> Iterator[list[float]]:
    """The epochs of the stochastic start; no certificate yet."""
    clock = Clock()
    posed = Posed.of(images, s["components"], s["patterns"], s["seed"])
    problem = posed.problem.with_lam(s["lam"])
    solver = cvxnn.Stochastic(s["epochs"], s["batch"], s["step"], s["seed"])
    passed = 0
    for shown in solver.iterates(problem, problem.zero_weights()):
        if isinstance(shown, Iterate):
            return
        if shown.n_inner > passed:  # the end of an epoch
            passed, weights = shown.n_inner, shown.U
            predict = partial(posed.labels, weights, images.X_score)
            yield clock.accuracy(predict, images.y_score)


def _warm_up() -> None:
    """What PyTorch loads at the first step of an optimizer does not count."""
    import torch

    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([weight])
    weight.sum().backward()
    optimizer.step()


def adam(images: Images, s: dict[str, Any]) -> Iterator[list[float]]:
    """A ReLU network of one hidden layer in PyTorch; the step falls linearly to zero."""
    import torch

    torch.set_num_threads(1)
    _warm_up()
    torch.manual_seed(s["seed"])
    clock = Clock()
    rotation = Rotation.of(images.X, s["components"]) if s["components"] else None

    def features(X: np.ndarray) -> torch.Tensor:
        if rotation is None:
            return torch.from_numpy(X).float().div_(255)
        return torch.from_numpy(rotation.apply(X))

    X = features(images.X)
    y = torch.from_numpy(images.y).long()
    net = torch.nn.Sequential(
        torch.nn.Linear(X.shape[1], s["units"]),
        torch.nn.ReLU(),
        torch.nn.Linear(s["units"], CLASSES),
    )
    steps = s["epochs"] * -(-len(X) // s["batch"])
    optimizer = torch.optim.Adam(net.parameters(), lr=s["step"])
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)

    @torch.no_grad()
    def labels() -> np.ndarray:
        return net(features(images.X_score)).argmax(dim=1).numpy()

    for _ in range(s["epochs"]):
        for rows in torch.randperm(len(X)).split(s["batch"]):
            loss = torch.nn.functional.cross_entropy(net(X[rows]), y[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
        yield clock.accuracy(labels, images.y_score)


def mlp(images: Images, s: dict[str, Any]) -> Iterator[list[float]]:
    """scikit-learn's MLPClassifier, one epoch at a time."""
    from sklearn.neural_network import MLPClassifier

    clock = Clock()
    X = images.X.astype(np.float32) / 255
    model = MLPClassifier(
        (s["units"],),
        batch_size=min(s["batch"], len(X)),
        learning_rate_init=s["step"],
        random_state=s["seed"],
    )

    def labels() -> np.ndarray:
        return model.predict(images.X_score.astype(np.float32) / 255)

    for _ in range(s["epochs"]):
        model.partial_fit(X, images.y, classes=np.arange(CLASSES))
        yield clock.accuracy(labels, images.y_score)


def certified(images: Images, s: dict[str, Any]) -> dict[str, Any]:
    """From the bytes to a certificate, by the solver that "auto" takes."""
    clock = Clock()
    posed = Posed.of(images, s["components"], s["patterns"], s["seed"])
    problem = posed.problem.with_lam(s["share"] * cvxnn.lambda_max(posed.problem))
    solution = cvxnn.solve(problem, tol=s["tol"], max_seconds=s["limit"], on_failure="ignore")
    taken = clock.seconds
    labels = posed.labels(solution.weights, images.X_score)
    return {
        "seconds": taken,
        "gap": solution.certificate.relative_gap,
        "objective": solution.certificate.objective,
        "products": solution.n_products,
        "neurons": solution.n_active,
        "solver": solution.solver.name,
        "accuracy": float(np.mean(labels == images.y_score)),
    }


def strengths(images: Images, s: dict[str, Any]) -> dict[str, Any]:
    """The accuracy on the validation rows after some epochs at each strength."""
    clock = Clock()
    posed = Posed.of(images, s["components"], s["patterns"], s["seed"])
    largest = cvxnn.lambda_max(posed.problem)
    epochs, found = cvxnn.Stochastic(s["epochs"]), []
    for share in s["shares"]:
        problem = posed.problem.with_lam(share * largest)
        solution = cvxnn.solve(problem, epochs, max_iter=s["epochs"], on_failure="ignore")
        labels = posed.labels(solution.weights, images.X_score)
        accuracy = float(np.mean(labels == images.y_score))
        found.append([share, accuracy, solution.certificate.relative_gap])
    return {"seconds": clock.seconds, "strengths": found}


def main() -> None:
    warnings.simplefilter("ignore")
    name, settings = sys.argv[1], json.loads(sys.argv[2])
    images = Images.read(settings["split"], settings.get("rows"))
    if name in ("certified", "strengths"):
        found = {"certified": certified, "strengths": strengths}[name](images, settings)
    else:
        run = {"ours": ours, "adam": adam, "mlp": mlp}[name](images, settings)
        found = {"epochs": list(run)}
    found["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
