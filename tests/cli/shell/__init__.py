"""Tests of `engine.cli.shell`."""
