"""Tests of `engine.report`."""
