"""Tests of cases as plain data."""
