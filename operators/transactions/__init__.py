"""Sinks that commit in another system: two-phase commit, committers, databases."""
