"""From tables in files to models of them, and back from model files."""
