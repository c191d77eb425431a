"""The second-order solver: the method, its blocks, its linear systems."""
