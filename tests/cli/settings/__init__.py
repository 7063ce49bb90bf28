"""Tests of `engine.cli.settings`."""
