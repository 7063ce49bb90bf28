"""Tests of `engine.cli.text`."""
