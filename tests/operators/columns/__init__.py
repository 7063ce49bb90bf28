"""Columnar operators, sources and whole jobs of them."""
