"""Figures 15 to 17: the penalty parameter of the augmented Lagrangian method."""
