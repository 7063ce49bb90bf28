"""Tests of sinks into databases."""
