"""Tables 3, 7 and 8: test accuracy beside Adam and SGD."""
