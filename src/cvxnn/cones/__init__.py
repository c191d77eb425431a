"""The cones of ReLU patterns: projections onto them, interior points, singular ones."""
