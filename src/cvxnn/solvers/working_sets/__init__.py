"""R-FISTA and Newton steps on a working set of patterns for each class."""
