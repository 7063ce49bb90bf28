"""Tests of the bucketing sink."""
