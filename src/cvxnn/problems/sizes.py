"""Problems that will not fit into memory are refused before they are made."""

from __future__ import annotations

from cvxnn.arrays import Array, is_sparse, is_stored
from cvxnn.memory import DOUBLE, check_memory, problem_bytes, weight_bytes
from cvxnn.protocols import Problem


def check_size(X: Array, p: int, *, cones: bool, copies: int = 0) -> None:
    """Refuse a problem that will not fit into memory, before it is made."""
    (n, d), dense = X.shape, not (is_sparse(X) or is_stored(X))
    need = problem_bytes(n, d, p, dense=dense, cones=cones) + (
        DOUBLE * copies * n * d if dense else 0
    )
    check_memory(need, "C-ReLU" if cones else "C-GReLU", n=n, d=d, p=p)


def check_weights_fit(problem: Problem, further: int = 0) -> None:
    """Refuse work on weights that will not fit into memory, with so many `further` bytes."""
    blocks, d, C = problem.weight_shape
    sizes = {"n": problem.operator.n, "d": d, "p": len(problem.patterns), "C": C}
    check_memory(weight_bytes(blocks, d, C) + further, f"weights of {problem.kind}", **sizes)
