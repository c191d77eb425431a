"""Figures 1 and 6: SGD and the augmented Lagrangian on a realizable problem."""
