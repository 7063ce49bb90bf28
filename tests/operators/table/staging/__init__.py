"""Bounded results that are staged and committed once."""
