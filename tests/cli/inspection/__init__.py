"""Tests of `engine.cli.inspection`."""
