"""Errata of the paper, each shown by a computation."""
