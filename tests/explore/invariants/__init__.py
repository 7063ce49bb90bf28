"""Invariants: each reports what it forbids, and is silent on healthy runs."""
