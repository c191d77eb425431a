"""The compiled kernels and their callers."""
