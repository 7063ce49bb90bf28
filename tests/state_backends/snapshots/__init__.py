"""Tests of state in files."""
