"""Figures 4, 7 and 8: performance profiles on 438 gated and 438 ReLU problems."""
