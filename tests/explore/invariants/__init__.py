"""Invariants: each fires at what it is about, and is silent on healthy runs."""
