"""Tests of the base that all rooms use."""
