"""Tests of event time and watermarks."""
