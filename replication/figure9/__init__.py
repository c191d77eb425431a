"""Figures 9 to 11: what acceleration, restarts and the line search are worth."""
