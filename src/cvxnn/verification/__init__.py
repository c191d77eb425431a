"""Certificates checked by a second route, without rounding or rounded outward."""
