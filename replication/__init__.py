"""The paper's tables and figures, run again: `python -m replication` from the root of the
repository. A folder holds one of them, or several that come from the same runs."""

import benchmarks  # one BLAS thread, set before NumPy is loaded

__all__ = ["EXPERIMENTS", "benchmarks"]

# The folders, in the order of the paper's floats.
EXPERIMENTS = {
    "figure1": "Figures 1 and 6: SGD and the augmented Lagrangian on a realizable problem",
    "figure2": "Figures 2 and 3: a cone decomposition, and the maps between the four problems",
    "figure4": "Figures 4, 7 and 8: performance profiles on 438 problems",
    "table1": "Tables 1 and 5: cone decompositions",
    "figure5": "Figures 5, 18 and 19: accuracy over the penalty and the number of patterns",
    "table2": "Tables 2 and 6: accuracy on binary sets beside forests and SVMs",
    "table3": "Tables 3, 7 and 8: accuracy beside Adam and SGD",
    "table4": "Table 4: MNIST and CIFAR-10",
    "figure9": "Figures 9 to 11: acceleration and restarts",
    "figure12": "Figures 12 to 14: how a step starts",
    "figure15": "Figures 15 to 17: the penalty parameter of the augmented Lagrangian",
    "theory": "Theorems: equal optimal values, and the norms of decompositions",
    "errata": "Statements that do not hold, misprints, and cells that contradict each other",
}
