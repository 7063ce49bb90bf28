"""Tests of `engine.cli.verbs`."""
