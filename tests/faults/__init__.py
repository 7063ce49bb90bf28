"""Tests of `engine.faults`."""
