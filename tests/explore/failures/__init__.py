"""Tests of failure reports."""
