"""Accuracy on binary sets beside forests and support vector machines: Tables 2 and 6."""
