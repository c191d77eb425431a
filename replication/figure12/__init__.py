"""Figures 12 to 14: how R-FISTA chooses the step that a line search starts from."""
