"""Tests of `engine.observe`."""
