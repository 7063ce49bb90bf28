"""Tests of the file systems."""
