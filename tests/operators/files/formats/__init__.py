"""Tests of formats of text files."""
