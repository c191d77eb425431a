"""Figures 2 and 3: a cone decomposition, and the maps between the four problems."""
