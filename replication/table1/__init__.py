"""What cone decompositions give for a ReLU network: the paper's Tables 1 and 5."""
