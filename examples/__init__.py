"""Whole programs built on Weir."""
