"""What cone decompositions give for a ReLU network: the paper's Table 1."""
