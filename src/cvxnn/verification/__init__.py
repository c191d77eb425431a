"""Certificates checked by a second route, without rounding."""
