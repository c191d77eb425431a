"""The paper's theorems on small random problems."""
