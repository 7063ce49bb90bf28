"""Tests of `engine.cli.cases`."""
