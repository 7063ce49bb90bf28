"""Asynchronous requests."""
