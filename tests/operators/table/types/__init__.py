"""Tests of the types of tables."""
