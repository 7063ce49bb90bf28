"""Tests of the log-structured store."""
