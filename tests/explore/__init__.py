"""Tests of `engine.explore`."""
