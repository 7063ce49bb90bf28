"""Tests of files that become visible all at once."""
