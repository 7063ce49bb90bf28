"""Tests of the house itself: tidiness, imports, layers, packaging and documentation, not behaviour."""
