"""Sinks that commit in two phases."""
