"""Keyed state over an ordered store."""
