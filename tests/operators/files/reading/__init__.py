"""Tests of files as sources."""
