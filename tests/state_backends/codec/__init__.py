"""Tests of values to bytes and back."""
