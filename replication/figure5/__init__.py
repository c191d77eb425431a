"""Figures 5, 18 and 19: accuracy over the strength of the penalty and samplings of patterns."""
