"""Tests of `engine.cli.runs`."""
