"""Tests of local recovery."""
